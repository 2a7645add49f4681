"""I/O with the API server: calls, lists and watches, errors, kubeconfigs, Leases."""
