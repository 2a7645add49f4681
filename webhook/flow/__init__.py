"""From a Job to the outcome of its review: created, applied again, moved or undone. Pure."""
