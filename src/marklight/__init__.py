"""Local-first hybrid search for Markdown."""
