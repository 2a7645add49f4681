"""The command line: one module a command; heavy imports wait for the command that needs them."""
