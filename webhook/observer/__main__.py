"""``python -m webhook.observer``: the process that a server starts."""

from webhook.observer.process import main

main()
