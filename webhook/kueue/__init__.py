"""Kueue's rules: quota, flavors, the scheduling cycle, forecasts. Pure."""
