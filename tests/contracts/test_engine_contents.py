"""Contract of the reader of all contents: everything that was committed is read back, ordered by key, bit by bit."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from marklight.model import Batch, DocumentId, FileState, Heading, Vectors
from marklight.ports import Engine
from marklight.vector_math import round_vectors
from tests.contracts.builders import commit, embedding, entry, id_of, link, put, vectors


def test_an_empty_index_has_no_contents(engine: Engine) -> None:
    with engine.snapshot() as snapshot:
        contents = snapshot.contents
        assert list(contents.entries()) == []
        assert contents.models() == {}
        assert list(contents.vectors("m")) == []
        assert list(contents.term_vectors("m")) == []


def test_a_document_is_read_back_as_it_was_committed(engine: Engine) -> None:
    given = entry(
        "guide/änderung.md",
        "one text",
        "another text",
        title="Title",
        headings=("Title", 'A "quoted" heading'),
        merged=("Small", "Smaller"),
        code="print(1)",
        languages=("python", "Bash"),
        mtime_ns=1_700_000_000_123_456_789,
        description="What it is",
        keywords=("k1", "k2"),
        tags=("a/b", "c"),
        aliases=("Alias",),
        author="Ada",
        category="Notes",
        language="fr",
        date="2026-01-31",
        metadata={"n": 1, "list": [1, {"x": None}], "text": "ü"},
        outline=(Heading(1, "Title", "title", (1, 9)),),
        links=(link("Other", "other", "guide/other"), link("Third")),
        blocks={"b1": 3},
        remarks=("its frontmatter is invalid",),
    )
    file = FileState(12, 1_700_000_000_123_456_789, 1_700_000_000_223_456_789)
    given = replace(given, document=replace(given.document, file=file))
    put(engine, given)
    with engine.snapshot() as snapshot:
        assert list(snapshot.contents.entries()) == [given]


def test_documents_are_ordered_by_path_and_collection(engine: Engine) -> None:
    places = [("b", "a.md"), ("a", "b.md"), ("a", "a.md"), ("a", "Z.md"), ("a", "é.md"), ("a", "z")]
    put(engine, *(entry(path, "text", collection=name) for name, path in places))
    put(engine, entry("a.md", "another text", collection="a"))
    ordered = sorted((path, name) for name, path in places)
    with engine.snapshot() as snapshot:
        ids = [each.document.id for each in snapshot.contents.entries()]
    assert ids == [DocumentId(name, path) for path, name in ordered]


def test_many_documents_are_each_read_once(engine: Engine) -> None:
    put(engine, *(entry(f"{at:04}.md", f"text {at}") for at in range(600)))
    commit(engine, Batch(removed=(id_of("0300.md"),)))
    with engine.snapshot() as snapshot:
        paths = [each.document.id.path for each in snapshot.contents.entries()]
    assert paths == [f"{at:04}.md" for at in range(600) if at != 300]


def test_rounded_vectors_keep_every_bit_and_are_ordered_by_digest(engine: Engine) -> None:
    entries = [entry(f"{at}.md", f"text {at}", f"more {at}") for at in range(700)]
    put(engine, *entries)
    digests = [chunk.digest for each in entries for chunk in each.chunks]
    given = vectors(digests)
    given.matrix[0] = 0
    commit(engine, Batch(vectors=given))
    commit(engine, embedding(entries[0], model="other"))
    with engine.snapshot() as snapshot:
        groups = list(snapshot.contents.vectors("m"))
        other = list(snapshot.contents.vectors("other"))
        models = snapshot.contents.models()
    assert models == {"m": 16, "other": 16}
    keys = [key for group in groups for key in group.digests]
    assert keys == sorted(digests)
    rows = {
        key: row for group in groups for key, row in zip(group.digests, group.matrix, strict=True)
    }
    assert all(
        rows[key].tobytes() == row.tobytes()
        for key, row in zip(given.digests, given.matrix, strict=True)
    )
    assert [group.digests for group in other] == [
        tuple(sorted(chunk.digest for chunk in entries[0].chunks))
    ]


def test_vectors_that_no_passage_uses_are_left_out(engine: Engine) -> None:
    kept, removed = entry("a.md", "kept"), entry("b.md", "removed")
    put(engine, kept, removed)
    commit(engine, embedding(kept, removed))
    commit(engine, Batch(removed=(removed.document.id,)))
    with engine.snapshot() as snapshot:
        groups = list(snapshot.contents.vectors("m"))
    assert [group.digests for group in groups] == [(kept.chunks[0].digest,)]


def test_vectors_of_terms_are_read_back_without_those_of_other_words(engine: Engine) -> None:
    put(engine, entry("a.md", "lantern harbour"))
    rows = round_vectors(np.array([[3, 4], [1, 0], [0, 2]], dtype=np.float32))
    commit(engine, Batch(concepts=Vectors("m", ("lantern", "unknown", "harbour"), rows)))
    with engine.snapshot() as snapshot:
        groups = list(snapshot.contents.term_vectors("m"))
        models = snapshot.contents.models()
    assert models == {"m": 2}
    assert [group.digests for group in groups] == [("harbour", "lantern")]
    assert groups[0].matrix.tolist() == rows[[2, 0]].tolist()


def test_a_snapshot_does_not_see_what_is_committed_while_it_is_read(engine: Engine) -> None:
    put(engine, entry("a.md", "one"), entry("c.md", "three"))
    with engine.snapshot() as snapshot:
        entries = snapshot.contents.entries()
        first = next(entries)
        put(engine, entry("b.md", "two"))
        rest = list(entries)
    assert [each.document.id.path for each in (first, *rest)] == ["a.md", "c.md"]
