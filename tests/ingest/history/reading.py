"""A history read into an engine, and what is in it afterwards."""

from __future__ import annotations

from pathlib import Path

from marklight import engines
from marklight.ingest.history.pipeline import History
from marklight.ingest.history.repository import find
from marklight.model import Document, DocumentId
from marklight.ports import Engine
from marklight.report import Report

LINES = 200


def history(folder: Path, engine: Engine | None = None, lines: int = LINES) -> History:
    found = find(folder)
    assert found
    return History(engine or engines.open("memory:"), None, {"all": found}, lines)


def read(kept: History) -> Report:
    with kept.engine.writing(0):
        return kept.text()


def documents(kept: History) -> dict[str, Document]:
    with kept.engine.snapshot() as snapshot:
        found = (snapshot.documents.get(id) for id in snapshot.documents.files())
        return {each.title: each for each in found if each}


def texts(kept: History, hash: str) -> list[str]:
    with kept.engine.snapshot() as snapshot:
        return [each.text for each in snapshot.documents.chunks_of(DocumentId("all", hash))]
