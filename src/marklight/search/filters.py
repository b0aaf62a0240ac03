"""Filters in words, as a person would have typed them, and whether they are all that was asked for."""

from __future__ import annotations

from marklight.answer import Filters, Query
from marklight.text import query_terms


def certain(query: Query) -> bool:
    """Whether all that passes the filters is what was asked for: the question has no other words than theirs."""
    given = query.filters
    values = (value for _, value in given.where)
    named = (*given.phrases, *given.tags, *given.languages, *values)
    asked = set(query_terms(query.text))
    return bool(asked) and asked <= set(query_terms(" ".join(named)))


def in_words(filters: Filters) -> str:
    """Each filter that is in force, so that nobody has to guess why nothing was found."""
    said = [
        *(f'"{each}"' for each in filters.phrases),
        *(f'without "{each}"' for each in filters.without),
        *_any("tag", filters.tags),
        *_any("path", filters.paths),
        *_any("not in", filters.exclude),
        *(f"{key} {value}" for key, value in filters.where),
        *_any("collection", filters.collections),
        *_any("language", filters.languages),
        *_any("file", filters.files),
        *_any("author", filters.authors),
        *([f"after {filters.after}"] if filters.after else []),
        *([f"before {filters.before}"] if filters.before else []),
        *_any("within", [f"{owner}/{folder}".rstrip("/") for owner, folder in filters.within]),
        *_any("document", [each.path for each in filters.documents]),
        *([in_words(filters.also)] if filters.also else []),
    ]
    return ", ".join(said)


def _any(name: str, values: tuple[str, ...] | list[str]) -> list[str]:
    return [f"{name} {' or '.join(values)}"] if values else []
