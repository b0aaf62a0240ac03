"""Filters as conditions of Qdrant: collections, folders, tags, metadata pairs, languages, documents and dates.

Globs, authors, phrases and days without a time zone have no equivalent: PostgreSQL evaluates them, and the matching rows become the condition.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from qdrant_client import grpc as api

from marklight.engines.metadata_filters import (
    TAG,
    matching_languages,
    normalize_tag,
    required_pairs,
    time_bounds,
)
from marklight.engines.relational.filters import date_conditions
from marklight.engines.server.qdrant.points import (
    ADDED,
    DATES,
    DOCUMENT,
    LABELS,
    REMOVED,
    document_label,
    folder_label,
    language_label,
    microseconds,
    pair_label,
    point_ids,
)
from marklight.query import Filters

if TYPE_CHECKING:
    from marklight.engines.relational.filters import RowFilter


SECOND = 1_000_000


def is_native(filters: Filters) -> bool:
    """Return true if Qdrant can evaluate these filters without PostgreSQL."""
    other = (
        filters.paths,
        filters.exclude,
        filters.files,
        filters.authors,
        filters.phrases,
        filters.without,
        filters.dated,
        _has_local_days(filters),
    )
    return not any(other) and (not filters.also or is_native(filters.also))


def _has_local_days(filters: Filters) -> bool:
    """Return true if days without a time zone are compared: with dates as written, or with file times."""
    bounds = time_bounds(filters)
    return bounds is not None and bounds.written is not None


def has_dates(filters: Filters) -> bool:
    """Return true if a filter compares dates, which can change without a new passage."""
    own = bool(filters.after or filters.before or filters.dated)
    return own or bool(filters.also and has_dates(filters.also))


def exact_dates(filters: Filters) -> tuple[str, list[str]]:
    """Return the filters on dates as an SQL condition on a document `d`."""
    sql, values = "", []
    for condition, given in date_conditions(filters):
        sql += f" AND {condition}"
        values += given
    if filters.also:
        more, others = exact_dates(filters.also)
        return sql + more, values + others
    return sql, values


def native_filter(filters: Filters, generation: int) -> Any:
    """Return the condition of native filters, for readers of a generation."""
    return api.Filter(must=[*_conditions(filters), *_added(generation)], must_not=_gone(generation))


def row_filter(rows: RowFilter, generation: int) -> Any:
    """Return the condition of rows that PostgreSQL selected."""
    condition = (
        api.Condition(has_id=api.HasIdCondition(has_id=point_ids(rows.rows)))
        if rows.column == "row"
        else _match(DOCUMENT, rows.rows)
    )
    if rows.exclude:
        excluded = [condition] if rows.rows else []
        return api.Filter(must=_added(generation), must_not=[*excluded, *_gone(generation)])
    return api.Filter(must=[condition, *_added(generation)], must_not=_gone(generation))


def document_filter(document: int) -> Any:
    """Return the condition of all passages of a document."""
    return api.Filter(must=[_match(DOCUMENT, [document])])


def rows_filter(rows: Iterable[int]) -> Any:
    """Return the condition of these passages; those that do not exist are no error."""
    return api.Filter(must=[api.Condition(has_id=api.HasIdCondition(has_id=point_ids(rows)))])


def living_filter(generation: int) -> Any:
    """Return the condition of all passages of a generation."""
    return api.Filter(must=_added(generation), must_not=_gone(generation))


def _added(generation: int) -> list[Any]:
    return [_range(ADDED, lte=generation)]


def _gone(generation: int) -> list[Any]:
    return [_range(REMOVED, lte=generation)]


def _conditions(filters: Filters) -> list[Any]:
    """Return the conditions of native filters, all of which must hold."""
    conditions: list[Any] = []

    def any_of(labels: Iterable[int]) -> None:
        conditions.append(_match(LABELS, list(dict.fromkeys(labels))))

    if filters.documents:
        any_of(document_label(*document) for document in filters.documents)
    if filters.collections:
        any_of(folder_label(collection, "") for collection in filters.collections)
    if filters.within:
        any_of(folder_label(collection, folder) for collection, folder in filters.within)
    if filters.tags:
        any_of(pair_label(TAG, normalize_tag(tag)) for tag in filters.tags)
    for pair in required_pairs(filters):
        any_of([pair_label(*pair)])
    if filters.languages:
        any_of(map(language_label, matching_languages(filters)))
    if bounds := time_bounds(filters):
        begin, end = bounds.instants
        # Wider by a second: Qdrant compares them as 64-bit floats. PostgreSQL compares the results exactly.
        limits = {"gte": (begin, -SECOND), "lte": (end, SECOND)}
        conditions.append(
            _range(
                DATES,
                **{key: microseconds(when) + by for key, (when, by) in limits.items() if when},
            )
        )
    if filters.also:
        conditions += _conditions(filters.also)
    return conditions


def _match(key: str, numbers: Sequence[int]) -> Any:
    match = (
        api.Match(integer=numbers[0])
        if len(numbers) == 1
        else api.Match(integers=api.RepeatedIntegers(integers=numbers))
    )
    return api.Condition(field=api.FieldCondition(key=key, match=match))


def _range(key: str, **limits: int) -> Any:
    return api.Condition(field=api.FieldCondition(key=key, range=api.Range(**limits)))
