"""gunicorn's settings that are not the admin's: one process, whole messages, no surprises."""

from __future__ import annotations

import os

workers = 1
worker_class = "webhook.server.worker.PollingWorker"
worker_connections = 2000
backlog = 2048
# Restarting a worker would throw the state away; nothing leaks that a restart would mend.
max_requests = 0
# Also how long one decision may hang before the worker is started anew.
timeout = 30
# Its heartbeat file shall not wait for a disk, and works in a read-only container.
worker_tmp_dir = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # noqa: S108
accesslog = None
errorlog = "-"
logger_class = "webhook.server.server_log.ServerLog"
control_socket_disable = True
proc_name = "kueue-fallback"
