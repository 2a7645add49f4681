"""I/O with the API server: requests, lists and watches, errors, Leases."""
