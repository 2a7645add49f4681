"""The admission wire: reviews and verdicts, edits as JSON Patch, undoing and restoring."""
