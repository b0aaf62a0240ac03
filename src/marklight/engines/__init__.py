"""Where the index lives."""
