"""Lexical index in PostgreSQL: immutable segments of postings in tables, merged by tiers, scored with numpy."""
