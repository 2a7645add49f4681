"""Kueue's rules as pure functions: quota, flavor assignment, scheduling cycles, start times.

They mirror Kueue v0.19.2; docs/decisions/0019 says what happens beside another version.
"""
