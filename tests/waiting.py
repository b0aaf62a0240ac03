"""Wait for what must happen, and no longer."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

PATIENCE_SECONDS = 60.0
"""Longer than anything takes; only a test that fails waits for so long."""

Value = TypeVar("Value")


def until(found: Callable[[], Value | None]) -> Value:
    """What there is to find, or what is true, as soon as it is."""
    end = time.monotonic() + PATIENCE_SECONDS
    while not (value := found()):
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.01)
    return value
