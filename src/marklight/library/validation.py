"""Validation of search parameters: convert what callers pass to the values of a query, or raise `UsageError`."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from datetime import date
from typing import TypeVar

from marklight.answer import Mode
from marklight.dates import demand_moment
from marklight.errors import UsageError
from marklight.text import validate_glob

Texts = str | os.PathLike[str] | Iterable[str | os.PathLike[str]] | None
"""One text or several."""
Day = str | date | None

MAX_FILTER_VALUES = 500
"""Limit of the values of one filter: each is a condition on every document, and SQLite takes 1,000."""

Value = TypeVar("Value")
Number = TypeVar("Number", int, float)


def context_level(level: str | None, context: int | None) -> tuple[str, int]:
    """Return the context level, empty for none, and the number of neighbours on each side."""
    if context is None:
        return level or "", 1
    if level not in (None, "neighbours"):
        raise UsageError(
            f"A context of {context} means neighbours, but the level is {level!r}",
            "Leave out one of the two",
        )
    return "neighbours", integer("The context", context, 0, 20)


def query_text(text: str, name: str = "query") -> str:
    """Return a text that is not empty."""
    if not isinstance(text, str):
        raise UsageError(f"The {name} must be a text, not {type(text).__name__}")
    if not text.strip():
        raise UsageError(f"The {name} is empty", "Type some words")
    # A terminal may pass bytes that are not text; they could not be written anywhere.
    return text.encode("utf-8", "replace").decode()


def integer(name: str, value: int, least: int, most: int) -> int:
    """Return a whole number within bounds."""
    if not isinstance(value, int):
        raise UsageError(f"{name} must be a whole number, not {value!r}")
    return in_range(name, value, least, most)


def confidence(least: float | None) -> float | None:
    """Return a confidence threshold, or None."""
    return None if least is None else in_range("The minimum confidence", least, 0, 1)


def token_budget(tokens: int | None) -> int | None:
    """Return the largest size of an answer in tokens, or None."""
    if tokens is None:
        return None
    if not isinstance(tokens, int) or tokens < 1:
        raise UsageError(f"The token budget must be a positive whole number, not {tokens!r}")
    return tokens


def in_range(name: str, value: Number, least: int, most: int) -> Number:
    """Return a number within bounds."""
    if not isinstance(value, int | float) or not least <= value <= most:
        raise UsageError(f"{name} must be {least} to {most}, not {value}")
    return value


def texts(value: Texts) -> tuple[str, ...]:
    """Return the texts of a filter; none of them is empty."""
    if value is None:
        return ()
    if isinstance(value, str | os.PathLike):
        value = [value]
    if not isinstance(value, Iterable):
        raise UsageError(f"A filter must be a text or a list of texts, not {value!r}")
    return tuple(_non_empty(item) for item in _limited(value))


def _limited(values: Iterable[Value]) -> list[Value]:
    items = list(values)
    if len(items) > MAX_FILTER_VALUES:
        raise UsageError(
            f"A filter can have at most {MAX_FILTER_VALUES} values, not {len(items):,}",
            "A glob such as guide/** matches many files",
        )
    return items


def _text(value: str | os.PathLike[str]) -> str:
    """Return a text that can be compared and stored: valid Unicode without NUL."""
    try:
        text = os.fspath(value)
        text.encode()
    except (TypeError, AttributeError, UnicodeEncodeError):
        raise UsageError(f"{value!r} is not valid text") from None
    if "\0" in text:
        raise UsageError(f"{value!r} contains a NUL character")
    return text


def _non_empty(value: str | os.PathLike[str]) -> str:
    """Return a text that is not empty; an empty one is often a shell variable that is not set."""
    text = _text(value)
    if not text.strip():
        raise UsageError("A filter is empty", "Leave it out to search everywhere")
    return text


def globs(value: Texts) -> tuple[str, ...]:
    """Return the path patterns of a filter."""
    return tuple(validate_glob(pattern) for pattern in texts(value))


def collections(value: Texts, known: Iterable[str]) -> tuple[str, ...]:
    """Return names of collections that exist."""
    names = texts(value)
    for name in names:
        if name not in known:
            raise UsageError(f"No such collection: {name!r}", f"Known: {', '.join(known)}")
    return names


def pairs(where: Mapping[str, str] | Texts) -> tuple[tuple[str, str], ...]:
    """Return the keys and values of a frontmatter filter."""
    if isinstance(where, Mapping):
        return tuple((_text(str(key)), _text(str(value))) for key, value in _limited(where.items()))
    result = []
    for item in texts(where):
        key, equals, value = item.partition("=")
        if not equals or not key.strip():
            raise UsageError(f"A frontmatter filter must be KEY=VALUE, not {item!r}")
        result.append((key.strip(), value.strip()))
    return tuple(result)


def search_mode(mode: str) -> Mode:
    """Return the search mode with this name."""
    try:
        return Mode(mode)
    except ValueError:
        raise UsageError(f"No such mode: {mode!r}", f"Known: {', '.join(Mode)}") from None


def moment(day: Day) -> str | None:
    """Return a day, or a time of day, in the form that filters compare."""
    if day is None:
        return None
    return demand_moment(day.isoformat() if isinstance(day, date) else _text(day))
