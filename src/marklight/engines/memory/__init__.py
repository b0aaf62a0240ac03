"""Brute force in memory: short, obviously right, what every other engine is tested against."""

from marklight.engines.memory.engine import MemoryEngine

__all__ = ["MemoryEngine"]
