"""A history read into an engine, and what is in it afterwards."""

from __future__ import annotations

from pathlib import Path

from marklight import engines
from marklight.ingest.history.pipeline import CommitIngest
from marklight.ingest.history.repository import find
from marklight.model import Document, DocumentId
from marklight.ports import Engine
from marklight.report import Report

LINES = 200


def history(folder: Path, engine: Engine | None = None, lines: int = LINES) -> CommitIngest:
    found = find(folder)
    assert found
    return CommitIngest(engine or engines.open("memory:"), None, {"all": found}, lines)


def read(kept: CommitIngest) -> Report:
    with kept.engine.writing(0):
        return kept.index_text()


def documents(kept: CommitIngest) -> dict[str, Document]:
    with kept.engine.snapshot() as snapshot:
        found = (snapshot.documents.get(id) for id in snapshot.documents.files())
        return {each.title: each for each in found if each}


def texts(kept: CommitIngest, hash: str) -> list[str]:
    with kept.engine.snapshot() as snapshot:
        return [each.text for each in snapshot.documents.chunks_of(DocumentId("all", hash))]
