"""Counts that every commit keeps, so that asking for them costs the same in any library."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from marklight.engines.embedded.session import Session, json_list
from marklight.model import Batch

ORPHAN = "NOT EXISTS (SELECT 1 FROM chunks c WHERE c.digest = vectors.digest)"
"""True of a vector that no passage uses."""

COUNTERS = (
    ("state", "documents", "(SELECT count(*) FROM documents)"),
    ("state", "chunks", "(SELECT count(*) FROM chunks)"),
    ("state", "waste", f"(SELECT count(*) FROM vectors WHERE {ORPHAN})"),
    (
        "models",
        "embedded",
        "(SELECT count(*) FROM chunks c JOIN vectors v ON v.digest = c.digest"
        " WHERE v.model = models.row)",
    ),
)
"""Each counter with what it must be."""


def count_embedded(session: Session, sign: int, which: str, values: Sequence[object]) -> None:
    """Passages that come or leave count for every model that has their vector."""
    if session.value("SELECT 1 FROM models") is None:
        return
    for model, count in session.all(
        "SELECT v.model, count(*) FROM chunks c CROSS JOIN vectors v ON v.digest = c.digest"
        f" WHERE {which} GROUP BY v.model",
        values,
    ):
        session.run(
            "UPDATE models SET embedded = embedded + ? WHERE row = ?", [sign * count, model]
        )


@contextmanager
def counting_waste(session: Session, batch: Batch) -> Iterator[None]:
    """Keep the count of unused vectors over a commit, by the texts that come and leave and no others."""
    touched = {chunk.digest for entry in batch.entries for chunk in entry.chunks}
    touched.update(batch.vectors.digests if batch.vectors else ())
    for id in (*batch.removed, *(entry.document.id for entry in batch.entries)):
        leaving = session.all(
            "SELECT c.digest FROM documents d JOIN chunks c ON c.document = d.row"
            " WHERE d.collection = ? AND d.path = ?",
            id,
        )
        touched.update(digest for (digest,) in leaving)
    unused = (
        "SELECT count(*) FROM json_each(?) t CROSS JOIN vectors ON vectors.digest = t.value"
        f" WHERE {ORPHAN}"
    )
    digests = [json_list(touched)]
    before = session.value(unused, digests)
    yield
    after = session.value(unused, digests)
    session.run("UPDATE state SET waste = waste + ?", [after - before])
