"""The admission API: reviews and verdicts, edits as JSON Patch, the record of submitted values."""
