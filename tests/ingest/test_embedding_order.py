"""Order of embedding: passages that a query or a recent edit makes likely to be searched come first."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import marklight
from marklight.ingest.embedding import WINDOW
from marklight.models.fake import FakeEmbedder
from tests.making import library, write

NOTES = WINDOW + 100


class Recorder:
    """The fake model, with the first line of each text that it embeds: the title of the passage."""

    def __init__(self) -> None:
        self.titles: list[str] = []
        self._model = FakeEmbedder()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    def embed_passages(self, texts: list[str]) -> Any:
        self.titles += [text.partition("\n")[0] for text in texts if "\n" in text]
        return self._model.embed_passages(texts)


def vault(folder: Path) -> Path:
    """Write notes, the first one modified last."""
    write(folder, {f"{number}.md": f"# Note {number}\n\nText {number}." for number in range(NOTES)})
    for number in range(NOTES):
        os.utime(folder / f"{number}.md", (1e9 - number, 1e9 - number))
    return folder


def index_text(lib: marklight.Library) -> None:
    with lib.engine.writing(10):
        lib.ingest.index_text(lib.ingest.compare())


def embedded(lib: marklight.Library) -> list[str]:
    model: Any = Recorder()
    replace(lib.ingest, embedder=model).embed_missing()
    return list(model.titles)


def test_recently_modified_documents_are_embedded_first(tmp_path: Path) -> None:
    with library(vault(tmp_path)) as lib:
        index_text(lib)
        assert embedded(lib) == [f"Note {number}" for number in range(NOTES)]


def test_an_edited_document_is_embedded_before_those_that_have_waited(tmp_path: Path) -> None:
    with library(vault(tmp_path)) as lib:
        index_text(lib)
        write(tmp_path, {f"{NOTES - 1}.md": "# Edited\n\nAnother text."})
        index_text(lib)
        assert embedded(lib)[:2] == ["Edited", "Note 0"]


def test_passages_that_a_query_matched_are_embedded_before_those_of_earlier_ones(
    tmp_path: Path,
) -> None:
    with library(vault(tmp_path)) as lib:
        index_text(lib)
        for number in (NOTES - 1, NOTES - 2):
            answer = lib.search(f"note {number}", mode="keyword", refresh=False, min_confidence=0)
            lib.ingest.prefer([answer.hits[0].chunk.id])
        assert embedded(lib)[:3] == [f"Note {NOTES - 2}", f"Note {NOTES - 1}", "Note 0"]


def test_the_report_of_a_run_is_in_order_of_the_paths(tmp_path: Path) -> None:
    with library(vault(tmp_path)) as lib:
        added = lib.index().added
        assert len(added) == NOTES
        assert list(added) == sorted(added)
