"""FallbackPolicy: its fields, its rules, its schema, and the one border where it is read."""
