"""Retrievers: query to candidates."""

MAX_PER_RESULT, MAX_CANDIDATES = 1_000, 100_000
"""Bounds of a retriever's settings: all its candidates are in memory at once, with their texts."""
