"""The words of a library with how many documents hold them: the commonest are its vocabulary."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from marklight.engines.embedded import refill
from marklight.engines.embedded.session import Session, json_list
from marklight.model import Entry
from marklight.ports import VOCABULARY_SIZE
from marklight.text import vocabulary_fingerprint, vocabulary_terms

VOCABULARY = (
    f"SELECT term, documents FROM concepts ORDER BY documents DESC, term LIMIT {VOCABULARY_SIZE}"
)


@contextmanager
def counting(session: Session, leaving: Iterable[int], entering: Sequence[Entry]) -> Iterator[None]:
    """Keep the counts over a commit, by the texts that come and leave and no others."""
    change: Counter[str] = Counter()
    known = session.value("SELECT vocabulary FROM state") == vocabulary_fingerprint()
    if known:
        for (text,) in session.each(
            "SELECT text FROM contents WHERE document IN (SELECT value FROM json_each(?))",
            [json_list(leaving)],
        ):
            change.subtract(vocabulary_terms(text))
        for entry in entering:
            change.update(vocabulary_terms(entry.document.text))
    yield
    if not known:
        # Words were found in another way: what was added then cannot be taken away now.
        refill.concepts(session)
        return
    session.many(
        "INSERT INTO concepts VALUES (?, ?)"
        " ON CONFLICT (term) DO UPDATE SET documents = documents + excluded.documents",
        sorted(each for each in change.items() if each[1]),
    )
    session.run("DELETE FROM concepts WHERE documents <= 0")


def counts(session: Session, terms: Iterable[str]) -> Mapping[str, int]:
    """How many documents hold each of these."""
    return dict(
        session.all(
            "SELECT c.term, c.documents FROM json_each(?) j CROSS JOIN concepts c"
            " ON c.term = j.value",
            [json_list(terms)],
        )
    )


def like(session: Session, start: str, least: int, most: int, limit: int) -> Mapping[str, int]:
    """The commonest that begin so, of so many letters."""
    return dict(
        session.all(
            "SELECT term, documents FROM concepts WHERE term >= ? AND term < ?"
            " AND length(term) BETWEEN ? AND ? ORDER BY documents DESC, term LIMIT ?",
            [start, start + chr(sys.maxunicode), least, most, max(0, limit)],
        )
    )


def unembedded(session: Session, model: str, limit: int) -> list[str]:
    """Words of the vocabulary without a vector, the commonest first."""
    found = session.all(
        f"SELECT w.term FROM ({VOCABULARY}) w WHERE NOT EXISTS (SELECT 1 FROM concept_vectors v"
        " WHERE v.model = (SELECT row FROM models WHERE name = ?) AND v.term = w.term)"
        " ORDER BY w.documents DESC, w.term LIMIT ?",
        [model, max(0, limit)],
    )
    return [term for (term,) in found]
