"""Changed files are read in batches: small first ones, large later ones."""

from __future__ import annotations

import math
import pickle
from pathlib import Path

from marklight.ingest.discover import Scan, ScannedFile, ScannedFiles
from marklight.ingest.file_batch import (
    BATCH_BYTES,
    BATCH_FILES,
    SMALL_BATCH_BYTES,
    SMALL_BATCH_FILES,
    FileBatch,
    batches,
)
from marklight.ingest.pipeline import IndexDiff, plan
from marklight.ingest.recipe import PARSERS
from marklight.ingest.scan_record import ScanRecord
from marklight.model import DocumentId, FileState, digest
from marklight.ports import IndexedFile, no_progress
from marklight.report import Report


def diff(count: int, size: int, known: int = 0) -> IndexDiff:
    """Return a diff with `count` files to read, of a library with `known` other documents."""
    files = ScannedFiles({"c": "/"})
    for number in range(count):
        files.add(DocumentId("c", f"{number:05}"), FileState(size, 1))
    index = {
        DocumentId("d", f"{number}"): IndexedFile(FileState(1, 1), "", "r")
        for number in range(known)
    }
    return IndexDiff(
        generation=0,
        version="",
        scan=Scan(ScanRecord(), files),
        indexed=index,
        failed={},
        tried_recipe="",
        plan=plan(files, {}, (), (), "r"),
        unreadable=(),
        rebuild=False,
    )  # fmt: skip


def sizes(index_diff: IndexDiff, until: float | None = None) -> list[int]:
    return [len(batch) for batch in batches(index_diff, no_progress, until)]


def test_the_first_batch_is_small_and_each_later_one_four_times_as_large() -> None:
    growing = [SMALL_BATCH_FILES * 4**step for step in range(2)]
    assert growing == [50, 200]
    assert sizes(diff(1500, 1)) == [*growing, BATCH_FILES, BATCH_FILES, 250]
    per_file = SMALL_BATCH_BYTES // 2
    assert sizes(diff(100, per_file))[:3] == [2, 8, 8]
    assert max(sizes(diff(100, per_file))) == BATCH_BYTES // per_file


def test_batches_of_an_indexed_library_are_large() -> None:
    assert sizes(diff(1100, 1, known=1)) == [BATCH_FILES, BATCH_FILES, 100]


def test_with_a_time_limit_batches_are_small_and_there_is_at_least_one() -> None:
    assert set(sizes(diff(500, 1, known=1), math.inf)) == {SMALL_BATCH_FILES}
    assert sizes(diff(500, 1), 0.0) == [SMALL_BATCH_FILES]


def test_a_file_that_is_older_than_the_version_of_another_machine_is_not_indexed(
    tmp_path: Path,
) -> None:
    path, id = tmp_path / "a.md", DocumentId("c", "a.md")
    path.write_text("here")
    file = FileState.from_stat(path.stat())
    for step, touched, parsed in ((1, 1, 0), (-1, 0, 1)):
        away = FileState.elsewhere(9, file.mtime_ns + step)
        known = {id: IndexedFile(away, digest("elsewhere"), "r")}
        batch = FileBatch(PARSERS, "r", 1000, known, {})
        batch.read(ScannedFile(id, file, str(path)), rebuild=False)
        assert (len(batch.touched), len(batch.parsed)) == (touched, parsed)


def test_a_report_keeps_the_ids_of_the_plan_and_not_copies_of_another_process(
    tmp_path: Path,
) -> None:
    path, id = tmp_path / "a.md", DocumentId("c", "a.md")
    path.write_text("here")
    scanned = ScannedFile(id, FileState.from_stat(path.stat()), str(path))
    batch = FileBatch(PARSERS, "r", 1000, {}, {})
    batch.read(scanned, rebuild=False)
    received: FileBatch = pickle.loads(pickle.dumps(batch))
    (added,) = received.report({}, [scanned]).added
    assert added is id


def test_the_report_of_a_run_has_all_documents_of_its_batches() -> None:
    first, second = DocumentId("c", "a.md"), DocumentId("c", "b.md")
    reports = [
        Report(added=(first,), notices=("one",)),
        Report(added=(second,), removed=(first,), notices=("two",)),
    ]
    assert Report.joined(reports) == reports[0] + reports[1]
    assert Report.joined([]) == Report()
