"""gunicorn's settings that are not the admin's: one process, whole messages, no surprises."""

from __future__ import annotations

workers = 1
worker_class = "webhook.worker.WholeMessageWorker"
worker_connections = 2000
backlog = 2048
# Restarting a worker would throw the state away; nothing leaks that a restart would mend.
max_requests = 0
graceful_timeout = 10
timeout = 30
accesslog = None
errorlog = "-"
control_socket_disable = True
proc_name = "kueue-fallback"
