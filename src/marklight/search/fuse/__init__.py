"""Fusion stages: merge the candidates of several retrievers into one ranked list."""
