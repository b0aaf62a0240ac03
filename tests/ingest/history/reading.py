"""Index the commits of a repository and return the indexed documents."""

from __future__ import annotations

from pathlib import Path

from marklight.ingest.git import find
from marklight.ingest.history import CommitIngest
from marklight.model import Document, DocumentId
from marklight.ports import Engine
from marklight.report import Report
from tests.oracle import MemoryEngine

LINES = 200


def history(folder: Path, engine: Engine | None = None, lines: int = LINES) -> CommitIngest:
    found = find(folder)
    assert found
    return CommitIngest(engine or MemoryEngine(), None, {"all": found}, lines)


def read(ingest: CommitIngest) -> Report:
    with ingest.engine.writing(0):
        return ingest.index_text()


def documents(ingest: CommitIngest) -> dict[str, Document]:
    with ingest.engine.snapshot() as snapshot:
        found = (snapshot.documents.get(id) for id in snapshot.documents.files())
        return {each.title: each for each in found if each}


def texts(ingest: CommitIngest, hash: str) -> list[str]:
    with ingest.engine.snapshot() as snapshot:
        return [each.text for each in snapshot.documents.chunks_of(DocumentId("all", hash))]
