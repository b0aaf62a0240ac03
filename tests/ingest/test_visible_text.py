"""The visible text of real documents is that of markdown-it's own HTML; `benchmarks.rendering` compares all."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.ingest.visible_text import differences, read_document

DOCUMENTS = 25
"""Of each corpus."""


@pytest.mark.parametrize(
    "corpus", ["blue-book", "fastapi", "fastapi-ja", "keps", "kubernetes", "tldr"]
)
def test_real_documents_show_the_text_of_another_renderer(corpus: str, eval_root: Path) -> None:
    paths = sorted((eval_root / "corpora" / corpus).rglob("*.md"))
    if not paths:
        pytest.skip(f"no documents of {corpus}")
    for path in paths[:: max(1, len(paths) // DOCUMENTS)]:
        unexplained = [found for found, reason in differences(read_document(path)) if not reason]
        assert unexplained == [], path
