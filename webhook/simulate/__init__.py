"""Replaying Jobs against a model of Kueue, decided by the very code that admission runs."""
