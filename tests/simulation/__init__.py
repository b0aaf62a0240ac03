"""Deterministic simulation: a seed decides every edit, step, fault and kill of several processes that share an index."""
