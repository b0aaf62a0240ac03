"""Copies between engines: everything arrives, an interrupted copy continues, other content is not overwritten."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from marklight.errors import StoreError, UsageError
from marklight.ingest.communities import GROUPED, update_communities
from marklight.library.transfer.copying import (
    Summary,
    Transfer,
    copy,
    merge,
    snapshot_source,
    summarize,
)
from marklight.model import Batch, Failure, FileState, Vectors
from marklight.ports import INCOMPLETE, Engine
from tests.contracts.builders import commit, embedding, entry, find, id_of, link, put, vectors
from tests.contracts.conftest import OPENERS
from tests.oracle import MemoryEngine

WORDS = "harbour lantern anchor rope sail mast keel rudder compass chart".split()
Make = Callable[[str], Engine]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    """Return a function that opens an empty engine of a kind."""
    with ExitStack() as stack:

        def open_engine(kind: str) -> Engine:
            folder = tmp_path / str(len(list(tmp_path.iterdir())))
            folder.mkdir()
            engine = stack.enter_context(OPENERS[kind](folder))()
            stack.callback(engine.close)
            return engine

        yield open_engine


def fill(engine: Engine, documents: int = 40) -> None:
    """Store documents with links, vectors of two models, term vectors, failures and a manifest."""
    chance = random.Random(5)
    entries = [
        entry(
            f"notes/{at:03}.md",
            *(" ".join(chance.choices(WORDS, k=8)) for _ in range(chance.randint(1, 4))),
            title=f"Note {at}",
            links=(link(f"{(at * 7) % documents:03}"),),
            tags=("even",) if at % 2 == 0 else (),
            metadata={"number": at},
            mtime_ns=1_700_000_000_000_000_000 + at,
        )
        for at in range(documents)
    ]
    put(engine, *entries)
    commit(engine, embedding(*entries))
    commit(engine, embedding(*entries[:5], model="another model"))
    commit(engine, Batch(concepts=vectors(WORDS[:6])))
    failures = (
        Failure(id_of("broken.md"), "is not text", FileState(3, 4, 5)),
        Failure(id_of("away.md"), "cannot be read"),
    )
    commit(engine, Batch(failures=failures, manifest={"model m": "fake", "words m": ""}))
    update_communities(engine)


def summary_of(engine: Engine) -> Summary:
    with engine.snapshot() as snapshot:
        return summarize(snapshot_source(snapshot))


def copy_between(source: Engine, target: Engine, **options: Any) -> Transfer:
    with source.snapshot() as snapshot:
        return copy(snapshot_source(snapshot), target, **options)


@pytest.mark.parametrize(
    "kinds",
    [
        ("memory", "embedded"),
        ("embedded", "memory"),
        ("embedded", "postgresql"),
        ("postgresql", "embedded"),
        ("memory", "qdrant"),
        ("qdrant", "memory"),
    ],
    ids="-".join,
)
def test_a_copy_has_the_same_content_and_answers(make: Make, kinds: tuple[str, str]) -> None:
    source, target = map(make, kinds)
    fill(source)
    transfer = copy_between(source, target)
    assert transfer.written_documents == 40
    assert summary_of(source) == summary_of(target)
    assert not summary_of(source).differences(summary_of(target))
    with source.snapshot() as before, target.snapshot() as after:
        for word in WORDS:
            assert set(find(before, word, limit=100)) == set(find(after, word, limit=100))
        assert before.links.edges() is not None
        assert sorted(before.links.edges()) == sorted(after.links.edges())
        ids = [id_of(f"notes/{at:03}.md") for at in range(40)]
        assert before.links.communities(ids) == after.links.communities(ids) != {}
        assert before.status.failures() == after.status.failures()
        assert after.status.counts("m").pending == 0
        manifest = dict(after.status.manifest())
        assert manifest.pop(GROUPED) == str(after.links.last_changed())
        assert manifest == {"model m": "fake", "words m": "", INCOMPLETE: ""}


def test_an_empty_index_can_be_copied(make: Make) -> None:
    source, target = make("memory"), make("embedded")
    copy_between(source, target)
    assert summary_of(target).counts == {}


def test_a_target_with_other_content_is_refused_and_left_alone(make: Make) -> None:
    source, target = make("memory"), make("embedded")
    fill(source)
    put(target, entry("own.md", "my own text"))
    with pytest.raises(
        UsageError, match=r"already contains an index with 1 document\. Use --replace"
    ):
        copy_between(source, target)
    with target.snapshot() as snapshot:
        assert [each.document.id.path for each in snapshot.contents.entries()] == ["own.md"]
        assert INCOMPLETE not in snapshot.status.manifest()


@pytest.mark.parametrize("kind", ["memory", "embedded", "postgresql"])
def test_replace_makes_the_target_equal_and_writes_only_what_differs(make: Make, kind: str) -> None:
    source, target = make("memory"), make(kind)
    fill(source)
    copy_between(source, target)
    own = entry("notes/0005x.md", "my own text")
    put(target, own, entry("notes/007.md", "changed here"))
    commit(target, embedding(own))
    commit(target, Batch(failures=(Failure(id_of("mine.md"), "is not text"),)))
    commit(target, Batch(touched=((id_of("notes/003.md"), FileState(1, 2, 3)),)))
    transfer = copy_between(source, target, replace_other=True)
    assert (transfer.written_documents, transfer.removed_documents) == (1, 1)
    assert not summary_of(source).differences(summary_of(target))


@pytest.mark.parametrize("kind", ["memory", "embedded", "postgresql"])
def test_replace_takes_the_vectors_of_the_source(make: Make, kind: str) -> None:
    source, target = make("memory"), make(kind)
    fill(source)
    with source.snapshot() as snapshot:
        entries = list(snapshot.contents.entries())
    put(target, *entries)
    digests = tuple({chunk.digest for each in entries for chunk in each.chunks})
    # As another processor computes them: almost the same, under the same name.
    commit(target, Batch(vectors=Vectors("m", digests, vectors(digests).matrix + np.float32(1e-7))))
    commit(target, embedding(*entries, model="of the target only"))
    copy_between(source, target, replace_other=True)
    assert not summary_of(source).differences(summary_of(target))
    with target.snapshot() as snapshot:
        assert set(snapshot.contents.models()) == {"m", "another model"}


class Killed(BaseException):
    """Stands for the end of the process."""


@pytest.mark.parametrize("kind", ["memory", "embedded", "postgresql"])
def test_a_copy_that_is_stopped_at_any_commit_continues(
    make: Make, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("marklight.library.transfer.copying.BATCH_DOCUMENTS", 4)
    monkeypatch.setattr("marklight.library.transfer.copying.BATCH_VECTORS", 12)
    source = make("memory")
    fill(source, 12)
    for number in range(1, 100):
        target = make(kind)
        commits = iter(range(1, 100))
        real = target.commit

        def stop(batch: Batch, real: Any = real, commits: Any = commits, at: int = number) -> int:
            if next(commits) == at:
                raise Killed
            return int(real(batch))

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(type(target), "commit", lambda _, batch, stop=stop: stop(batch))
            try:
                copy_between(source, target)
                break
            except Killed:
                pass
        with target.snapshot() as snapshot:
            begun = snapshot.generation > 0
            assert bool(snapshot.status.manifest().get(INCOMPLETE)) == begun
            already = snapshot.status.counts("").documents
        transfer = copy_between(source, target)
        assert transfer.written_documents == 12 - already
        assert not summary_of(source).differences(summary_of(target))
        with target.snapshot() as snapshot:
            assert snapshot.status.manifest()[INCOMPLETE] == ""
    assert number > 8


def test_a_copy_continues_from_a_source_that_changed_meanwhile(make: Make) -> None:
    source, target = make("memory"), make("embedded")
    fill(source)
    with source.snapshot() as snapshot:
        some = [*snapshot.contents.entries()][:7]
    put(target, *some)
    commit(target, Batch(manifest={INCOMPLETE: "incomplete"}))
    commit(target, embedding(*some))
    commit(source, Batch(removed=(id_of("notes/001.md"),)))
    put(source, entry("notes/002.md", "rewritten"), entry("notes/0025.md", "new"))
    transfer = copy_between(source, target)
    assert transfer.removed_documents == 1
    assert not summary_of(source).differences(summary_of(target))


def test_a_difference_is_reported_and_the_target_stays_incomplete(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target = make("memory"), make("memory")
    fill(source)
    real = MemoryEngine.commit

    def lossy(self: MemoryEngine, batch: Batch) -> int:
        kept = batch.entries[:-1] if batch.entries else ()
        return real(self, Batch(kept, vectors=batch.vectors, manifest=batch.manifest))

    monkeypatch.setattr(MemoryEngine, "commit", lossy)
    with pytest.raises(StoreError, match=r"differs from its source in .*documents \(40 and 39\)"):
        copy_between(source, target)
    with target.snapshot() as snapshot:
        assert snapshot.status.manifest()[INCOMPLETE] == "incomplete"


def test_a_document_that_the_target_cannot_store_is_named_as_the_reason(make: Make) -> None:
    source, target = make("memory"), make("postgresql")
    put(source, entry("short.md", "text"), entry(f"{'long' * 600}.md", "text"))
    with pytest.raises(StoreError, match=r"2 and 1\).*paths are too long for PostgreSQL"):
        copy_between(source, target)


def test_a_merge_join_pairs_equal_keys() -> None:
    pairs = merge([1, 3, 4, 9], [2, 3, 9, 10, 11], lambda value: value)
    assert [*pairs] == [(1, None), (None, 2), (3, 3), (4, None), (9, 9), (None, 10), (None, 11)]


def test_a_summary_does_not_depend_on_the_order_and_counts_repetitions() -> None:
    one, two, three = Summary(), Summary(), Summary()
    for summary, records in ((one, "abb"), (two, "bab"), (three, "ab")):
        for record in records:
            summary.add("documents", record.encode())
    assert one == two
    assert one.differences(three) == ["documents (3 and 2)"]
    assert one.digest() == two.digest() != three.digest()
