"""The vocabulary: frozen values that every other part speaks, and nothing that does I/O."""
