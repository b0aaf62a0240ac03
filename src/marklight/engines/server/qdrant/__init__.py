"""Lexical and vector index of a fleet: Qdrant collections that follow a PostgreSQL library through an outbox."""
