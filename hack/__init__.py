"""What developers run: the control plane on loopback, its programs, the demonstration."""
