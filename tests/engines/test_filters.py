"""The number of matching passages is counted, or estimated where many documents match."""

from __future__ import annotations

from pathlib import Path

import pytest

from marklight.engines.embedded.engine import EmbeddedEngine
from marklight.engines.relational import snapshot as relational_snapshot
from marklight.model import Batch
from marklight.query import Filters
from tests.contracts.builders import entry


@pytest.mark.parametrize(
    "filters, counted, estimated",
    [
        (Filters(), 10, 10),
        (Filters(paths=("a.md",)), 7, 7),
        (Filters(paths=("a.md", "b.md")), 8, 5),  # two documents of four, of ten passages
        (Filters(exclude=("a.md",)), 3, 8),  # three of four
        (Filters(paths=("none.md",)), 0, 0),
        (Filters(phrases=("pear",)), 7, 7),  # phrase filters match single passages
        (Filters(without=("pear",)), 3, 3),
    ],
)
def test_the_number_of_matching_passages_is_estimated_for_many_documents(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, filters: Filters, counted: int, estimated: int
) -> None:
    pears = (f"pear {at}" for at in range(7))
    pages = [entry("a.md", *pears), *(entry(f"{name}.md", "plum") for name in "bcd")]
    engine = EmbeddedEngine(tmp_path / "index")
    with engine.writing(1):
        engine.commit(Batch(entries=tuple(pages)))
    with engine.snapshot() as snapshot:
        assert snapshot.metadata.count_matching(filters) == counted
        monkeypatch.setattr(relational_snapshot, "MAX_DOCUMENTS_COUNTED", 1)
        assert snapshot.metadata.count_matching(filters) == estimated
    engine.close()
