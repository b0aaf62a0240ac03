"""Find all documents that contain the terms of a query: rows by term from the lexical index, grouped by document."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from marklight.engines.relational.filters import sql_condition
from marklight.model import DocumentId
from marklight.ports import DocumentMatch
from marklight.query import Filters

if TYPE_CHECKING:
    from marklight.engines.relational.snapshot import RelationalSnapshot


def documents_with_terms(
    snapshot: RelationalSnapshot,
    groups: Sequence[Collection[str]],
    field: str,
    filters: Filters,
) -> Mapping[DocumentId, DocumentMatch]:
    """Return the documents whose passages together have a term of every group; without groups, all that match the filters."""
    rows = snapshot.row_filter(filters)
    if rows and rows.matches_nothing:
        return {}
    if not groups:
        condition, values = sql_condition(rows)
        matching = snapshot.session.all(
            "SELECT d.collection, d.path, m.passages, c.id FROM (SELECT c.document, count(*) AS passages,"
            f" min(c.ordinal) AS first FROM chunks c WHERE {condition} GROUP BY c.document) m"
            " JOIN documents d ON d.row = m.document"
            " JOIN chunks c ON c.document = m.document AND c.ordinal = m.first",
            values,
        )
    else:
        terms = list(dict.fromkeys(term for group in groups for term in group))
        by_term = snapshot.rows_by_term(terms, field, rows)
        by_group = [set[int]().union(*(by_term[term] for term in group)) for group in groups]
        matching = _matching(snapshot, by_group) if all(by_group) else []
    return {
        DocumentId(collection, path): DocumentMatch(passages, best)
        for collection, path, passages, best in matching
    }


def _matching(
    snapshot: RelationalSnapshot, by_group: Sequence[Iterable[int]]
) -> list[tuple[str, str, int, str]]:
    """Return collection, path, number of passages and best passage of each document with a row of every group."""
    held: dict[int, int] = {}
    for number, rows in enumerate(by_group):
        for row in rows:
            held[row] = held.get(row, 0) | 1 << number
    passages: dict[int, list[tuple[int, int]]] = {}
    for row, document, ordinal in snapshot.session.all(
        "SELECT c.row, c.document, c.ordinal FROM integers(?) i CROSS JOIN chunks c ON c.row = i.value",
        [list(held)],
    ):
        passages.setdefault(document, []).append((ordinal, row))
    everything = (1 << len(by_group)) - 1
    best: dict[int, int] = {}
    for document, own in passages.items():
        union = 0
        for _, row in own:
            union |= held[row]
        if union == everything:
            # The passage with the most groups; of equals the first in the document.
            best[min(own, key=lambda each: (-held[each[1]].bit_count(), each[0]))[1]] = document
    return [
        (collection, path, len(passages[document]), id)
        for collection, path, document, id in snapshot.session.all(
            "SELECT d.collection, d.path, d.row, c.id FROM integers(?) i"
            " CROSS JOIN chunks c ON c.row = i.value JOIN documents d ON d.row = c.document",
            [list(best)],
        )
    ]
