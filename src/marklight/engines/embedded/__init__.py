"""SQLite, tantivy and a matrix: the default engine."""
