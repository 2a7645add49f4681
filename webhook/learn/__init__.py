"""What past runs teach about the next ones: run times, delays, failures. Pure."""
