"""All that is known of the cluster: how it is read, reduced, counted and handed to the server."""
