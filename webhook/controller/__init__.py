"""The controller: writes what the webhook, which never writes, cannot: statuses, moves, records."""
