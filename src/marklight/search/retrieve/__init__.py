"""Query to hits: stages that find candidates."""

from __future__ import annotations

from marklight.errors import SettingsError


def demand_depth(depth: int, least: int) -> None:
    """What a retriever is told to fetch must be something."""
    if depth < 1 or least < 1:
        raise SettingsError(
            f"a retriever's depth and least must be 1 or more, not {depth}, {least}"
        )
