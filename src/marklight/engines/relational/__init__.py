"""SQL that SQLite and PostgreSQL share: documents, filters, links, vocabulary counts, status, and applying a batch."""
