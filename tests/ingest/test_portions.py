"""In which portions files are read: the first of a library soon, later ones large."""

from __future__ import annotations

import math

from marklight.ingest.batch import (
    BATCH_BYTES,
    BATCH_FILES,
    SMALL_BATCH_BYTES,
    SMALL_BATCH_FILES,
    batches,
)
from marklight.ingest.discover import ScannedFile
from marklight.ingest.index_diff import IndexDiff, plan
from marklight.model import DocumentId, FileState
from marklight.ports import IndexedFile, no_progress


def look(count: int, size: int, known: int = 0) -> IndexDiff:
    """So many files to read, of a library that has some others already."""
    files = {DocumentId("c", f"{number:05}"): FileState(size, 1) for number in range(count)}
    index = {
        DocumentId("d", f"{number}"): IndexedFile(FileState(1, 1), "", "r")
        for number in range(known)
    }
    return IndexDiff(
        generation=0,
        files={id: ScannedFile(id, file, f"/{id.path}") for id, file in files.items()},
        known=index,
        failed={},
        tried_recipe="",
        plan=plan(files, {}, (), (), "r"),
        unreadable=(),
        rebuild=False,
    )  # fmt: skip


def sizes(found: IndexDiff, until: float | None = None) -> list[int]:
    return [len(batch) for batch in batches(found, no_progress, until)]


def test_the_first_portion_of_a_library_is_small_and_each_after_it_four_times_as_large() -> None:
    growing = [SMALL_BATCH_FILES * 4**step for step in range(2)]
    assert growing == [50, 200]
    assert sizes(look(1500, 1)) == [*growing, BATCH_FILES, BATCH_FILES, 250]
    per_file = SMALL_BATCH_BYTES // 2
    assert sizes(look(100, per_file))[:3] == [2, 8, 20]
    assert max(sizes(look(100, per_file))) == BATCH_BYTES // per_file


def test_where_something_can_be_found_already_all_portions_are_large() -> None:
    assert sizes(look(1100, 1, known=1)) == [BATCH_FILES, BATCH_FILES, 100]


def test_who_has_little_time_gets_small_ones_only_and_one_at_least() -> None:
    assert set(sizes(look(500, 1, known=1), math.inf)) == {SMALL_BATCH_FILES}
    assert sizes(look(500, 1), 0.0) == [SMALL_BATCH_FILES]
