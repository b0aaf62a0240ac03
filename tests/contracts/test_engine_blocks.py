"""Contract of the block reader: digests of the blocks of documents, and passages of nothing but boilerplate."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from marklight.model import Batch, Entry
from marklight.ports import BOILERPLATE, FIELD_BOOSTS, Engine, SharedBlock, StoredBlock
from marklight.query import Filters
from tests.contracts.builders import commit, entry, id_of, put, vectors

LARGE = 2**63 - 1
SMALL = -(2**63)


def blocks(path: str, digests: Mapping[int, bool], title: str = "", text: str = "text") -> Entry:
    return replace(entry(path, text, title=title), block_digests=digests)


def test_blocks_are_counted_up_to_a_limit(engine: Engine) -> None:
    put(engine, *(blocks(f"{at}.md", {LARGE: False, at: False}) for at in range(5)))
    put(engine, blocks("6.md", {SMALL: True}))
    with engine.snapshot() as snapshot:
        assert snapshot.blocks.stored([LARGE, SMALL, 3, 77], 4) == {
            LARGE: StoredBlock(4, False),
            SMALL: StoredBlock(1, True),
            3: StoredBlock(1, False),
        }
        assert snapshot.blocks.stored([], 4) == {}


def test_copies_of_a_document_have_one_origin(engine: Engine) -> None:
    versions = [blocks(f"v{at}/guide.md", {1: False}, "Guide") for at in range(4)]
    others = [blocks(f"{name}.md", {1: False, 2: False}, name) for name in ("b", "c", "d")]
    put(engine, *versions, *others)
    origins = {each.document.origin for each in (*versions, *others)}
    assert len(origins) == 4
    with engine.snapshot() as snapshot:
        found = snapshot.blocks.origins([1, 2, 3], 9, [])
        assert {key: set(own) for key, own in found.items() if own} == {
            1: origins,
            2: {each.document.origin for each in others},
        }
        assert sorted(snapshot.blocks.origins([1], 2, [])[1]) == sorted(origins)[:2]
        without = snapshot.blocks.origins([1], 9, [id_of("b.md"), id_of("v0/guide.md")])
        assert set(without[1]) == origins - {others[0].document.origin}


def test_blocks_follow_every_commit(engine: Engine) -> None:
    put(engine, blocks("a.md", {1: True, 2: False}), blocks("b.md", {1: True}))
    with engine.snapshot() as snapshot:
        assert snapshot.blocks.documents_with([1, 2]) == [id_of("a.md"), id_of("b.md")]
        assert snapshot.blocks.documents_with([2, 5]) == [id_of("a.md")]
        assert snapshot.blocks.digests_of([id_of("a.md"), id_of("x.md")]) == {1, 2}
        assert snapshot.blocks.boilerplate_of([id_of("a.md")]) == {1}
        assert snapshot.blocks.count() == 1
        assert snapshot.blocks.most_shared(5) == [SharedBlock(1, 2, id_of("a.md"))]
    commit(engine, Batch(entries=(blocks("a.md", {3: False}),), removed=(id_of("b.md"),)))
    with engine.snapshot() as snapshot:
        assert snapshot.blocks.stored([1, 2, 3], 9) == {3: StoredBlock(1, False)}
        assert snapshot.blocks.count() == 0
        assert snapshot.blocks.most_shared(5) == []
    assert engine.check() == []


def test_blocks_and_boilerplate_are_part_of_the_contents(engine: Engine) -> None:
    made = blocks("a.md", {SMALL: True, 5: False}, text="own shared own")
    chunk = replace(made.chunks[0], boilerplate=((4, 11),))
    made = replace(made, chunks=(chunk,))
    put(engine, made)
    with engine.snapshot() as snapshot:
        (stored,) = snapshot.contents.entries()
        assert stored.block_digests == {SMALL: True, 5: False}
        assert stored.chunks == made.chunks
        assert stored.chunks[0].own_text == "own own"


def test_a_passage_of_boilerplate_is_found_by_quoting_only_and_never_embedded(
    engine: Engine,
) -> None:
    made = entry("a.md", "pears are ripe", "edit this page", title="Fruit", headings=("Page",))
    own, footer = made.chunks
    footer = replace(footer, digest="", boilerplate=((0, len(footer.text)),))
    put(engine, replace(made, chunks=(own, footer), block_digests={1: True}))
    quoted = {**FIELD_BOOSTS, BOILERPLATE: 1.0}
    with engine.snapshot() as snapshot:
        for terms in (["edit"], ["fruit"], ["page"]):
            found = snapshot.lexical.search(terms, FIELD_BOOSTS, Filters(), 9)
            assert footer.id not in [each.chunk_id for each in found]
        phrase = Filters(phrases=("edit this page",))
        (hit,) = snapshot.lexical.search(["edit", "page"], quoted, phrase, 9)
        assert hit.chunk_id == footer.id
        assert [each.chunk_id for each in snapshot.documents.find_by_title("page", Filters(), 9)]
        assert [each.digest for each in snapshot.vectors.pending("m", 9)] == [own.digest]
        counts = snapshot.status.counts("m")
        assert (counts.chunks, counts.boilerplate, counts.pending) == (2, 1, 1)
    commit(engine, Batch(vectors=vectors([own.digest])))
    with engine.snapshot() as snapshot:
        assert snapshot.status.counts("m").pending == 0
        assert snapshot.vectors.pending("m", 9, [footer.id]) == []
    commit(engine, Batch(removed=(id_of("a.md"),)))
    with engine.snapshot() as snapshot:
        assert snapshot.status.counts("m").boilerplate == 0
    assert engine.check() == []


def test_terms_of_boilerplate_in_a_passage_count_in_no_other_field(engine: Engine) -> None:
    made = entry("a.md", "pears are ripe. edit this page")
    chunk = replace(made.chunks[0], boilerplate=((16, 30),))
    put(engine, replace(made, chunks=(chunk,)))
    with engine.snapshot() as snapshot:
        assert snapshot.lexical.search(["edit"], FIELD_BOOSTS, Filters(), 9) == []
        assert snapshot.lexical.search(["pear"], FIELD_BOOSTS, Filters(), 9)
        assert snapshot.lexical.existing_terms(["edit", "pear"]) == {"pear"}
        phrase = Filters(phrases=("ripe edit this",))
        assert snapshot.metadata.matching_documents(phrase, 9) == [id_of("a.md")]
