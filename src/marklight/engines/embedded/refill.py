"""Tables that follow from others, made anew where no commit could keep them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from itertools import groupby

from marklight.engines import titles
from marklight.engines.embedded.records import unpacked
from marklight.engines.embedded.session import Row, Session
from marklight.text import vocabulary_fingerprint, vocabulary_terms


def callings(session: Session) -> None:
    """Names of documents and sections, from what documents and passages say."""
    rows = list(stored_callings(session))
    session.run("DELETE FROM callings")
    session.many(INSERT_CALLING, rows)


def concepts(session: Session) -> None:
    """Words with the number of documents that hold them, from the stored texts."""
    counted = stored_concepts(session)
    session.run("DELETE FROM concepts")
    session.many("INSERT INTO concepts VALUES (?, ?)", sorted(counted.items()))
    session.run("UPDATE state SET vocabulary = ?", [vocabulary_fingerprint()])


INSERT_CALLING = "INSERT INTO callings (document, name, first, last, score) VALUES (?, ?, ?, ?, ?)"


def stored_callings(session: Session) -> Iterator[Row]:
    """As `INSERT_CALLING` takes them."""
    passages = session.each(
        "SELECT document, ordinal, headings, merged FROM chunks ORDER BY document"
    )
    for document, group in groupby(passages, key=lambda row: row[0]):
        path, title, aliases = session.all(
            "SELECT path, json_extract(record, '$.title'), json_extract(record, '$.aliases')"
            " FROM documents JOIN contents ON document = row WHERE row = ?",
            [document],
        )[0]
        headed = [
            titles.HeadedPassage(ordinal, unpacked(headings), unpacked(merged))
            for _, ordinal, headings, merged in group
        ]
        for each in titles.title_entries(path, title, json.loads(aliases), headed):
            yield document, *each


def stored_concepts(session: Session) -> Counter[str]:
    """Each word once for every document that holds it."""
    counted: Counter[str] = Counter()
    for (text,) in session.each("SELECT text FROM contents"):
        counted.update(vocabulary_terms(text))
    return counted
