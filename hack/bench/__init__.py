"""What the webhook costs, measured on real control planes; `python -m hack.bench` runs it."""
