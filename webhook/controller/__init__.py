"""The controller: writes what the webhook, which never writes, has to say about policies."""
