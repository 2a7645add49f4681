"""Which pending Jobs are moved to another option of their policy. Pure."""
