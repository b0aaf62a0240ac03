"""The segments of the lexical index: what is encoded is decoded, and scores equal those of the in-memory engine."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from marklight.batch import Entry
from marklight.engines.lexical import CODE, WHOLE, document_terms, passage_terms
from marklight.engines.server.postgres.lexical import bm25
from marklight.engines.server.postgres.lexical.posting_blocks import (
    decode_blocks,
    encode_blocks,
    find_postings,
)
from marklight.engines.server.postgres.lexical.segments import (
    FIELDS,
    LENGTHS,
    MAX_PASSAGES,
    DamagedSegment,
    Passage,
    Passages,
    PostingTable,
    build,
    length_codes,
    merge,
    term_key,
)
from marklight.ports import FIELD_BOOSTS
from marklight.query import Filters
from tests.contracts.builders import entry, put
from tests.oracle import MemoryEngine
from tests.oracle.search import stored_length

WORDS = "apple pear plum getUserById zebra 日本語 run c++".split()
texts = st.lists(st.sampled_from(WORDS), max_size=60).map(" ".join)
terms = st.lists(
    st.sampled_from(["a", "ab", "b", "é", "日本", "\U0001f600", "x" * 300]), max_size=5
)
fields = st.fixed_dictionaries(dict.fromkeys(FIELDS, terms))


@st.composite
def documents(draw: st.DrawFn) -> list[Entry]:
    count = draw(st.integers(1, 6))
    return [
        entry(
            f"{at}.md",
            *draw(st.lists(texts, min_size=1, max_size=4)),
            title=draw(texts),
            headings=(draw(texts),),
            code=draw(texts),
            tags=(draw(texts),),
        )
        for at in range(count)
    ]


def passages_of(entries: Sequence[Entry], first_row: int = 1) -> list[Passage]:
    """Return the passages of documents, whose rows are 1, 2 and so on."""
    found: list[Passage] = []
    for document, each in enumerate(entries, 1):
        shared = document_terms(each.document)
        found += [
            Passage(first_row + len(found) + at, document, passage_terms(shared, chunk))
            for at, chunk in enumerate(each.chunks)
        ]
    return found


class Index:
    """Segments that are encoded and decoded again, without a database."""

    def __init__(self, parts: Sequence[Sequence[Passage]]) -> None:
        self.segments: list[bm25.Segment] = []
        self.blocks: list[list[tuple[bytes, bytes]]] = []
        self.lengths = np.zeros((len(FIELDS), 0), np.int64)
        for part in parts:
            passages, table, lengths = build(part)
            self.add(passages, table)
            self.lengths = np.concatenate([self.lengths, lengths], axis=1)

    def add(self, passages: Passages, table: PostingTable) -> None:
        decoded = Passages.decode(*passages.encode())
        self.segments.append(bm25.Segment(len(self.segments), decoded))
        self.blocks.append(list(encode_blocks(table)))

    def get(self, segment: bm25.Segment, term: str) -> bm25.KeyedPostings | None:
        key = term_key(term)
        before = [data for first, data in self.blocks[segment.id] if first <= key]
        if not before:
            return None
        found = find_postings(before[-1], key, len(segment.passages))
        return bm25.keyed(found, segment.passages) if sum(found.counts) else None


def split(passages: Sequence[Passage], at: int) -> list[Sequence[Passage]]:
    return [part for part in (passages[:at], passages[at:]) if part]


@given(st.lists(st.integers(0, 10**9), max_size=50))
def test_a_length_is_rounded_as_the_other_engines_round_it(lengths: list[int]) -> None:
    every = [*range(3000), *lengths]
    codes = length_codes(np.array(every, np.int64))
    assert LENGTHS[codes].tolist() == [stored_length(length) for length in every]


@given(st.lists(fields, min_size=1, max_size=6))
def test_what_is_encoded_is_decoded(passages: list[dict[str, list[str]]]) -> None:
    own = [Passage(10 + 3 * at, at // 2, terms) for at, terms in enumerate(passages)]
    segment, table, lengths = build(own)
    again = decode_blocks(data for _, data in encode_blocks(table))
    assert again.terms == table.terms
    for column in ("term", "field", "offset", "frequency"):
        assert (getattr(again, column) == getattr(table, column)).all()
    decoded = Passages.decode(*segment.encode())
    assert decoded.rows.tolist() == [each.row for each in own]
    assert decoded.documents.tolist() == [each.document for each in own]
    assert lengths.tolist() == [[len(each.terms[field]) for each in own] for field in FIELDS]


@given(st.lists(fields, min_size=1, max_size=6))
def test_the_postings_of_a_term_are_its_frequencies_in_every_field(
    passages: list[dict[str, list[str]]],
) -> None:
    index = Index([[Passage(at, at, terms) for at, terms in enumerate(passages)]])
    every = {term for each in passages for own in each.values() for term in own}
    for term in (*every, "nowhere", "", "a\0ab"):
        blocks = [data for first, data in index.blocks[0] if first <= term_key(term)]
        found = find_postings(blocks[-1], term_key(term), len(passages)) if blocks else None
        for number, field in enumerate(FIELDS):
            expected = {
                at: count
                for at, each in enumerate(passages)
                if (count := Counter(each[field])[term])
            }
            own = found.of(number) if found else slice(0)
            pairs = (
                zip(found.offsets[own].tolist(), found.frequencies[own].tolist(), strict=True)
                if found
                else ()
            )
            assert dict(pairs) == expected


@settings(max_examples=60)
@given(documents(), st.data())
def test_scores_equal_those_of_the_memory_engine(entries: list[Entry], data: st.DataObject) -> None:
    passages = passages_of(entries)
    index = Index(split(passages, data.draw(st.integers(0, len(passages)))))
    ids = {
        each.row: chunk.id
        for each, chunk in zip(
            passages, (chunk for each in entries for chunk in each.chunks), strict=True
        )
    }
    query = data.draw(st.lists(st.sampled_from(["appl", "pear", "user", "日本", "c++", "no"])))
    boosts = data.draw(st.sampled_from([FIELD_BOOSTS, {CODE: 1.0}, {"body": 2.0, WHOLE: 0.5}]))
    limit = data.draw(st.integers(1, 12))
    with_documents = MemoryEngine()
    put(with_documents, *entries)
    table = bm25.ScoreTable(len(passages), index.lengths.sum(axis=1).tolist())
    found = bm25.search(
        index.segments, table, query, boosts, index.get, [None] * len(index.segments), limit
    )
    with with_documents.snapshot() as snapshot:
        every = snapshot.lexical.search(query, boosts, Filters(), 99)
    expected = {each.chunk_id: each.score for each in every}
    assert {ids[row]: score for row, score in found} == {
        ids[row]: pytest.approx(expected[ids[row]], abs=1e-4) for row, _ in found
    }
    assert [score for _, score in found][:limit] == pytest.approx(
        [each.score for each in every][:limit], abs=1e-4
    )
    # Everything that ties for the last place is there, so that the caller can order it by id.
    last = found[-1][1] if found else 0.0
    assert len(found) >= sum(round(each.score, 4) > last for each in every)


@settings(max_examples=60)
@given(documents(), st.data())
def test_a_merged_segment_equals_one_that_was_built_without_the_deleted_passages(
    entries: list[Entry], data: st.DataObject
) -> None:
    passages = passages_of(entries)
    parts = split(passages, data.draw(st.integers(0, len(passages))))
    deleted = data.draw(st.sets(st.sampled_from([each.document for each in passages])))
    living = [each for each in passages if each.document not in deleted]
    tables, offsets, moved = [], [], 0
    for part in parts:
        segment, table, _ = build(part)
        dead = segment.of_documents(np.array(sorted(deleted), np.int64))
        assert dead.tolist() == [each.document in deleted for each in part]
        tables.append(table)
        offsets.append(np.where(dead, -1, np.cumsum(~dead) - 1 + moved))
        moved += int((~dead).sum())
    merged = list(encode_blocks(merge(tables, offsets)))
    assert merged == list(encode_blocks(build(living)[1]))


def test_many_postings_of_one_term_make_up_a_block_of_their_own() -> None:
    many = [
        Passage(at, at, {"body": ["common", f"rare{at}"], WHOLE: ["common", f"rare{at}"]})
        for at in range(5000)
    ]
    index = Index([many])
    sizes = [len(data) for first, data in index.blocks[0]]
    assert sorted(sizes)[-2] <= 2000 < sorted(sizes)[-1]
    found = index.get(index.segments[0], "common")
    assert found is not None
    assert found.of(FIELDS.index(WHOLE)).tolist() == list(range(5000))


def test_a_segment_holds_65536_passages_and_any_frequency() -> None:
    often = {"body": ["word"] * 70_000, WHOLE: ["word"] * 70_000}
    once = {"body": ["word"], WHOLE: ["word", "part"]}
    index = Index([[Passage(at, at, once if at else often) for at in range(MAX_PASSAGES)]])
    table = bm25.ScoreTable(MAX_PASSAGES, index.lengths.sum(axis=1).tolist())
    found = bm25.search(index.segments, table, ["word"], {"body": 1.0}, index.get, [None], 1)
    average = (70_000 + MAX_PASSAGES - 1) / MAX_PASSAGES
    length = stored_length(70_000)
    rarity = np.log(1 + 0.5 / (MAX_PASSAGES + 0.5))
    score = rarity * 2.2 * 70_000 / (70_000 + 1.2 * (0.25 + 0.75 * length / average))
    single = rarity * 2.2 / (1 + 1.2 * (0.25 + 0.75 / average))
    assert max(score, single) == pytest.approx(found[0][1], abs=1e-4)
    part = index.get(index.segments[0], "part")
    assert part is not None
    assert len(part.of(FIELDS.index(WHOLE))) == MAX_PASSAGES - 1


def test_passages_of_documents_are_found_whatever_their_order() -> None:
    passages = Passages(
        np.array([1, 2, 5, 9]), np.array([7, 3, 7, 4]), np.zeros((len(FIELDS), 4), np.uint8)
    )
    assert passages.of_documents(np.array([7, 99])).tolist() == [True, False, True, False]
    assert passages.of_rows(np.array([2, 3, 9, 99])).tolist() == [False, True, False, True]
    assert passages.of_documents(np.array([], np.int64)).tolist() == [False] * 4


@given(
    st.lists(
        st.tuples(st.integers(0, 30), st.integers(0, 9)), max_size=12, unique_by=lambda x: x[0]
    ),
    st.sets(st.integers(0, 30)),
)
def test_masks_select_what_is_in_a_list(pairs: list[tuple[int, int]], chosen: set[int]) -> None:
    pairs.sort()
    rows, documents = (
        np.array(column, np.int64) for column in ([r for r, _ in pairs], [d for _, d in pairs])
    )
    passages = Passages(rows, documents, np.zeros((len(FIELDS), len(pairs)), np.uint8))
    numbers = np.array(sorted(chosen), np.int64)
    assert passages.of_rows(numbers).tolist() == [row in chosen for row, _ in pairs]
    assert passages.of_documents(numbers).tolist() == [own in chosen for _, own in pairs]
    offsets, known = passages.offsets(numbers)
    assert (
        rows[offsets].tolist() == numbers[known].tolist() == sorted(chosen & {r for r, _ in pairs})
    )


@given(st.binary(max_size=200), st.integers(0, 200), st.binary(max_size=8))
def test_damaged_bytes_are_reported_and_never_read_as_postings(
    garbage: bytes, at: int, patch: bytes
) -> None:
    _, table, _ = build(passages_of([entry("a.md", "apple pear", title="plum")]))
    ((_, data),) = encode_blocks(table)
    for damaged in (garbage, data[:at], data[:at] + patch + data[at + len(patch) :]):
        try:
            found = find_postings(damaged, b"appl", 1)
        except DamagedSegment:
            continue
        assert (found.offsets < 1).all()
    with pytest.raises(DamagedSegment):
        Passages.decode(b"12345678", b"1234", b"")


def test_an_empty_batch_has_no_blocks() -> None:
    segment, table, _ = build([])
    assert list(encode_blocks(table)) == []
    assert len(segment) == 0
    assert decode_blocks([]).terms == []
