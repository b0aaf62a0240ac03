"""What a caller asks for, in whatever form, to a query that makes sense; else a clear error."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from datetime import date
from typing import TypeVar

from marklight.answer import Filters, Mode, Query
from marklight.dates import demand_moment
from marklight.errors import UsageError
from marklight.text import demand_tame

Several = str | os.PathLike[str] | Iterable[str | os.PathLike[str]] | None
"""One text or many."""
Day = str | date | None

MOST_VALUES = 500
"""Of one filter: each is a condition that every document is tried by, and SQLite takes 1,000."""

Value = TypeVar("Value")
Number = TypeVar("Number", int, float)


def ask(
    text: str,
    *,
    limit: int,
    mode: str,
    min_confidence: float | None,
    max_tokens: int | None,
    rerank: bool | None,
    parents: bool,
    context: int,
    expand_context: bool,
    hypothesis: str | None,
    path: Several,
    tag: Several,
    where: Mapping[str, str] | Several,
    after: Day,
    before: Day,
    exclude: Several,
    collection: Several,
    known_collections: Iterable[str],
    here: str,
    within: tuple[tuple[str, str], ...],
) -> Query:
    """The query; `within` is the part of the library that was named by its folder."""
    query = Query(
        text=_question(text),
        limit=whole("the limit", limit, 1, 100),
        mode=_mode(mode),
        min_confidence=min_confidence,
        max_tokens=_budget(max_tokens),
        rerank=rerank,
        parents=parents,
        context=whole("the context", context, 0, 20),
        expand_context=expand_context,
        hypothesis=_question(hypothesis, "hypothesis") if hypothesis is not None else "",
        here=here,
        filters=Filters(
            collections=_known(_several(collection), known_collections),
            paths=_globs(path),
            exclude=_globs(exclude),
            tags=tuple(one.removeprefix("#") for one in _several(tag)),
            where=_pairs(where),
            after=_day(after),
            before=_day(before),
            within=within,
        ),
    )
    if min_confidence is not None:
        in_range("the least confidence", min_confidence, 0, 1)
    return query


def ask_history(
    text: str,
    *,
    limit: int,
    mode: str,
    min_confidence: float | None,
    max_tokens: int | None,
    rerank: bool | None,
    files: Several,
    author: Several,
    after: Day,
    before: Day,
) -> Query:
    """The same of commits."""
    if min_confidence is not None:
        in_range("the least confidence", min_confidence, 0, 1)
    return Query(
        text=_question(text),
        limit=whole("the limit", limit, 1, 100),
        mode=_mode(mode),
        min_confidence=min_confidence,
        max_tokens=_budget(max_tokens),
        rerank=rerank,
        filters=Filters(
            files=_globs(files),
            authors=tuple(one.strip() for one in _several(author) if one.strip()),
            after=_day(after),
            before=_day(before),
        ),
    )


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


def _question(text: str, name: str = "query") -> str:
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


def _budget(tokens: int | None) -> int | None:
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


def _several(value: Several) -> tuple[str, ...]:
    if value is None:
        return ()
    if isinstance(value, str | os.PathLike):
        value = [value]
    if not isinstance(value, Iterable):
        raise UsageError(f"a filter is a text or several, not {value!r}")
    return tuple(_text(each) for each in _few(value))


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


def _globs(value: Several) -> tuple[str, ...]:
    return tuple(demand_tame(pattern) for pattern in _several(value))


def _known(names: tuple[str, ...], known: Iterable[str]) -> tuple[str, ...]:
    for name in names:
        if name not in known:
            raise UsageError(f"no collection is called {name!r}", f"Known: {', '.join(known)}")
    return names


def _pairs(where: Mapping[str, str] | Several) -> tuple[tuple[str, str], ...]:
    if isinstance(where, Mapping):
        return tuple((_text(str(key)), _text(str(value))) for key, value in _few(where.items()))
    pairs = []
    for one in _several(where):
        key, equals, value = one.partition("=")
        if not equals or not key.strip():
            raise UsageError(f"a frontmatter filter is KEY=VALUE, not {one!r}")
        pairs.append((key.strip(), value.strip()))
    return tuple(pairs)


def _mode(mode: str) -> Mode:
    try:
        return Mode(mode)
    except ValueError:
        raise UsageError(f"no mode is called {mode!r}", f"Known: {', '.join(Mode)}") from None


def _day(day: Day) -> str | None:
    if day is None:
        return None
    return demand_moment(day.isoformat() if isinstance(day, date) else _text(day))
