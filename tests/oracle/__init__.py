"""Brute-force engine in memory: short and simple, the reference that other engines are tested against."""

from tests.oracle.engine import MemoryEngine

__all__ = ["MemoryEngine"]
