"""Which pending Jobs are moved to another option. Pure."""
