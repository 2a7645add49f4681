"""From an admission review to its answer: the server's composition root, handler and ledger."""
