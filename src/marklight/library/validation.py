"""Requests and their validation: convert the parameters of a search to a query, or raise `UsageError`."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from functools import wraps
from pathlib import Path
from typing import Any, TypedDict, TypeVar, cast

from marklight.errors import UsageError
from marklight.library.collections import collection_of, scope_of
from marklight.query import Filters, Mode, PathPattern, Query

Texts = str | os.PathLike[str] | Iterable[str | os.PathLike[str]] | None
"""One text or several."""
Day = str | date | None

MAX_FILTER_VALUES = 500
"""Limit of the values of one filter: each is a condition on every document, and SQLite takes 1,000."""

Method = TypeVar("Method", bound=Callable[..., Any])
Value = TypeVar("Value")
Number = TypeVar("Number", int, float)


class QueryFlags(TypedDict, total=False):
    """Keywords of every operation with a query; `Request` describes them."""

    mode: str
    min_confidence: float | None
    after: Day
    before: Day
    refresh: bool
    settings: Mapping[str, Any] | None
    assignments: Sequence[str]


class CommonFlags(QueryFlags, total=False):
    """Keywords that `Library.search` and `Library.commits` share; `Request` describes them."""

    limit: int
    max_tokens: int | None
    rerank: bool | None
    explain: bool


class FilterFlags(QueryFlags, total=False):
    """Keywords that filter documents; `SearchRequest` describes them."""

    path: Texts
    tag: Texts
    where: Mapping[str, str] | Texts
    exclude: Texts
    collection: Texts
    near: Path | None
    part: Path | None


class SearchFlags(CommonFlags, FilterFlags, total=False):
    """Keywords of `Library.search`; `SearchRequest` describes them."""

    parents: bool
    context: int
    expand_context: bool
    all: bool
    hypothesis: str | None
    prefix: bool
    with_history: bool


class CommitFlags(CommonFlags, total=False):
    """Keywords of `Library.commits`; `CommitRequest` describes them."""

    files: Texts
    author: Texts


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """Parameters of a search of documents or commits, as a caller gives them."""

    text: str
    limit: int = 5
    mode: str = "hybrid"
    min_confidence: float | None = None
    after: Day = None
    before: Day = None
    max_tokens: int | None = None
    rerank: bool | None = None
    explain: bool = False
    refresh: bool = True
    """Bring the index up to date first."""
    settings: Mapping[str, Any] | None = None
    """Settings of the table `search` for this call."""
    assignments: Sequence[str] = ()
    """Settings for this call in the form KEY=VALUE, as `--set` takes them."""

    def _query(self, filters: Filters, **options: Any) -> Query:
        return Query(
            text=query_text(self.text),
            limit=integer("The limit", self.limit, 1, 100),
            mode=search_mode(self.mode),
            min_confidence=confidence(self.min_confidence),
            max_tokens=token_budget(self.max_tokens),
            rerank=self.rerank,
            filters=filters,
            **options,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchRequest(Request):
    """Parameters of a search of documents; the keywords of `Library.search`."""

    path: Texts = ()
    tag: Texts = ()
    where: Mapping[str, str] | Texts = ()
    exclude: Texts = ()
    collection: Texts = ()
    parents: bool = False
    context: int = 0
    expand_context: bool = False
    all: bool = False
    """Return duplicates as results of their own."""
    hypothesis: str | None = None
    prefix: bool = False
    """The last word may be unfinished: search as you type."""
    with_history: bool = False
    near: Path | None = None
    """Current folder of the caller; default: that of this process."""
    part: Path | None = None
    """Folder that the search is limited to."""

    def to_query(
        self,
        known: Mapping[str, Path],
        scope: tuple[tuple[str, str], ...],
        elsewhere: Iterable[str] = (),
    ) -> Query:
        """Validate the parameters; `known` are the library's collections, `scope` its default scope.

        `elsewhere` are names of collections that other machines added to the index.
        """
        hypothesis = self.hypothesis
        selected = collections(self.collection, [*known, *elsewhere])
        filters = Filters(
            collections=selected,
            paths=path_filter(self.path, known, selected, self.near),
            exclude=path_filter(self.exclude, known, selected, self.near),
            tags=tuple(tag.removeprefix("#") for tag in texts(self.tag)),
            where=pairs(self.where),
            after=moment(self.after),
            before=moment(self.before, last=True),
            within=scope_of(known, self.part) if self.part else scope,
        )
        return self._query(
            filters,
            parents=self.parents,
            context=integer("The context", self.context, 0, 20),
            expand_context=self.expand_context,
            prefix=self.prefix,
            all=self.all,
            hypothesis="" if hypothesis is None else query_text(hypothesis, "hypothesis"),
            collections=tuple(known) if len(known) > 1 else (),
            current_collection=collection_of(known, self.near or Path.cwd())
            if len(known) > 1
            else "",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitRequest(Request):
    """Parameters of a search of commits; the keywords of `Library.commits`."""

    files: Texts = ()
    """Globs of the files that a commit changed."""
    author: Texts = ()
    """A part of the author's name or e-mail address."""

    def to_query(self) -> Query:
        """Validate the parameters."""
        filters = Filters(
            files=globs(self.files),
            authors=tuple(name.strip() for name in texts(self.author) if name.strip()),
            after=moment(self.after),
            before=moment(self.before, last=True),
        )
        return self._query(filters)


def path_alias(method: Method) -> Method:
    """Accept `path` as another name of the parameter `ref`."""

    @wraps(method)
    def call(library: Any, *given: Any, **flags: Any) -> Any:
        if "path" in flags:
            if given or "ref" in flags:
                raise UsageError("Both `ref` and `path` are given", "They mean the same")
            flags["ref"] = flags.pop("path")
        return method(library, *given, **flags)

    return cast(Method, call)


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
    patterns = texts(value)
    if not patterns:
        return ()
    from marklight.text.globs import validate_glob

    return tuple(validate_glob(pattern) for pattern in patterns)


def path_filter(
    value: Texts, known: Mapping[str, Path], selected: Sequence[str], near: Path | None
) -> tuple[PathPattern, ...]:
    """Return the patterns of a filter of documents, whose values are globs or places."""
    patterns = globs(value)
    if not patterns:
        return ()
    from marklight.library.references import filter_patterns

    return filter_patterns(patterns, known, selected, near)


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


def moment(day: Day, *, last: bool = False) -> str | None:
    """Return a day, or a time of day, in the form that filters compare; of a period its first or its last day."""
    if day is None:
        return None
    from marklight.text.dates import validate_date

    return validate_date(day.isoformat() if isinstance(day, date) else _text(day), last=last)
