"""Evaluate filters before ranking: the rows of matching documents or passages, phrases in their text, documents with terms."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from marklight.engines.metadata_filters import (
    AUTHOR,
    DATE,
    FILES,
    TAG,
    day_range,
    globs_by_collection,
    matching_languages,
    normalize_tag,
    required_pairs,
    time_bounds,
)
from marklight.engines.relational import decode_texts, raises_damaged
from marklight.engines.relational.snapshot import document_languages
from marklight.lazy import dataclass
from marklight.model import DocumentId
from marklight.ports import DocumentMatch, LexicalReader
from marklight.query import Filters, PathPattern
from marklight.text.analyzer import ENGLISH, fold, has_words, matches_phrases, phrase_terms

if TYPE_CHECKING:
    from marklight.engines.relational import SqlSession
    from marklight.engines.relational.snapshot import RelationalSnapshot


@dataclass(frozen=True, slots=True)
class RowFilter:
    """Rows that match, or with `exclude` those that do not; of documents, or of single passages."""

    column: str
    """`document` or `row`."""
    rows: list[int]
    exclude: bool = False

    @property
    def matches_nothing(self) -> bool:
        return not self.rows and not self.exclude

    def condition(self) -> tuple[str, list[Any]]:
        """Return the SQL condition on a passage `c`, with its parameters."""
        if self.exclude and not self.rows:
            return "true", []
        operator = "NOT IN" if self.exclude else "IN"
        return f"c.{self.column} {operator} (SELECT value FROM integers(?) i)", [self.rows]


def sql_condition(rows: RowFilter | None) -> tuple[str, list[Any]]:
    """Return the SQL condition on a passage `c`; None matches all."""
    return rows.condition() if rows else ("true", [])


class RowReader(LexicalReader, Protocol):
    """Keyword search that also returns rows: candidates of phrase filters, and all passages with a term."""

    def rows_with_terms(self, terms: Sequence[str], rows: RowFilter | None) -> Sequence[int]:
        """Return the rows of all passages with all of these terms in one field; some may be deleted."""

    def rows_by_term(
        self, terms: Sequence[str], field: str, rows: RowFilter | None
    ) -> Mapping[str, Sequence[int]]:
        """Return the rows of all passages with each of these terms in a field; some may be deleted."""


@raises_damaged
def _by_metadata(session: SqlSession, filters: Filters) -> RowFilter | None:
    """Return the rows that match the filters on documents and languages; None if all do."""
    conditions, values = _conditions(filters)
    languages = [matching_languages(part) for part in filters.parts() if part.languages]
    if not conditions and not languages:
        return None
    documents = f"SELECT d.row FROM documents d WHERE {' AND '.join(conditions) or 'true'}"
    if languages:
        written_in = (
            " AND c.row IN (SELECT l.chunk FROM languages l"
            " WHERE l.language IN (SELECT value FROM texts(?) t))"
        )
        rows = session.all(
            f"SELECT c.row FROM chunks c WHERE c.document IN ({documents})"
            + written_in * len(languages),
            [*values, *languages],
        )
        return RowFilter("row", [row for (row,) in rows])
    matching = {row for (row,) in session.all(documents, values)}
    if 2 * len(matching) <= session.value("SELECT documents FROM state"):
        return RowFilter("document", sorted(matching))
    # The shorter list makes the faster query.
    every = session.all("SELECT row FROM documents")
    return RowFilter("document", [row for (row,) in every if row not in matching], exclude=True)


def _conditions(filters: Filters) -> tuple[list[str], list[Any]]:
    conditions: list[str] = []
    values: list[Any] = []

    def add(condition: str, *given: Any) -> None:
        conditions.append(condition)
        values.extend(given)

    if filters.documents:
        add(
            "d.row IN (SELECT x.row FROM document_ids(?) j CROSS JOIN documents x"
            " ON x.path = j.path AND x.collection = j.collection)",
            list(filters.documents),
        )
    if filters.collections:
        add("d.collection IN (SELECT value FROM texts(?) t)", list(filters.collections))
    if filters.within:
        # "0" is the character after "/", so the range contains the paths that start with the folder.
        inside = "(d.collection = ? AND d.path >= ? AND d.path < ?)"
        parts = [inside if folder else "d.collection = ?" for _, folder in filters.within]
        given = [
            (owner, f"{folder}/", f"{folder}0") if folder else (owner,)
            for owner, folder in filters.within
        ]
        add(f"({' OR '.join(parts)})", *(value for bounds in given for value in bounds))
    if filters.paths:
        add(*_path_condition(filters.paths))
    if filters.exclude:
        condition, *given_globs = _path_condition(filters.exclude)
        add(f"NOT {condition}", *given_globs)
    has_pair = "d.row IN (SELECT document FROM metadata WHERE key = ? AND value"
    if filters.tags:
        tags = [normalize_tag(tag) for tag in filters.tags]
        add(f"{has_pair} IN (SELECT value FROM texts(?) t))", TAG, tags)
    for key, value in required_pairs(filters):
        add(f"{has_pair} = ?)", key, value)
    # In lower case and without accents, as the stored pairs are.
    files = [glob.lower() for glob in filters.files]
    authors = [fold(name) for name in filters.authors]
    if files:
        # Each path is compared once, however many commits changed it: without the LIMIT, SQLite would
        # compare it for each of them.
        add(
            "d.row IN (SELECT document FROM metadata WHERE key = ? AND value IN (SELECT p.value FROM"
            " (SELECT DISTINCT value FROM metadata WHERE key = ? LIMIT 9223372036854775807) p"
            " WHERE any_glob(p.value, ?)))",
            *(FILES, FILES, files),
        )
    if authors:
        add(
            "d.row IN (SELECT document FROM metadata WHERE key = ? AND value IN (SELECT p.value FROM"
            " (SELECT DISTINCT value FROM metadata WHERE key = ? LIMIT 9223372036854775807) p"
            " JOIN texts(?) j"
            " ON instr(p.value, j.value) > 0))",
            *(AUTHOR, AUTHOR, authors),
        )
    for condition, given_dates in date_conditions(filters):
        add(condition, *given_dates)
    if filters.also:
        others, given_values = _conditions(filters.also)
        conditions += others
        values += given_values
    return conditions, values


def _path_condition(patterns: Sequence[PathPattern]) -> list[Any]:
    """Return the SQL condition that a pattern matches the path of a document `d`, and its parameters."""
    conditions: list[str] = []
    values: list[Any] = []
    for collection, globs in globs_by_collection(patterns).items():
        if collection is None:
            conditions.append("any_glob(d.path, ?)")
        else:
            conditions.append("(d.collection = ? AND any_glob(d.path, ?))")
            values.append(collection)
        values.append(globs)
    return [f"({' OR '.join(conditions)})", *values]


_HAS_DATE = "substr(d.date, 1, 1) BETWEEN '0' AND '9'"
_HAS_ZONE = (
    "(substr(d.date, length(d.date), 1) = 'Z' OR (length(d.date) > 16"
    " AND substr(d.date, length(d.date) - 5, 1) IN ('+', '-')))"
)


def date_conditions(filters: Filters) -> Iterator[tuple[str, list[str]]]:
    """Yield the filters on dates as SQL conditions on a document `d`: on its own date as written, else on its timestamp."""
    if bounds := time_bounds(filters):
        instants, values = _range("d.timestamp", bounds.instants)
        if bounds.written is None:
            yield instants, values
        else:
            written, given = _range("d.date", bounds.written)
            yield (
                f"CASE WHEN {_HAS_DATE} THEN ({written} OR ({_HAS_ZONE} AND {instants}))"
                f" ELSE {instants} END",
                [*given, *values, *values],
            )
    if filters.dated:
        conditions: list[str] = []
        parameters: list[str] = []
        for bounds in (day_range(*days) for days in filters.dated):
            written, given = _range("value", bounds.written or bounds.instants)
            instants, values = _range("d.timestamp", bounds.instants)
            conditions.append(
                f"d.row IN (SELECT document FROM metadata WHERE key = ? AND {written})"
                f" OR (CASE WHEN {_HAS_DATE} THEN false ELSE {instants} END)"
            )
            parameters += [DATE, *given, *values]
        yield f"({' OR '.join(conditions)})", parameters


def _range(column: str, bounds: tuple[str | None, str | None]) -> tuple[str, list[str]]:
    """Return the condition that a column is in a half-open range, with its values."""
    begin, end = bounds
    conditions = [f"{column} >= ?"] * bool(begin) + [f"{column} < ?"] * bool(end)
    return f"({' AND '.join(conditions)})", [value for value in bounds if value]


def matching_rows(snapshot: RelationalSnapshot, filters: Filters) -> RowFilter | None:
    """Return the rows that match the filters, with all required phrases and none of the excluded ones; None if all do."""
    session, parts = snapshot.session, filters.parts()
    rows = _by_metadata(session, filters)
    phrases = [phrase for part in parts for phrase in part.phrases if has_words(phrase)]
    without = [phrase for part in parts for phrase in part.without if has_words(phrase)]
    if rows and rows.matches_nothing:
        return rows
    if phrases:
        passages = _texts_with_terms(snapshot, phrases, rows)
        matching = [row for row, texts in passages if matches_phrases(phrases, without, texts)]
        return RowFilter("row", matching)
    if not without:
        return rows
    excluded = {
        row
        for phrase in without
        for row, texts in _texts_with_terms(snapshot, [phrase], rows)
        if matches_phrases([phrase], [], texts)
    }
    if rows is None:
        return RowFilter("row", sorted(excluded), exclude=True)
    condition, values = sql_condition(rows)
    every = session.all(f"SELECT c.row FROM chunks c WHERE {condition}", values)
    return RowFilter("row", [row for (row,) in every if row not in excluded])


def _texts_with_terms(
    snapshot: RelationalSnapshot, phrases: Sequence[str], rows: RowFilter | None
) -> Iterator[tuple[int, list[str]]]:
    """Yield the passages with all terms of the phrases, and their texts: no others are read."""
    languages = {ENGLISH, *document_languages(snapshot.session)}
    for phrase in phrases:
        # Each phrase narrows the rows in which the next is searched.
        every = {tuple(phrase_terms(phrase, language)) for language in languages}
        if not (rows and rows.matches_nothing) and all(every):
            candidates = {
                row for terms in every for row in snapshot.lexical.rows_with_terms(terms, rows)
            }
            rows = RowFilter("row", sorted(candidates))
    condition, values = sql_condition(rows)
    for row, text, title, headings, merged in snapshot.session.each(
        f"SELECT c.row, PASSAGE_TEXT, c.title, c.headings, c.merged FROM chunks c WHERE {condition}",
        values,
    ):
        yield row, [text, title, *decode_texts(headings), *decode_texts(merged)]


def documents_with_terms(
    snapshot: RelationalSnapshot, groups: Sequence[Collection[str]], field: str, filters: Filters
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
        by_term = snapshot.lexical.rows_by_term(terms, field, rows)
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
    for document, places in passages.items():
        union = 0
        for _, row in places:
            union |= held[row]
        if union == everything:
            # The passage with the most groups; of equals the first in the document.
            best[min(places, key=lambda place: (-held[place[1]].bit_count(), place[0]))[1]] = (
                document
            )
    return [
        (collection, path, len(passages[document]), id)
        for collection, path, document, id in snapshot.session.all(
            "SELECT d.collection, d.path, d.row, c.id FROM integers(?) i"
            " CROSS JOIN chunks c ON c.row = i.value JOIN documents d ON d.row = c.document",
            [list(best)],
        )
    ]
