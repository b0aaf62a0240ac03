"""Nouns as JSON and back, to the last digit: what a client prints is what the daemon found."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from functools import cache
from importlib import import_module
from typing import Any

LIST, TABLE = "", "{"
"""What stands first in a list: which of our nouns it is, or one of these."""


def packed(value: Any) -> Any:
    """Any of our nouns as lists that say what they are."""
    if value is None or isinstance(value, (bool, int, float)):
        return value
    if isinstance(value, Enum):
        return [type(value).__name__, value.value]
    if isinstance(value, str):
        return value
    if isinstance(value, Mapping):
        flat = (packed(one) for pair in value.items() for one in pair)
        return [TABLE, *flat]
    if isinstance(value, (list, tuple)):
        # A named tuple is a tuple that says what it is.
        kind = type(value).__name__ if hasattr(value, "_fields") else LIST
        return [kind, *map(packed, value)]
    fields = (getattr(value, name) for name in value.__dataclass_fields__)
    return [type(value).__name__, *map(packed, fields)]


def unpacked(told: Any) -> Any:
    """The noun again; nothing but nouns that we know is ever made."""
    if not isinstance(told, list):
        return told
    kind, *inner = told
    values = [unpacked(one) for one in inner]
    if kind == LIST:
        return tuple(values)
    if kind == TABLE:
        return dict(zip(values[::2], values[1::2], strict=True))
    return _noun(kind)(*values)


HOMES = ("answer", "model", "report", "commits")
"""Where our nouns live; one is loaded when it is needed, and the first two for every search."""


@cache
def _noun(kind: str) -> Any:
    for home in HOMES:
        module = import_module(f"marklight.{home}")
        found = vars(module).get(kind)
        if isinstance(found, type) and found.__module__ == module.__name__:
            return found
    raise ValueError(f"{kind!r} is no noun of ours")
