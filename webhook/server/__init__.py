"""HTTP and TLS under gunicorn."""
