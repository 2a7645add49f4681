"""Settings of gunicorn that are fixed: one worker process with one thread, never reloaded."""

from __future__ import annotations

import os

workers = 1
worker_class = "webhook.server.worker.BufferedWorker"
# The poller's own: a review waits for nothing and holds the interpreter, so more would only wait.
threads = 1
worker_connections = 2000
backlog = 2048
# A restarted worker loses its state, and nothing leaks that a restart would cure.
max_requests = 0
# Seconds; also about how long one decision may hang before the worker is restarted.
timeout = 30
# The heartbeat file must not wait for a disk, and must work in a read-only container.
worker_tmp_dir = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # noqa: S108
# Nobody is in front that could say from where and how a message came.
forwarded_allow_ips = ""
accesslog = None
errorlog = "-"
logger_class = "webhook.server.gunicorn_app.ServerLog"
control_socket_disable = True
proc_name = "kueue-fallback"
