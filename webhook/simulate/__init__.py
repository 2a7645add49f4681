"""Replays Jobs against a model of Kueue, each decided by the very code that admission runs."""
