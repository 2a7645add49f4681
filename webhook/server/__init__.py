"""HTTP and TLS for reviews, with gunicorn as the frame, and plain HTTP for probes.

gunicorn brings the process: it binds the port, starts the one worker, restarts it when it dies or
stops notifying for 30 s, and passes signals on (``gunicorn_app``, ``gunicorn.conf.py``,
``server_log``). The worker is our own (``worker``): one process with one thread that never blocks.
The thread polls the listening socket and all connections, reads whatever bytes have arrived, and
calls the application as soon as a message is complete. A decision takes less than a millisecond
and waits for nothing, so more threads would add only the hand-overs between them, while idle
connections, of which an API server keeps many, cost no thread at all.

``connections`` takes each ``connection`` through its steps (handshake, message, answer, hang-up);
``deadlines`` limits the time that a step may take, and fixed limits bound the number of
connections and the bytes held for them. ``http1`` parses bytes into messages and ``wsgi`` calls
the application; neither knows sockets. ``tls`` keeps the TLS context in force, from files or from
the observer, and replaces it as a whole. ``probes`` answers health checks and scrapes in threads
of its own, so they never compete with a review for the worker's thread.

Of gunicorn only ``Worker``, ``Arbiter``, ``BaseApplication`` and ``Logger`` are subclassed, each
in a few methods. The reasons, measurements and the way back are in
``docs/decisions/0007-worker.md``.
"""
