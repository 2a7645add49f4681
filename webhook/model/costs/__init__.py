"""What devices are and what hours of them cost: AcceleratorProfile, Tariff and the device table."""
