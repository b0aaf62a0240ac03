"""Refining stages: boost, drop, reorder and extend hits after fusion."""
