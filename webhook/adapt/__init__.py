"""Applies what an option changes in a Job, from the policy's closed vocabulary. Pure."""
