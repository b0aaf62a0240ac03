"""Contract of the status reader: manifest, failures and remarks."""

from __future__ import annotations

from marklight.model import Batch, Failure, FileState
from marklight.ports import Engine
from tests.contracts.builders import commit, entry, id_of, put


def test_a_failure_is_stored_until_its_file_succeeds_or_is_removed(engine: Engine) -> None:
    failures = (
        Failure(id_of("b.md"), "not text", FileState(1, 2)),
        Failure(id_of("a.md"), "unreadable"),
    )
    commit(engine, Batch(failures=failures))
    with engine.snapshot() as snapshot:
        assert list(snapshot.status.failures()) == [failures[1], failures[0]]
        assert snapshot.status.counts("m").failed == 2
    put(engine, entry("a.md", "readable now"))
    commit(engine, Batch(removed=(id_of("b.md"),)))
    with engine.snapshot() as snapshot:
        assert snapshot.status.failures() == []
        assert snapshot.status.counts("m").failed == 0


def test_one_commit_can_remove_a_document_and_record_its_failure(engine: Engine) -> None:
    put(engine, entry("a.md", "words"))
    failure = Failure(id_of("a.md"), "became binary")
    commit(engine, Batch(removed=(id_of("a.md"),), failures=(failure,)))
    with engine.snapshot() as snapshot:
        assert (snapshot.documents.files(), list(snapshot.status.failures())) == ({}, [failure])


def test_commits_add_to_the_manifest(engine: Engine) -> None:
    commit(engine, Batch(manifest={"model": "a", "parser": "1"}))
    commit(engine, Batch(manifest={"model": "b"}))
    with engine.snapshot() as snapshot:
        assert snapshot.status.manifest() == {"model": "b", "parser": "1"}


def test_remarks_about_documents_are_ordered_by_path(engine: Engine) -> None:
    odd = entry("z.md", "one", remarks=("no end of its frontmatter", "two titles"))
    other = entry("a.md", "two", remarks=("a date that is none",))
    with engine.writing(1):
        engine.commit(Batch(entries=(odd, other, entry("m.md", "three"))))
    with engine.snapshot() as snapshot:
        assert snapshot.status.remarks() == [
            (id_of("a.md"), "a date that is none"),
            (id_of("z.md"), "no end of its frontmatter"),
            (id_of("z.md"), "two titles"),
        ]
