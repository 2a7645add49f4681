"""The server's child process: it watches the cluster, keeps forecasts current and sends updates."""
