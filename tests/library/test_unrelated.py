"""Level of unrelated queries: measured when a library is embedded, used by abstention, explained."""

from __future__ import annotations

from math import log
from pathlib import Path

import pytest

import marklight
from marklight import models
from marklight.library import Library
from marklight.model import Batch
from marklight.search.unrelated import SIZE, level_key, stored_level, unrelated_queries
from tests.making import write

TEXT = "# Note {0}\n\nThe backup of machine {0} runs at {0} o'clock and is kept for {0} days.\n"


def level(lib: Library) -> dict[str, float]:
    with lib.engine.snapshot() as snapshot:
        return dict(stored_level(snapshot, models.load().fingerprint))


def test_the_level_is_measured_with_the_vectors_and_again_when_the_library_has_grown_by_half(
    tmp_path: Path,
) -> None:
    notes = {f"{number}.md": TEXT.format(number) for number in range(10)}
    with marklight.open(write(tmp_path, notes)) as lib:
        lib.index()
        first = level(lib)
        assert first[SIZE] == pytest.approx(log(1 + 10))
        # Unrelated queries are nearer than orthogonal vectors, and have few of the terms.
        assert 2 < first["best_cosine"] < 8
        assert first["best_coverage"] < 0.5
        write(tmp_path, {f"{number}.md": TEXT.format(number) for number in range(10, 14)})
        lib.index()
        assert level(lib) == first
        write(tmp_path, {f"{number}.md": TEXT.format(number) for number in range(14, 20)})
        lib.index()
        assert level(lib)[SIZE] == pytest.approx(log(1 + 20))


def test_abstention_is_explained_by_the_level_and_works_without_one(tmp_path: Path) -> None:
    notes = {f"{number}.md": TEXT.format(number) for number in range(10)}
    key = level_key(models.load().fingerprint)
    with marklight.open(write(tmp_path, notes)) as lib:
        lib.index()
        query = "when is the backup of my computer made"
        [answer] = [
            why for why in lib.search(query, explain=True).hits[0].why if why.stage == "answer"
        ]
        assert "excess_best_cosine" in answer.inputs
        assert not lib.search("how do I prune roses in late winter").hits
        for damaged in ("", "{", '{"best_cosine": "x"}', "[1]"):
            with lib.engine.writing(1):
                lib.engine.commit(Batch(manifest={key: damaged}))
            assert level(lib) == {}
            assert lib.search(query, refresh=False).hits
            assert not lib.search("how do I prune roses in late winter", refresh=False).hits


def test_unrelated_queries_are_not_those_that_evaluation_counts_as_off_topic() -> None:
    from marklight.eval.dataset import off_topic_queries

    assert len(unrelated_queries()) == 65
    assert not {*unrelated_queries()} & {*off_topic_queries()}
