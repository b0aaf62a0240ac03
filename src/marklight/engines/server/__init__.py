"""Engines that keep an index on database servers: PostgreSQL, and Qdrant over PostgreSQL."""
