"""Objects of the chart that older Kubernetes does not serve."""

# What other operators define; tests/chart asserts these by hand.
NOT_SERVED = {"cert-manager.io", "monitoring.coreos.com"}
