"""Certificates that every API server trusts: an authority in a Secret, leaves in memory."""
