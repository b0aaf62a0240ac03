"""Recompute counters and derived tables that do not match the documents: dates, titles, terms and edges."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import groupby
from typing import TYPE_CHECKING

from marklight.engines import names
from marklight.engines.metadata_filters import timestamp
from marklight.engines.relational import links, vocabulary
from marklight.engines.relational.records import decode_texts
from marklight.engines.relational.write import TITLE_COLUMNS
from marklight.text import vocabulary_fingerprint

if TYPE_CHECKING:
    from marklight.engines.relational.session import Row, Session

UNUSED = "NOT EXISTS (SELECT 1 FROM chunks c WHERE c.digest = vectors.digest)"
"""SQL condition: no passage uses the vector."""

_COUNTERS = (
    ("state", "documents", "(SELECT count(*) FROM documents)"),
    ("state", "chunks", "(SELECT count(*) FROM chunks)"),
    ("state", "boilerplate_chunks", "(SELECT count(*) FROM chunks WHERE digest = '')"),
    ("state", "unused_vectors", f"(SELECT count(*) FROM vectors WHERE {UNUSED})"),
    (
        "models",
        "embedded",
        "(SELECT count(*) FROM chunks c JOIN vectors v ON v.digest = c.digest"
        " WHERE v.model = models.row)",
    ),
)
"""Table and column of each counter, with the query for its value."""


def repair_tables(session: Session) -> list[str]:
    """Recompute what is wrong and return the findings; run in one transaction that no other writer disturbs."""
    findings = []
    for table, column, truth in _COUNTERS:
        if session.run(f"UPDATE {table} SET {column} = {truth} WHERE {column} <> {truth}"):
            findings.append(f"The counter `{column}` was wrong and has been corrected")
    if _repair_dates(session):
        findings.append("Dates of documents were wrong and have been recomputed")
    rebuilt = list(
        filter(None, [_repair_titles(session), _repair_terms(session), _repair_edges(session)])
    )
    if findings or rebuilt:
        # A new generation, so that no reader continues with cached values.
        session.run("UPDATE state SET generation = generation + 1")
    return [*findings, *rebuilt]


def _repair_dates(session: Session) -> int:
    """Recompute the dates by which documents are sorted and filtered; return how many were wrong."""
    wrong = [
        (right, row)
        for row, date, mtime_ns, stored in session.all(
            "SELECT row, date, mtime_ns, timestamp FROM documents"
        )
        if (right := timestamp(date, mtime_ns)) != stored
    ]
    session.many("UPDATE documents SET timestamp = ? WHERE row = ?", wrong)
    return len(wrong)


def _repair_titles(session: Session) -> str:
    rows = list(_title_rows(session))
    if sorted(session.all(f"SELECT {TITLE_COLUMNS} FROM titles")) == sorted(rows):
        return ""
    session.run("DELETE FROM titles")
    session.insert("titles", TITLE_COLUMNS, rows)
    return "The table of titles and headings was wrong and has been rebuilt"


def _title_rows(session: Session) -> Iterator[Row]:
    """Yield the titles and headings of the stored documents, with `TITLE_COLUMNS`."""
    passages = session.each(
        "SELECT document, ordinal, headings, merged FROM chunks WHERE digest <> '' ORDER BY document"
    )
    for document, group in groupby(passages, key=lambda row: row[0]):
        path, record = session.all(
            "SELECT path, record FROM documents JOIN contents ON document = row WHERE row = ?",
            [document],
        )[0]
        stored = json.loads(record)
        headed = [
            names.HeadedPassage(ordinal, decode_texts(headings), decode_texts(merged))
            for _, ordinal, headings, merged in group
        ]
        for row in names.title_entries(path, stored["title"], stored["aliases"], headed):
            yield document, *row


def _repair_terms(session: Session) -> str:
    if session.value("SELECT vocabulary FROM state") != vocabulary_fingerprint():
        return ""  # counted by another version: the next commit counts them again
    if dict(session.all("SELECT term, documents FROM terms")) == vocabulary.count_terms(session):
        return ""
    vocabulary.recount(session)
    return "Document frequencies of the vocabulary were wrong and have been recounted"


def _repair_edges(session: Session) -> str:
    if not links.is_up_to_date(session):
        return ""  # not in use before they are resolved again
    if set(session.all("SELECT source, target FROM edges")) == links.resolved_edges(session):
        return ""
    links.rebuild(session)
    return "The table of links between documents was wrong and has been rebuilt"
