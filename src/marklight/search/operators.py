"""Parse query operators into filters: "phrases", -excluded, #tag, path:docs/**, after:2026-01; find dates such as `march 2024`.

Describe filters in the same syntax, list the documents that pass them, and find empty filters, with suggestions.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import field, fields, replace
from datetime import date
from itertools import islice
from pathlib import PurePosixPath
from typing import Any

from marklight.answer import Hit, Hits, Why
from marklight.errors import Message, UsageError
from marklight.formatting import place_text
from marklight.lazy import dataclass, lazy_pattern
from marklight.ports import Snapshot, Tools
from marklight.query import OPERATORS, PARAMETERS, SCOPE_KEYS, Filters, Mode, PathPattern, Query
from marklight.text.analyzer import (
    analyze,
    defined_term,
    has_cjk,
    has_words,
    matches_phrases,
    query_terms,
)

_QUOTED = r'(?:"[^"“”\n]{1,300}"|“[^"“”\n]{1,300}”)'
_OPERATOR = lazy_pattern(
    rf"(?<!\S)(?:(?P<phrase>{_QUOTED})|-(?P<without>{_QUOTED}|[^\W\d_][\w'’-]*)"
    rf"|#(?P<tag>(?!\d+(?![\w/-]))\w[\w/-]{{0,200}})"
    rf"|(?P<dash>-?)(?P<key>[^\W\d_][\w.-]*):(?P<value>{_QUOTED}|[^\s\"“”]+))(?=[,.;:!?)]*(?:\s|$))"
)
"""Pattern of a possible filter: surrounded by white space, with at most punctuation after it."""
_QUOTES = '"“”'
MIN_EXCLUDED_LETTERS = 3
"""Letters of a word to exclude: `-f` and `-rf` are options of a command."""
MAX_OPERATORS = 50
"""A text with more was pasted; each would be evaluated on every document. Hand-set; not measured."""
_MAY_HAVE_DATE = lazy_pattern(r"\d|\b(?:today|yesterday|this|last|past|previous)\b", re.IGNORECASE)
"""Matches every text with a date: a cheap test, as few queries have one."""


@dataclass(frozen=True, slots=True)
class Operators:
    """Everything that is not an operator is plain text, whatever characters it contains.

    A date in words, such as `march 2024` or `last week`, is plain text too; but documents of that date that match
    the other words are found as well.
    """

    dates: bool = True
    """Also search for documents of the dates that the query contains."""

    def __call__(self, query: Query, tools: Tools) -> Query:
        query = self._parsed(query, tools)
        if term := defined_term(query.text):
            query = replace(query, text=term, raw_text=query.raw_text or query.text)
        if self.dates and query.mode is not Mode.CODE and _MAY_HAVE_DATE.search(query.text):
            return _with_dates(query, tools)
        return query

    def _parsed(self, query: Query, tools: Tools) -> Query:
        if (
            sum(1 for _ in islice(_OPERATOR.finditer(query.text), MAX_OPERATORS + 1))
            > MAX_OPERATORS
        ):
            tools.notify(
                f"More than {MAX_OPERATORS} words of the query look like filters, so all are searched as text"
            )
            return query
        parsed = _Parsed(tools, query.text if query.prefix else "", query.collections)
        # An operator is replaced by a space, a phrase by its words.
        text = _OPERATOR.sub(parsed.substitute, query.text)
        if parsed.absent and query_terms(_OPERATOR.sub(" ", query.text)):
            # A quotation among other words may differ from how the documents write it.
            for phrase in parsed.absent:
                tools.notify(f'No passage contains "{phrase}". Searching for its words instead')
        else:
            for phrase in parsed.absent:
                parsed.add("phrases", phrase)
        if parsed.filters == Filters() and not parsed.has_negated:
            return query
        if parsed.filters.without and tools.snapshot.documents.find_by_title(
            query.text, query.filters, 1
        ):
            return query  # a title with a dash before a word
        if not query_terms(text):
            text = " ".join(parsed.values)
        if not query_terms(text):
            if not parsed.is_scoped:
                return query  # only exclusions, or values without words
            text = ""  # all documents that pass
        if parsed.filters.without:
            tools.notify(_exclusion_notice(parsed.filters.without))
        return replace(
            query,
            text=" ".join(text.split()),
            raw_text=query.raw_text or query.text,
            filters=_combined(query.filters, parsed.filters),
        )


@dataclass(slots=True)
class _Parsed:
    """Filters parsed so far, as one operator after the other is replaced in the query."""

    tools: Tools
    unfinished: str = ""
    """The query while it is typed: its last tag may be one that does not exist yet."""
    collections: tuple[str, ...] = ()
    """Names that a path may begin with."""
    filters: Filters = field(default_factory=Filters)
    values: list[str] = field(default_factory=list)
    """Values of filters, which are searched for if the query has no other words."""
    is_scoped: bool = False
    has_negated: bool = False
    """True if a filter was written with a dash."""
    absent: list[str] = field(default_factory=list)
    """Phrases that do not occur in the library."""

    def substitute(self, word: re.Match[str]) -> str:
        """Return the replacement of an operator: itself if it is no filter."""
        if phrase := word["phrase"]:
            return self._add_phrase(phrase.strip(_QUOTES)) or phrase
        if without := word["without"]:
            return self._add_excluded(without) or word[0]
        if tag := word["tag"]:
            is_last = self.unfinished and word.end() == len(self.unfinished)
            return " " if self._add_tag(tag.rstrip("/-"), silent=bool(is_last)) else word[0]
        key, value = word["key"].lower(), word["value"].rstrip(",;").strip(_QUOTES).strip()
        before = self.filters, [*self.values], self.is_scoped
        if not self._add_pair(key, value):
            return word[0]
        if word["dash"]:
            self.filters, self.values, self.is_scoped = before
            self.has_negated = True
            self.tools.notify(f"A dash excludes words, not filters: {word[0]} is ignored")
        return " "

    def _add_phrase(self, phrase: str) -> str:
        if not has_words(phrase):
            return ""
        if self.tools.snapshot.metadata.matching_documents(Filters(phrases=(phrase.strip(),)), 1):
            self.add("phrases", phrase.strip())
        else:
            self.absent.append(phrase.strip())
        return phrase

    def _add_tag(self, tag: str, *, silent: bool) -> bool:
        """Return true if a document has this tag: `#include` is text where none has."""
        if not self.tools.snapshot.metadata.matching_documents(Filters(tags=(tag,)), 1):
            if not silent:
                self.tools.notify(f"No document has the tag #{tag}, so it is searched as text")
            return False
        self.add("tags", tag)
        self.values.append(tag)
        return True

    def _add_excluded(self, given: str) -> str:
        phrase = given.strip(_QUOTES).strip()
        letters = sum(character.isalpha() for character in phrase)
        if not has_words(phrase) or (letters < MIN_EXCLUDED_LETTERS and not has_cjk(phrase)):
            return ""
        self.add("without", phrase)
        return " "

    def _add_pair(self, key: str, value: str) -> bool:
        """Return true if `key:value` is a filter, which `std::vector` and `http://x` are not."""
        if not value.strip("#") or value.startswith((":", "//")):
            return False
        if key in ("after", "before"):
            from marklight.text.dates import validate_date

            try:
                day = validate_date(value, last=key == "before")
            except UsageError:
                if value[0].isdigit():
                    raise
                return False  # `after:lunch` is text
            more = Filters(after=day) if key == "after" else Filters(before=day)
            self.filters = _combined(self.filters, more)
        elif key == "path":
            for pattern in self._patterns(value):
                self.add("paths", pattern)
        elif key in OPERATORS:
            self.add(OPERATORS[key], self._checked(key, value))
        elif key in ("author", "category", "task") or self.tools.snapshot.metadata.has_key(key):
            self.add("where", (key, value))
        else:
            return False
        if key in SCOPE_KEYS:
            self.is_scoped = True
        else:
            self.values.append(value)
        return True

    def _patterns(self, value: str) -> list[PathPattern]:
        from marklight.reference import Target, path_patterns, targets
        from marklight.text.globs import validate_glob

        def exists(target: Target) -> bool:
            documents = self.tools.snapshot.documents.find_by_path(target.path)
            return any(target.collection in (None, id.collection) for id in documents)

        return path_patterns(
            validate_glob(value), lambda name: targets(name, self.collections), exists
        )

    def _checked(self, key: str, value: str) -> str:
        if key == "tag":
            return value.removeprefix("#")
        listed = self.tools.snapshot.metadata.matching_documents
        if key == "collection" and not listed(Filters(collections=(value,)), 1):
            raise UsageError(
                f"No collection is called {value!r}",
                Message("`marklight status` lists the collections", "The status lists them"),
            )
        return value

    def add(self, name: str, value: object) -> None:
        both = (*getattr(self.filters, name), value)
        more: dict[str, Any] = {name: tuple(dict.fromkeys(both))}
        self.filters = replace(self.filters, **more)


def _with_dates(query: Query, tools: Tools) -> Query:
    """Add the reading of the dates in a query as a condition, if some documents have these dates and not most of them."""
    from marklight.text.dates import find_date_expressions

    expressions = find_date_expressions(query.text, date.fromtimestamp(tools.now))
    if not expressions:
        return query
    days = tuple((found.first.isoformat(), found.last.isoformat()) for found in expressions)
    passages = tools.snapshot.metadata.count_matching(Filters(dated=days))
    if not 0 < 2 * passages <= tools.snapshot.status.counts("").chunks:
        return query
    text = query.text
    for expression in reversed(expressions):
        text = f"{text[: expression.start]} {text[expression.end :]}"
    text = " ".join(text.split()) if analyze(text) else ""
    dated = replace(query, text=text, filters=replace(query.filters, dated=days))
    return replace(query, dated_reading=dated)


def _combined(given: Filters, parsed: Filters) -> Filters:
    """Combine the caller's filters with those of the query: the narrower dates, the collections that both name.

    A query cannot widen its caller's filters: other values of both must match.
    """
    if given.collections and parsed.collections:
        shared = tuple(name for name in parsed.collections if name in given.collections)
        if not shared:
            raise UsageError(
                f"collection:{parsed.collections[0]} is not among the collections to search:"
                f" {', '.join(given.collections)}"
            )
        parsed = replace(parsed, collections=shared)
        given = replace(given, collections=())
    both: dict[str, Any] = {
        name: getattr(parsed, name)
        for name in ("paths", *OPERATORS.values())
        if getattr(given, name) and getattr(parsed, name)
    }
    if both:
        given = replace(given, also=Filters(**both))
        no_values: dict[str, Any] = dict.fromkeys(both, ())
        parsed = replace(parsed, **no_values)
    from marklight.text.dates import parse_date_range

    several: dict[str, Any] = {
        part.name: tuple(dict.fromkeys((*getattr(given, part.name), *getattr(parsed, part.name))))
        for part in fields(Filters)
        if part.default == ()
    }
    after = [date for date in (given.after, parsed.after) if date]
    before = [date for date in (given.before, parsed.before) if date]
    return replace(
        given,
        **several,
        after=max(after, key=lambda date: parse_date_range(date)[0], default=None),
        before=min(before, key=lambda date: parse_date_range(date)[1], default=None),
    )


def _exclusion_notice(without: tuple[str, ...]) -> str:
    quoted = ", ".join(f'"{phrase}"' for phrase in without)
    typed = " ".join(f'-"{phrase}"' if " " in phrase else f"-{phrase}" for phrase in without)
    them = "it" if len(without) == 1 else "them"
    return f"Passages with {quoted} are left out ({typed}). Remove the dash to search for {them}"


MAX_LISTED = 100_000
"""Documents of which the latest are chosen; reading the dates of so many takes a second."""
LISTED_STEP = 1e-9
"""Difference between the scores of two documents in a list: it keeps their order and is not shown."""


def describe_filters(filters: Filters) -> str:
    """List the filters that are set, in the syntax of queries, for messages."""
    names = {field: name for name, field in reversed((OPERATORS | PARAMETERS).items())}
    written: dict[str, Iterable[str]] = {
        "dated": (f"{first} to {last}" for first, last in filters.dated),
        "documents": (document.path for document in filters.documents),
    }
    descriptions = [
        *(f'"{phrase}"' for phrase in filters.phrases),
        *(f'-"{phrase}"' for phrase in filters.without),
        *(f"{key}:{_quoted(value)}" for key, value in filters.where),
    ]
    if filters.within:
        folders = (
            f"path:{_quoted(f'{folder}/**')}" if folder else f"collection:{_quoted(collection)}"
            for collection, folder in filters.within
        )
        descriptions.append(" or ".join(folders))
    for field_name in (item.name for item in fields(filters)):
        value = getattr(filters, field_name)
        if not value or field_name in ("phrases", "without", "where", "within", "also"):
            continue
        values = (value,) if isinstance(value, str) else written.get(field_name, map(str, value))
        name = names.get(field_name, field_name.removesuffix("s"))
        descriptions.append(" or ".join(f"{name}:{_quoted(text)}" for text in values))
    if filters.also:
        descriptions.append(describe_filters(filters.also))
    return ", ".join(descriptions)


def passing_documents(query: Query, limit: int, tools: Tools) -> Hits:
    """Return the first passage of each document that passes the filters, the latest document first.

    Documents whose own date is in a period of the filters come before those that only mention it in their
    frontmatter. There are no words to rank by, so all have a score of 1.
    """
    snapshot = tools.snapshot
    documents = snapshot.metadata.matching_documents(query.filters, MAX_LISTED)
    dates = snapshot.documents.dates(documents)
    own = {
        document
        for first, last in query.filters.dated
        for document in snapshot.metadata.matching_documents(
            replace(query.filters, dated=(), after=first, before=last), MAX_LISTED
        )
    }
    latest = sorted(
        documents, key=lambda document: (document not in own, -dates[document], document)
    )
    hits: list[Hit] = []
    for document in latest[:limit]:
        chunks = snapshot.documents.chunks_around(document, 0, 0)
        if without := query.filters.without:
            chunks = [
                chunk
                for chunk in snapshot.documents.chunks_of(document)
                if matches_phrases((), without, (chunk.text, chunk.title, *chunk.headings))
            ]
        score = 1.0 - LISTED_STEP * len(hits)
        trace = (Why("filters", score),) if tools.explain else None
        hits += (Hit(chunk, score, trace) for chunk in chunks[:1])
    return tuple(hits)


def _quoted(value: str) -> str:
    """Return the value of a filter, in quotes if it contains white space."""
    return f'"{value}"' if " " in value else value


def no_match_reason(query: Query, snapshot: Snapshot, unit: str = "passage") -> str:
    """Return why a query has no matches: the filters that nothing matches, with suggestions, or its words."""
    if not query.filters:
        return f"No {unit} matches the query"
    described = describe_filters(query.filters)
    empty = _empty_filters(query.filters, snapshot)
    return empty or f"No {unit} matches the query with these filters: {described}"


def _empty_filters(filters: Filters, snapshot: Snapshot) -> str:
    """Describe the filters that no passage matches, with similar values that exist; empty if some passage matches all."""
    if snapshot.metadata.matching_documents(filters, 1):
        return ""
    empty = [
        single
        for single in _single_filters(filters)
        if not snapshot.metadata.matching_documents(single, 1)
    ]
    if not empty:
        return f"No passage matches all filters: {describe_filters(filters)}"
    sentences = (_describe_empty(single, snapshot) for single in empty)
    return " ".join(f"{sentence}." for sentence in sentences).replace("?.", "?").removesuffix(".")


def _single_filters(filters: Filters) -> Iterator[Filters]:
    """Split filters into those that must all match; values that are alternatives stay together."""
    for name in (item.name for item in fields(filters)):
        value = getattr(filters, name)
        if name == "also" and value:
            yield from _single_filters(value)
        elif name in ("where", "phrases"):
            yield from (_only(name, (part,)) for part in value)
        elif value:
            yield _only(name, value)


def _only(name: str, value: object) -> Filters:
    values: dict[str, Any] = {name: value}
    return replace(Filters(), **values)


def _describe_empty(single: Filters, snapshot: Snapshot) -> str:
    from marklight.text.suggestions import MAX_SUGGESTIONS

    if single.phrases:
        return f"No passage contains {describe_filters(single)}"
    suggestions = list(dict.fromkeys(_suggestions(single, snapshot)))[:MAX_SUGGESTIONS]
    message = f"No passage matches {describe_filters(single)}"
    if not suggestions:
        return message
    quoted = " or ".join(f'"{value}"' for value in suggestions)
    return f"{message}. Did you mean {quoted}?"


def _suggestions(single: Filters, snapshot: Snapshot) -> Iterator[str]:
    from marklight.text.suggestions import MAX_COMPARED

    for tag in single.tags:
        yield from _similar(tag, snapshot.metadata.tags(), lambda other: other.split("/"))
    for key, value in single.where:
        yield from _similar(value, snapshot.metadata.values(key, MAX_COMPARED), str.split)
    if single.paths:
        ids = list(snapshot.documents.files())[:MAX_COMPARED]
        several = len({id.collection for id in ids}) > 1
        files = [place_text(id, several) for id in ids]
        folders = {str(folder) for path in files for folder in PurePosixPath(path).parents} - {"."}
        for path in map(str, single.paths):
            places = sorted(folders) + files
            yield from _similar(
                _before_wildcards(path), places, lambda other: [PurePosixPath(other).stem]
            )


def _similar(value: str, known: Iterable[str], parts: Callable[[str], list[str]]) -> Iterator[str]:
    """Yield known values similar to this one, then those that have it as a part: a name, a folder, a nested tag."""
    from marklight.text.suggestions import similar_keys

    values = list(known)
    yield from similar_keys(value, {other: other for other in values})
    folded = value.casefold()
    yield from (other for other in values if folded in (part.casefold() for part in parts(other)))


def _before_wildcards(glob: str) -> str:
    """Return the folders of a pattern before its first wildcard, or the whole path if it has none."""
    names = glob.removeprefix("./").strip("/").split("/")
    wild = [at for at, name in enumerate(names) if set(name) & set("*?[")]
    return "/".join(names[: wild[0]] if wild else names)
