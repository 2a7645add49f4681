"""What happened to decided Jobs: the journal, and what would have happened otherwise."""
