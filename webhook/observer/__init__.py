"""The child process that watches the cluster and keeps forecasts for its server."""
