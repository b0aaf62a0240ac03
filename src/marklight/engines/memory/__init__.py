"""Brute-force engine in memory: short and simple, the reference that other engines are tested against."""

from marklight.engines.memory.engine import MemoryEngine

__all__ = ["MemoryEngine"]
