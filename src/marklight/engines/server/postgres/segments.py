"""Segments of the lexical index in PostgreSQL: immutable, at most 65,536 passages, built and merged with numpy.

Postings are stored in blocks of some 2 kB, sorted by term, with all postings in columns. A block is a row of a table, so a commit
of one document writes some ten rows and not one for each of a thousand terms. A posting takes 3 bytes: an offset within the
segment and a term frequency. All tables of the index take 380 to 490 bytes per passage, depending on what merges left free; a table
with a row for each term and passage takes 4,250, and 5 times as long for five common terms. The field `whole` is stored as its
difference from the fields that it is made of, which is mostly zero and halves the size.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from marklight.engines.server.bm25 import LENGTHS, Ints, length_codes
from marklight.lazy import dataclass
from marklight.lexical import FIELDS as FIELDS
from marklight.lexical import PROSE, TITLE_TIMES, WHOLE

MAX_PASSAGES = 1 << 16
"""Passages in one segment: offsets have two bytes."""
MAX_LENGTH = 65_535
"""Longest field that is counted exactly: lengths have two bytes. A passage of that many terms is longer than any limit allows."""
MAX_TERM_BYTES = 255
"""Longer terms are replaced by a digest: a key of an index in PostgreSQL must be below 2.7 kB."""
MAX_TABLE_FREQUENCY = 31
"""Higher term frequencies are scored without a table: they are one posting in thousands."""
BLOCK_BYTES = 1_900
"""Size of a block. PostgreSQL stores rows up to 2 kB in place; a longer list of one term is a block of its own."""

WHOLE_NUMBER = FIELDS.index(WHOLE)
WHOLE_TIMES = {FIELDS.index(field): TITLE_TIMES if field == "title" else 1 for field in PROSE}
"""Number of times that `whole` repeats each prose field; for `whole` itself, the difference that remains."""
FIELD_KEYS = (MAX_TABLE_FREQUENCY + 1) * len(LENGTHS)
"""Keys of one field: a posting has the key of its field, its term frequency and the code of its length."""

_BLOCK = struct.Struct("<?IIII")
"""Wide frequencies or not; bytes of all terms; numbers of terms, runs and postings. A run is a field of a term."""
_CODES = length_codes(np.arange(MAX_LENGTH + 1))
"""Code of a length."""

NO_ROWS: Ints = np.empty(0, np.int64)


class DamagedSegment(ValueError):
    """Raised for stored bytes that are not a segment."""


class Passage(NamedTuple):
    """A passage to be indexed: its row, that of its document, and its terms by field."""

    row: int
    document: int
    terms: Mapping[str, Sequence[str]]


def contains(ascending: Ints, values: Ints) -> NDArray[np.bool_]:
    """Return which of a few values a long sorted array contains."""
    if not len(ascending):
        return np.zeros(len(values), bool)
    places = np.minimum(np.searchsorted(ascending, values), len(ascending) - 1)
    result: NDArray[np.bool_] = ascending[places] == values
    return result


@dataclass(frozen=True, eq=False)
class Passages:
    """The passages of a segment, ordered by row."""

    rows: Ints
    documents: Ints
    lengths: NDArray[np.uint16]
    """Lengths of all fields: a row for each field, a column for each passage."""

    @classmethod
    def decode(cls, rows: bytes, documents: bytes, lengths: bytes) -> Passages:
        """Return the passages of a segment from the bytes of its columns."""
        try:
            return cls(
                np.frombuffer(rows, "<i8"),
                np.frombuffer(documents, "<i8").reshape(len(rows) // 8),
                np.frombuffer(lengths, "<u2").reshape(len(FIELDS), len(rows) // 8),
            )
        except ValueError as error:
            raise DamagedSegment(str(error)) from error

    def encode(self) -> tuple[bytes, bytes, bytes]:
        """Return the bytes of the columns: rows, documents, lengths."""
        columns = (
            self.rows.astype("<i8"),
            self.documents.astype("<i8"),
            self.lengths.astype("<u2"),
        )
        rows, documents, lengths = (column.tobytes() for column in columns)
        return rows, documents, lengths

    def __len__(self) -> int:
        return len(self.rows)

    def offsets(self, rows: Ints) -> tuple[Ints, NDArray[np.bool_]]:
        """Return the offsets of those rows that the segment has, and a mask of them."""
        is_stored = contains(self.rows, rows)
        return np.searchsorted(self.rows, rows[is_stored]), is_stored


@dataclass(frozen=True, eq=False)
class PostingTable:
    """Postings in columns, sorted by term, field and offset; `whole` has only what the other fields do not explain."""

    terms: list[bytes]
    """Distinct terms in ascending order."""
    term: Ints
    """Position in `terms`."""
    field: NDArray[np.uint8]
    offset: NDArray[np.uint16]
    frequency: NDArray[np.int32]

    def between(self, first: bytes, end: bytes | None) -> PostingTable:
        """Return the postings of a range of terms."""
        low = bisect_left(self.terms, first)
        high = len(self.terms) if end is None else bisect_left(self.terms, end)
        part = slice(*np.searchsorted(self.term, [low, high]))
        columns = self.field[part], self.offset[part], self.frequency[part]
        return PostingTable(self.terms[low:high], self.term[part] - low, *columns)


def term_key(term: str) -> bytes:
    """Return a term as it is stored: a term that is too long is replaced by its digest."""
    key = term.encode("utf-8", "surrogatepass")
    if 0 < len(key) <= MAX_TERM_BYTES and b"\0" not in key:
        return key
    return b"\xff" + blake2b(key, digest_size=16).hexdigest().encode()


def build(passages: Sequence[Passage]) -> tuple[Passages, PostingTable]:
    """Return a segment of passages, ordered by row, and their postings."""
    lengths = np.array(
        [[len(passage.terms.get(field, ())) for passage in passages] for field in FIELDS], np.int64
    ).reshape(len(FIELDS), len(passages))
    names: list[str] = []
    frequencies: list[int] = []
    runs: list[tuple[int, int, int]] = []
    for offset, passage in enumerate(passages):
        for number, counts in enumerate(_field_counts(passage.terms)):
            if counts:
                names.extend(counts)
                frequencies.extend(counts.values())
                runs.append((number, offset, len(counts)))
    keys = {name: term_key(name) for name in dict.fromkeys(names)}
    terms = sorted(set(keys.values()))
    positions = {term: place for place, term in enumerate(terms)}
    by_name = {name: positions[key] for name, key in keys.items()}
    columns = np.array(runs, np.int64).reshape(-1, 3)
    table = _sorted(
        terms,
        np.fromiter((by_name[name] for name in names), np.int64, len(names)),
        np.repeat(columns[:, 0], columns[:, 2]),
        np.repeat(columns[:, 1], columns[:, 2]),
        np.array(frequencies, np.int32),
    )
    segment = Passages(
        np.array([passage.row for passage in passages], np.int64),
        np.array([passage.document for passage in passages], np.int64),
        np.minimum(lengths, MAX_LENGTH).astype(np.uint16),
    )
    return segment, table


def _field_counts(terms: Mapping[str, Sequence[str]]) -> list[Counter[str]]:
    """Return the term frequencies of all fields; of `whole`, the difference from the sum of the others."""
    counts = [Counter(terms.get(field, ())) for field in FIELDS]
    rest = counts[WHOLE_NUMBER]
    for number in WHOLE_TIMES:
        if number != WHOLE_NUMBER:
            for term, frequency in counts[number].items():
                rest[term] -= WHOLE_TIMES[number] * frequency
    counts[WHOLE_NUMBER] = Counter(
        {term: frequency for term, frequency in rest.items() if frequency}
    )
    return counts


def _sorted(
    terms: list[bytes], term: Ints, field: Ints, offset: Ints, frequency: NDArray[np.int32]
) -> PostingTable:
    order = np.argsort(term << 24 | field << 16 | offset, kind="stable")
    return PostingTable(
        terms,
        term[order],
        field[order].astype(np.uint8),
        offset[order].astype(np.uint16),
        frequency[order],
    )


def merge(tables: Sequence[PostingTable], offsets: Sequence[Ints]) -> PostingTable:
    """Merge postings; `offsets` has the new offset of each passage of each table, -1 for a deleted one."""
    positions = {
        term: place
        for place, term in enumerate(sorted({term for table in tables for term in table.terms}))
    }
    columns: list[tuple[Ints, NDArray[np.uint8], Ints, NDArray[np.int32]]] = []
    for table, moved in zip(tables, offsets, strict=True):
        renumbered = np.fromiter(map(positions.__getitem__, table.terms), np.int64)
        offset = moved[table.offset]
        kept = offset >= 0
        columns.append(
            (
                renumbered[table.term[kept]],
                table.field[kept],
                offset[kept],
                table.frequency[kept],
            )
        )
    term, field, offset, frequency = (
        np.concatenate(column) for column in zip(*columns, strict=True)
    )
    # A term whose passages are all deleted disappears.
    used = np.unique(term)
    every = list(positions)
    return _sorted(
        [every[place] for place in used],
        np.searchsorted(used, term),
        field.astype(np.int64),
        offset,
        frequency,
    )


def encode_blocks(table: PostingTable) -> Iterator[tuple[bytes, bytes]]:
    """Yield the blocks of a segment in order, each with its first term."""
    count = len(table.terms)
    run_key = table.term << 8 | table.field
    run_starts = np.flatnonzero(np.diff(run_key, prepend=-1))
    run_terms, run_fields = table.term[run_starts], table.field[run_starts]
    run_counts = np.diff(run_starts, append=len(table.term))
    postings = np.searchsorted(table.term, np.arange(count + 1))
    runs = np.searchsorted(run_terms, np.arange(count + 1))
    sizes = 3 * np.diff(postings) + 3 * np.diff(runs) + 2 + [len(term) for term in table.terms]
    for begin, end in _groups(sizes.tolist()):
        part, part_runs = slice(postings[begin], postings[end]), slice(runs[begin], runs[end])
        frequency = table.frequency[part]
        wide = bool(frequency.min() < 0 or frequency.max() > 255)
        text = b"\0%b\0" % b"\0".join(table.terms[begin:end])
        parts = (
            _BLOCK.pack(
                wide,
                len(text),
                end - begin,
                part_runs.stop - part_runs.start,
                part.stop - part.start,
            ),
            text,
            np.diff(runs[begin : end + 1]).astype(np.uint8).tobytes(),
            run_fields[part_runs].tobytes(),
            (run_counts[part_runs] - 1).astype("<u2").tobytes(),
            table.offset[part].astype("<u2").tobytes(),
            frequency.astype("<i4" if wide else np.uint8).tobytes(),
        )
        yield table.terms[begin], b"".join(parts)


def _groups(sizes: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield half-open ranges of terms whose postings make up a block."""
    begin = total = 0
    for place, size in enumerate(sizes):
        if total and total + size > BLOCK_BYTES:
            yield begin, place
            begin, total = place, 0
        total += size
    if total:
        yield begin, len(sizes)


class _Block(NamedTuple):
    text: bytes
    run_numbers: NDArray[np.uint8]
    """Number of runs of each term."""
    run_fields: NDArray[np.uint8]
    run_counts: Ints
    offsets: NDArray[np.uint16]
    frequencies: NDArray[np.int32] | NDArray[np.uint8]


def _read(data: bytes) -> _Block:
    try:
        wide, text, terms, runs, postings = _BLOCK.unpack_from(data)
        start = _BLOCK.size + text
        numbers = np.frombuffer(data, np.uint8, terms, start)
        fields = np.frombuffer(data, np.uint8, runs, start + terms)
        counts = np.frombuffer(data, "<u2", runs, start + terms + runs).astype(np.int64) + 1
        start += terms + 3 * runs
        offsets = np.frombuffer(data, "<u2", postings, start)
        frequencies = np.frombuffer(
            data, "<i4" if wide else np.uint8, postings, start + 2 * postings
        )
    except (struct.error, ValueError) as error:
        raise DamagedSegment(str(error)) from error
    if counts.sum() != postings or numbers.sum() != runs or (fields >= len(FIELDS)).any():
        raise DamagedSegment("a block of postings contradicts itself")
    return _Block(
        data[_BLOCK.size : _BLOCK.size + text], numbers, fields, counts, offsets, frequencies
    )


def decode_blocks(blocks: Iterable[bytes]) -> PostingTable:
    """Return the postings of blocks in order."""
    terms: list[bytes] = []
    columns: list[tuple[Ints, NDArray[np.uint8], NDArray[np.uint16], NDArray[np.int32]]] = []
    for block in map(_read, blocks):
        numbers = np.repeat(np.arange(len(block.run_numbers)), block.run_numbers) + len(terms)
        columns.append(
            (
                np.repeat(numbers, block.run_counts),
                np.repeat(block.run_fields, block.run_counts),
                block.offsets,
                block.frequencies.astype(np.int32),
            )
        )
        terms += block.text[1:-1].split(b"\0")
    if not columns:
        none = np.empty(0, np.int64)
        return PostingTable(
            terms, none, none.astype(np.uint8), none.astype(np.uint16), none.astype(np.int32)
        )
    return PostingTable(terms, *(np.concatenate(column) for column in zip(*columns, strict=True)))


class Postings(NamedTuple):
    """Postings of one term in one segment, ready to be scored: fields in order, within them offsets in order."""

    counts: tuple[int, ...]
    """Number of postings of each field."""
    offsets: NDArray[np.uint16]
    keys: NDArray[np.uint32]
    """Place in a table of scores: by field, frequency and length code."""
    high: Ints
    """Positions of the postings whose frequency is beyond the table."""
    high_frequencies: NDArray[np.int32]

    @property
    def size(self) -> int:
        """Return the bytes in memory."""
        return 512 + 6 * len(self.offsets) + 12 * len(self.high)

    def of(self, field: int) -> Ints:
        """Return the offsets of the passages with the term in a field."""
        begin = sum(self.counts[:field])
        return self.offsets[begin : begin + self.counts[field]].astype(np.int64)


def find_postings(data: bytes, term: bytes, passages: Passages) -> Postings | None:
    """Return the postings of a term by its block, with those of `whole` computed; None if the block lacks the term."""
    block = _read(data)
    place = block.text.find(b"\0%b\0" % term)
    if place < 0 or not term or b"\0" in term:
        return None
    number = block.text.count(b"\0", 0, place)
    first_run = int(block.run_numbers[:number].sum())
    begin = int(block.run_counts[:first_run].sum())
    runs: dict[int, tuple[NDArray[np.uint16], NDArray[np.int32]]] = {}
    for run in range(first_run, first_run + int(block.run_numbers[number])):
        end = begin + int(block.run_counts[run])
        offsets, frequencies = block.offsets[begin:end], block.frequencies[begin:end]
        if len(offsets) and int(offsets.max()) >= len(passages):
            raise DamagedSegment("a posting is outside of its segment")
        runs[int(block.run_fields[run])] = offsets, frequencies.astype(np.int32)
        begin = end
    if not WHOLE_TIMES.keys().isdisjoint(runs):
        totals = np.zeros(len(passages), np.int32)
        for field, times in WHOLE_TIMES.items():
            if field in runs:
                totals[runs[field][0]] += times * runs[field][1]
        present = np.flatnonzero(totals > 0)
        runs[WHOLE_NUMBER] = present.astype(np.uint16), totals[present]
    fields = sorted(field for field in runs if len(runs[field][0]))
    if not fields:
        return None
    counts = tuple(len(runs[field][0]) if field in runs else 0 for field in range(len(FIELDS)))
    return _keyed(
        counts,
        np.concatenate([runs[field][0] for field in fields]).astype(np.uint16),
        np.concatenate([runs[field][1] for field in fields]),
        passages,
    )


def _keyed(
    counts: tuple[int, ...],
    offsets: NDArray[np.uint16],
    frequencies: NDArray[np.int32],
    passages: Passages,
) -> Postings:
    field = np.repeat(np.arange(len(FIELDS)), counts)
    high = np.flatnonzero(frequencies > MAX_TABLE_FREQUENCY)
    keys = np.minimum(frequencies, MAX_TABLE_FREQUENCY).astype(np.int64) * len(LENGTHS)
    keys += field * FIELD_KEYS
    keys += _CODES[passages.lengths[field, offsets]]
    return Postings(counts, offsets, keys.astype(np.uint32), high, frequencies[high])


def stored_lengths(blocks: Iterable[bytes], passages: int) -> NDArray[np.uint16]:
    """Return the lengths of all fields of passages, as the sums of the stored frequencies."""
    sums = np.zeros((len(FIELDS), passages), np.int64)
    for data in blocks:
        table = decode_blocks([data])
        if len(table.offset) and int(table.offset.max()) >= passages:
            raise DamagedSegment("a posting is outside of its segment")
        np.add.at(sums, (table.field, table.offset), table.frequency)
    for field, times in WHOLE_TIMES.items():
        if field != WHOLE_NUMBER:
            sums[WHOLE_NUMBER] += times * sums[field]
    return np.minimum(sums, MAX_LENGTH).astype(np.uint16)
