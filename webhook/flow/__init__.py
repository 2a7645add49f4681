"""The way from a Job to an outcome: created, applied again, moved, undone. Pure."""
