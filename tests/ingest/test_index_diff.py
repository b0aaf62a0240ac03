"""The plan of an index diff: which files are read and which documents removed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from marklight.ingest import pipeline
from marklight.ingest.discover import ScannedFiles
from marklight.ingest.pipeline import Plan
from marklight.model import DocumentId, Failure, FileState
from marklight.ports import IndexedFile

OLD, NEW = FileState(10, 1), FileState(10, 2)


def at(path: str, collection: str = "c") -> DocumentId:
    return DocumentId(collection, path)


def known(file: FileState = OLD, recipe: str = "r") -> IndexedFile:
    return IndexedFile(file, "digest", recipe)


def plan(
    states: Mapping[DocumentId, FileState],
    indexed: Mapping[DocumentId, IndexedFile],
    failed: Iterable[Failure],
    unreadable: Iterable[Failure],
    recipe: str,
    rebuild: bool = False,
) -> Plan:
    files = ScannedFiles({"c": "/"})
    for id, state in states.items():
        files.add(id, state)
    return pipeline.plan(files, indexed, failed, unreadable, recipe, rebuild=rebuild)


def test_new_and_changed_files_are_read_the_latest_first_and_unchanged_ones_are_not() -> None:
    found = {at("new"): OLD, at("changed"): NEW, at("same"): OLD}
    index = {at("changed"): known(), at("same"): known()}
    steps = plan(found, index, (), (), "r")
    assert steps.read == (at("changed"), at("new"))
    assert not steps.removed


def test_unchanged_files_of_another_recipe_are_outdated_and_stay() -> None:
    found = plan(
        {at("a"): OLD, at("b"): NEW}, {at("a"): known(), at("b"): known()}, (), (), "other"
    )
    assert (found.read, found.outdated) == ((at("b"),), (at("a"),))


def test_a_rebuild_reads_everything_again() -> None:
    assert plan({at("a"): OLD}, {at("a"): known()}, (), (), "r", rebuild=True).read == (at("a"),)


def test_deleted_files_are_removed() -> None:
    assert plan({}, {at("a"): known()}, (), (), "r").removed == (at("a"),)


def test_a_document_that_this_machine_never_had_is_not_removed() -> None:
    away = known(FileState.elsewhere(OLD.size, OLD.mtime_ns))
    assert not plan({}, {at("a"): away}, (), (), "r")
    assert plan({at("a"): OLD}, {at("a"): away}, (), (), "r").read == (at("a"),)


def test_a_failed_file_is_read_again_only_when_it_changed() -> None:
    failed = [Failure(at("a"), "bad", OLD)]
    assert not plan({at("a"): OLD}, {}, failed, (), "r")
    assert plan({at("a"): NEW}, {}, failed, (), "r").read == (at("a"),)
    assert plan({}, {}, failed, (), "r").removed == (at("a"),)


def test_documents_below_an_unlistable_folder_are_not_removed() -> None:
    index = {at("locked/a"): known(), at("open/b"): known(), at("locked/c", "other"): known()}
    unreadable = [Failure(at("locked/"), "cannot be listed")]
    assert plan({}, index, (), unreadable, "r").removed == (at("open/b"), at("locked/c", "other"))
    everything = [Failure(at("/"), "cannot be listed")]
    assert plan({}, index, (), everything, "r").removed == (at("locked/c", "other"),)


def test_a_file_that_can_no_longer_be_read_is_removed_and_stays_a_failure() -> None:
    unreadable = [Failure(at("pipe.md"), "is not a regular file")]
    assert plan({}, {at("pipe.md"): known()}, (), unreadable, "r").removed == (at("pipe.md"),)
    assert not plan({}, {}, unreadable, unreadable, "r")
    assert plan({}, {}, unreadable, (), "r").removed == (at("pipe.md"),)


def test_a_failure_without_a_state_is_always_tried_again() -> None:
    assert plan({at("a"): OLD}, {}, [Failure(at("a"), "too large")], (), "r").read == (at("a"),)
