"""Patterns of paths that would take forever."""

from __future__ import annotations

from marklight.errors import UsageError


def too_wild(pattern: str) -> bool:
    """Whether a pattern has more wildcards in one name, or crosses folders more often, than can be tried.

    Each further `*` multiplies the ways to match one name: with 25 of them a single file takes hours.
    """
    names = [name for name in pattern.split("/") if name != "**"]
    return pattern.count("**") > 8 or any(name.count("*") > 4 for name in names)


def demand_tame(pattern: str) -> str:
    """The same pattern, if it can be tried; else an error that says what is wrong with it."""
    if too_wild(pattern):
        raise UsageError(f"{pattern!r} has too many wildcards", "Use at most 4 in a name")
    return pattern
