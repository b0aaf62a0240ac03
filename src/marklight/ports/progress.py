"""How far a long run is, for whoever watches it."""

from __future__ import annotations

from typing import Protocol


class Progress(Protocol):
    """Told how far a long run is; a surface shows it."""

    def __call__(self, phase: str, done: int, total: int) -> None: ...


def silent(phase: str, done: int, total: int) -> None:
    """Progress that nobody watches."""


def nobody_stops() -> None:
    """Work that is always waited for."""
