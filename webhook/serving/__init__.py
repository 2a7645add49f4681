"""From a request to an answer: the server's composition root and what it remembers."""
