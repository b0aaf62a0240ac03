"""Whether something takes time in proportion to the text that it is given."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable

import pytest

_TRIES = 10
"""A busy machine lengthens some tries, but not all of them."""
_SLACK_SECONDS = 0.05
"""What a clock may add to a short time."""


def demand_linear(do: Callable[[str], object], text: Callable[[int], str], size: int) -> None:
    """Four times the text takes four times as long, sixteen times in a quadratic path; eleven is between."""
    small, large = text(size), text(4 * size)
    do(text(100))  # what is loaded once is loaded now
    short = long = float("inf")
    for _ in range(_TRIES):
        short, long = min(short, _seconds(do, small)), min(long, _seconds(do, large))
        if long < 11 * short + _SLACK_SECONDS:
            return
    pytest.fail(f"{len(small):,} characters took {short:.3f} s, {len(large):,} {long:.3f} s")


def _seconds(do: Callable[[str], object], text: str) -> float:
    """Of the processor, which other programs on the machine do not lengthen much.

    Without the collector of cycles: it looks at all that lives again and again, which is not linear.
    """
    gc.collect()
    gc.disable()
    try:
        began = time.process_time()
        do(text)
        return time.process_time() - began
    finally:
        gc.enable()
