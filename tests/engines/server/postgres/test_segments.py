"""The segments of the lexical index: what is encoded is decoded, and scores equal those of the in-memory engine."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from marklight.engines.server.bm25 import LENGTHS, length_codes
from marklight.engines.server.postgres.lexical_scoring import (
    Segment,
    VisibleSegments,
    best_passages,
)
from marklight.engines.server.postgres.segments import (
    FIELD_KEYS,
    FIELDS,
    MAX_PASSAGES,
    MAX_TABLE_FREQUENCY,
    DamagedSegment,
    Passage,
    Passages,
    Postings,
    PostingTable,
    build,
    decode_blocks,
    encode_blocks,
    find_postings,
    merge,
    stored_lengths,
    term_key,
)
from marklight.lexical import CODE, WHOLE, document_terms, passage_terms
from marklight.model import Entry
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
        self.segments: list[Segment] = []
        self.blocks: list[list[tuple[bytes, bytes]]] = []
        for part in parts:
            self.add(*build(part))

    def add(self, passages: Passages, table: PostingTable) -> None:
        decoded = Passages.decode(*passages.encode())
        self.segments.append(Segment(len(self.segments), decoded))
        self.blocks.append(list(encode_blocks(table)))

    def visible(self) -> VisibleSegments:
        return VisibleSegments.of(self.segments)

    def get(self, segment: Segment, term: str) -> Postings | None:
        key = term_key(term)
        before = [data for first, data in self.blocks[segment.id] if first <= key]
        return find_postings(before[-1], key, segment.passages) if before else None


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
    segment, table = build(own)
    again = decode_blocks(data for _, data in encode_blocks(table))
    assert again.terms == table.terms
    for column in ("term", "field", "offset", "frequency"):
        assert (getattr(again, column) == getattr(table, column)).all()
    decoded = Passages.decode(*segment.encode())
    assert decoded.rows.tolist() == [each.row for each in own]
    assert decoded.documents.tolist() == [each.document for each in own]
    lengths = [[len(each.terms[field]) for each in own] for field in FIELDS]
    assert decoded.lengths.tolist() == lengths
    blocks = (data for _, data in encode_blocks(table))
    assert stored_lengths(blocks, len(own)).tolist() == lengths


@given(st.lists(fields, min_size=1, max_size=6))
def test_the_postings_of_a_term_are_its_frequencies_in_every_field(
    passages: list[dict[str, list[str]]],
) -> None:
    index = Index([[Passage(at, at, terms) for at, terms in enumerate(passages)]])
    every = {term for each in passages for own in each.values() for term in own}
    for term in (*every, "nowhere", "", "a\0ab"):
        found = index.get(index.segments[0], term)
        for number, field in enumerate(FIELDS):
            expected = {
                at: count
                for at, each in enumerate(passages)
                if (count := Counter(each[field])[term])
            }
            assert (found.of(number).tolist() if found else []) == list(expected)
            if found:
                begin = sum(found.counts[:number])
                keys = found.keys[begin : begin + found.counts[number]]
                frequencies = keys % FIELD_KEYS // len(LENGTHS)
                assert frequencies.tolist() == [
                    min(count, MAX_TABLE_FREQUENCY) for count in expected.values()
                ]


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
    found = best_passages(
        index.visible(), query, boosts, index.get, [None] * len(index.segments), limit
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
        segment, table = build(part)
        dead = np.isin(segment.documents, sorted(deleted))
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
    found = best_passages(index.visible(), ["word"], {"body": 1.0}, index.get, [None], 1)
    average = (70_000 + MAX_PASSAGES - 1) / MAX_PASSAGES
    length = stored_length(70_000)
    rarity = np.log(1 + 0.5 / (MAX_PASSAGES + 0.5))
    score = rarity * 2.2 * 70_000 / (70_000 + 1.2 * (0.25 + 0.75 * length / average))
    single = rarity * 2.2 / (1 + 1.2 * (0.25 + 0.75 / average))
    assert max(score, single) == pytest.approx(found[0][1], abs=1e-4)
    part = index.get(index.segments[0], "part")
    assert part is not None
    assert len(part.of(FIELDS.index(WHOLE))) == MAX_PASSAGES - 1


@given(st.sets(st.integers(0, 30)), st.sets(st.integers(0, 30)))
def test_the_offsets_of_rows_are_found(stored: set[int], chosen: set[int]) -> None:
    rows, numbers = (np.array(sorted(each), np.int64) for each in (stored, chosen))
    passages = Passages(rows, rows, np.zeros((len(FIELDS), len(rows)), np.uint16))
    offsets, known = passages.offsets(numbers)
    assert rows[offsets].tolist() == numbers[known].tolist() == sorted(chosen & stored)


@given(st.binary(max_size=200), st.integers(0, 200), st.binary(max_size=8))
def test_damaged_bytes_are_reported_and_never_read_as_postings(
    garbage: bytes, at: int, patch: bytes
) -> None:
    passages, table = build(passages_of([entry("a.md", "apple pear", title="plum")]))
    ((_, data),) = encode_blocks(table)
    for damaged in (garbage, data[:at], data[:at] + patch + data[at + len(patch) :]):
        try:
            found = find_postings(damaged, b"appl", passages)
        except DamagedSegment:
            continue
        assert found is None or (found.offsets < 1).all()
    with pytest.raises(DamagedSegment):
        Passages.decode(b"12345678", b"1234", b"")


def test_an_empty_batch_has_no_blocks() -> None:
    segment, table = build([])
    assert list(encode_blocks(table)) == []
    assert len(segment) == 0
    assert decode_blocks([]).terms == []
