"""How many passages pass filters is counted, or where many documents do told by their part of all."""

from __future__ import annotations

from pathlib import Path

import pytest

from marklight.answer import Filters
from marklight.engines.embedded import filters as embedded_filters
from marklight.engines.embedded.engine import EmbeddedEngine
from marklight.model import Batch
from tests.contracts.builders import entry


@pytest.mark.parametrize(
    "filters, counted, told",
    [
        (Filters(), 10, 10),
        (Filters(paths=("a.md",)), 7, 7),
        (Filters(paths=("a.md", "b.md")), 8, 5),  # two documents of four, of ten passages
        (Filters(exclude=("a.md",)), 3, 8),  # three of four
        (Filters(paths=("none.md",)), 0, 0),
        (Filters(phrases=("pear",)), 7, 7),  # passages are known one by one
        (Filters(without=("pear",)), 3, 3),
    ],
)
def test_of_many_documents_their_part_of_all_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, filters: Filters, counted: int, told: int
) -> None:
    pears = (f"pear {at}" for at in range(7))
    pages = [entry("a.md", *pears), *(entry(f"{name}.md", "plum") for name in "bcd")]
    engine = EmbeddedEngine(tmp_path / "index")
    with engine.writing(1):
        engine.commit(Batch(entries=tuple(pages)))
    with engine.snapshot() as snapshot:
        assert snapshot.metadata.count_matching(filters) == counted
        monkeypatch.setattr(embedded_filters, "MAX_DOCUMENTS_COUNTED", 1)
        assert snapshot.metadata.count_matching(filters) == told
    engine.close()
