"""SQLite, tantivy and a matrix in one folder: the default engine."""
