"""Decides, purely: which options a Job has, which are refused and why, and which one is taken."""
