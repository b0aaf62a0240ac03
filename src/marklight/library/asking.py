"""What callers give, in whatever form, to the values that a query holds; else a clear error."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from datetime import date
from typing import TypeVar

from marklight.answer import Mode
from marklight.dates import demand_moment
from marklight.errors import UsageError
from marklight.text import validate_glob

Several = str | os.PathLike[str] | Iterable[str | os.PathLike[str]] | None
"""One text or many."""
Day = str | date | None

MOST_VALUES = 500
"""Of one filter: each is a condition that every document is tried by, and SQLite takes 1,000."""

Value = TypeVar("Value")
Number = TypeVar("Number", int, float)


def level_of(level: str | None, context: int | None) -> tuple[str, int]:
    """How much around a passage is wanted: a level, or nothing, and the number of neighbours."""
    if context is None:
        return level or "", 1
    if level not in (None, "neighbours"):
        raise UsageError(
            f"a context of {context} says how many neighbours, but the level is {level!r}",
            "Leave one of them out",
        )
    return "neighbours", whole("the context", context, 0, 20)


def question(text: str, name: str = "query") -> str:
    """The words, if there are any."""
    if not isinstance(text, str):
        raise UsageError(f"a {name} is a text, not {type(text).__name__}")
    if not text.strip():
        raise UsageError(f"the {name} is empty", "Ask in words")
    # What a terminal hands on of bytes that are no text cannot be written anywhere.
    return text.encode("utf-8", "replace").decode()


def whole(name: str, value: int, least: int, most: int) -> int:
    """The number, if things can be counted by it."""
    if not isinstance(value, int):
        raise UsageError(f"{name} must be a whole number, not {value!r}")
    return in_range(name, value, least, most)


def confidence(least: float | None) -> float | None:
    """The least that is wanted."""
    return None if least is None else in_range("the least confidence", least, 0, 1)


def budget(tokens: int | None) -> int | None:
    """How long an answer may be."""
    if tokens is None:
        return None
    if not isinstance(tokens, int) or tokens < 1:
        raise UsageError(f"the token budget must be a positive whole number, not {tokens!r}")
    return tokens


def in_range(name: str, value: Number, least: int, most: int) -> Number:
    """The number, if it makes sense."""
    if not isinstance(value, int | float) or not least <= value <= most:
        raise UsageError(f"{name} must be {least} to {most}, not {value}")
    return value


def several(value: Several) -> tuple[str, ...]:
    """The texts of a filter."""
    if value is None:
        return ()
    if isinstance(value, str | os.PathLike):
        value = [value]
    if not isinstance(value, Iterable):
        raise UsageError(f"a filter is a text or several, not {value!r}")
    return tuple(_filled(each) for each in _few(value))


def _few(values: Iterable[Value]) -> list[Value]:
    found = list(values)
    if len(found) > MOST_VALUES:
        raise UsageError(
            f"a filter can have {MOST_VALUES} values at most, not {len(found):,}",
            "A glob such as guide/** means many files",
        )
    return found


def _text(value: str | os.PathLike[str]) -> str:
    """A text that can be compared and stored; bytes that are none, and NUL, are refused."""
    try:
        text = os.fspath(value)
        text.encode()
    except (TypeError, AttributeError, UnicodeEncodeError):
        raise UsageError(f"{value!r} is no text") from None
    if "\0" in text:
        raise UsageError(f"{value!r} holds a NUL, which no text does")
    return text


def _filled(value: str | os.PathLike[str]) -> str:
    """A text that something can be compared with: an empty one comes of a variable that nobody set."""
    text = _text(value)
    if not text.strip():
        raise UsageError("a filter is empty", "Leave it out to search everywhere")
    return text


def globs(value: Several) -> tuple[str, ...]:
    """The same where they are patterns of paths."""
    return tuple(validate_glob(pattern) for pattern in several(value))


def collections(value: Several, known: Iterable[str]) -> tuple[str, ...]:
    """The same where they are names of collections."""
    names = several(value)
    for name in names:
        if name not in known:
            raise UsageError(f"no collection is called {name!r}", f"Known: {', '.join(known)}")
    return names


def pairs(where: Mapping[str, str] | Several) -> tuple[tuple[str, str], ...]:
    """Keys and values of frontmatter."""
    if isinstance(where, Mapping):
        return tuple((_text(str(key)), _text(str(value))) for key, value in _few(where.items()))
    found = []
    for one in several(where):
        key, equals, value = one.partition("=")
        if not equals or not key.strip():
            raise UsageError(f"a frontmatter filter is KEY=VALUE, not {one!r}")
        found.append((key.strip(), value.strip()))
    return tuple(found)


def mode_named(mode: str) -> Mode:
    """The mode of this name."""
    try:
        return Mode(mode)
    except ValueError:
        raise UsageError(f"no mode is called {mode!r}", f"Known: {', '.join(Mode)}") from None


def moment(day: Day) -> str | None:
    """A day, or a time of one, as it is compared."""
    if day is None:
        return None
    return demand_moment(day.isoformat() if isinstance(day, date) else _text(day))
