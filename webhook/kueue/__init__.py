"""Kueue's rules as pure functions: quota, flavor assignment, scheduling cycles, start times.

They mirror Kueue v0.19.2, and v0.18.4 where it differs (``KueueRelease``); docs/decisions/0019 says
what happens beside another version.
"""
