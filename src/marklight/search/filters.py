"""Describe filters in query syntax, list the documents that pass, and find empty filters, with suggestions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import fields, replace
from pathlib import PurePosixPath
from typing import Any

from marklight.answer import Hit, Hits, Why
from marklight.formatting import place_text
from marklight.ports import Snapshot, Tools
from marklight.query import Filters, Query
from marklight.text import matches_phrases

MAX_LISTED = 100_000
"""Documents of which the latest are chosen; reading the dates of so many takes a second."""
LISTED_STEP = 1e-9
"""Difference between the scores of two documents in a list: it keeps their order and is not shown."""


def describe_filters(filters: Filters) -> str:
    """List the filters that are set, in the syntax of queries, for messages."""
    descriptions = [
        *(f'"{phrase}"' for phrase in filters.phrases),
        *(f'-"{phrase}"' for phrase in filters.without),
        *_alternatives("tag", filters.tags),
        *_alternatives("path", list(map(str, filters.paths))),
        *_alternatives("exclude", list(map(str, filters.exclude))),
        *(f"{key}:{_quoted(value)}" for key, value in filters.where),
        *_alternatives("collection", filters.collections),
        *_alternatives("lang", filters.languages),
        *_alternatives("file", filters.files),
        *_alternatives("author", filters.authors),
        *([f"after:{filters.after}"] if filters.after else []),
        *([f"before:{filters.before}"] if filters.before else []),
        *_alternatives("dated", [f"{first} to {last}" for first, last in filters.dated]),
        *_alternatives(
            "within",
            [f"{collection}/{folder}".rstrip("/") for collection, folder in filters.within],
        ),
        *_alternatives("document", [document.path for document in filters.documents]),
        *([describe_filters(filters.also)] if filters.also else []),
    ]
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
        hits += (Hit(chunk, score, (Why("filters", score),)) for chunk in chunks[:1])
    return tuple(hits)


def _alternatives(name: str, values: Sequence[str]) -> list[str]:
    return [" or ".join(f"{name}:{_quoted(value)}" for value in values)] if values else []


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
    for field in fields(filters):
        value = getattr(filters, field.name)
        if field.name == "also" and value:
            yield from _single_filters(value)
        elif field.name in ("where", "phrases"):
            yield from (_only(field.name, (item,)) for item in value)
        elif value:
            yield _only(field.name, value)


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
