"""What a caller asks for, in whatever form, to a query that makes sense; else a clear error."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime

from marklight.answer import Filters, Mode, Query
from marklight.errors import UsageError
from marklight.library.locate import Scope

Several = str | Iterable[str]
"""One text or many."""


def ask(
    text: str,
    *,
    limit: int,
    mode: str,
    min_confidence: float | None,
    max_tokens: int | None,
    path: Several,
    tag: Several,
    where: Mapping[str, str] | Several,
    after: str | None,
    before: str | None,
    exclude: Several,
    collection: Several,
    here: str = "",
    scope: Scope = Scope(),  # noqa: B008
) -> Query:
    """The query; `scope` is the part of the library that was named by its folder."""
    query = Query(
        text=text,
        limit=limit,
        mode=_mode(mode),
        min_confidence=min_confidence,
        max_tokens=max_tokens,
        here=here,
        filters=Filters(
            collections=_several(collection) or scope.collections,
            paths=_several(path) or scope.paths,
            exclude=_several(exclude),
            tags=tuple(one.removeprefix("#") for one in _several(tag)),
            where=_pairs(where),
            after=_day(after),
            before=_day(before),
        ),
    )
    if not query.text.strip():
        raise UsageError("the query is empty", "Ask in words")
    if not 1 <= query.limit <= 100:
        raise UsageError(f"the limit must be 1 to 100, not {query.limit}")
    if query.min_confidence is not None and not 0 <= query.min_confidence <= 1:
        raise UsageError(f"the least confidence must be 0 to 1, not {query.min_confidence}")
    if query.max_tokens is not None and query.max_tokens < 1:
        raise UsageError(f"the token budget must be positive, not {query.max_tokens}")
    return query


def _several(value: Several) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else tuple(value)


def _pairs(where: Mapping[str, str] | Several) -> tuple[tuple[str, str], ...]:
    if isinstance(where, Mapping):
        return tuple((str(key), str(value)) for key, value in where.items())
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


def _day(day: str | None) -> str | None:
    if day is not None:
        try:
            datetime.fromisoformat(day)
        except ValueError:
            raise UsageError(f"{day!r} is no date", "Write it as 2026-01-31") from None
    return day
