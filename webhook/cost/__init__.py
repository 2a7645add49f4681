"""What an option costs: tariffs as rates over time, devices of flavors, money, power and carbon."""
