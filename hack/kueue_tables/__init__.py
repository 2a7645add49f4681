"""Kueue's own scheduler tests as data: how the files are made, and how far our model agrees."""
