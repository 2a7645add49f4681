"""HTTP and TLS: gunicorn's arbiter and thread worker, probes, and the certificate in force.

gunicorn brings the process: it binds the ports, starts the one worker, restarts it when it dies or
stops notifying for 30 s, passes signals on, and reads and writes HTTP (``gunicorn_app``,
``gunicorn.conf.py``). ``worker`` changes one thing: only whole messages are answered, in turn by
peer. ``docs/decisions/0007-worker.md`` has the reasons.
"""
