"""What the webhook costs, measured on real control planes; `python -m bench` runs it."""
