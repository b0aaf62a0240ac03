"""Segments of the lexical index in PostgreSQL: immutable, at most 65,536 passages, built and merged with numpy.

The field `whole` is stored as its difference from the fields that it is made of, which is mostly zero and halves the size.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from marklight.engines.lexical import FIELDS as FIELDS
from marklight.engines.lexical import PROSE, TITLE_TIMES, WHOLE

MAX_PASSAGES = 1 << 16
"""Passages in one segment: offsets have two bytes."""
MAX_TERM_BYTES = 255
"""Longer terms are replaced by a digest: a key of an index in PostgreSQL must be below 2.7 kB."""

WHOLE_NUMBER = FIELDS.index(WHOLE)
WHOLE_TIMES = {FIELDS.index(field): TITLE_TIMES if field == "title" else 1 for field in PROSE}
"""Number of times that `whole` repeats each prose field; for `whole` itself, the difference that remains."""

Ints = NDArray[np.int64]
NO_ROWS: Ints = np.empty(0, np.int64)


class DamagedSegment(ValueError):
    """Raised for stored bytes that are not a segment."""


class Passage(NamedTuple):
    """A passage to be indexed: its row, that of its document, and its terms by field."""

    row: int
    document: int
    terms: Mapping[str, Sequence[str]]


def contains(ascending: Ints, values: Ints) -> NDArray[np.bool_]:
    """Return which values a sorted array contains."""
    if not len(ascending):
        return np.zeros(len(values), bool)
    at = np.minimum(np.searchsorted(ascending, values), len(ascending) - 1)
    found: NDArray[np.bool_] = ascending[at] == values
    return found


@dataclass(frozen=True, eq=False)
class Passages:
    """The passages of a segment, ordered by row."""

    rows: Ints
    documents: Ints
    lengths: NDArray[np.uint8]
    """Codes of the lengths of all fields: a row for each field, a column for each passage."""

    @classmethod
    def decode(cls, rows: bytes, documents: bytes, lengths: bytes) -> Passages:
        """Return the passages of a segment from the bytes of its columns."""
        try:
            return cls(
                np.frombuffer(rows, "<i8"),
                np.frombuffer(documents, "<i8").reshape(len(rows) // 8),
                np.frombuffer(lengths, np.uint8).reshape(len(FIELDS), len(rows) // 8),
            )
        except ValueError as error:
            raise DamagedSegment(str(error)) from error

    def encode(self) -> tuple[bytes, bytes, bytes]:
        """Return the bytes of the columns: rows, documents, lengths."""
        rows, documents = self.rows.astype("<i8"), self.documents.astype("<i8")
        return rows.tobytes(), documents.tobytes(), self.lengths.tobytes()

    def __len__(self) -> int:
        return len(self.rows)

    def compare_lengths(self, frequencies: Ints) -> str:
        """Return a problem unless the lengths are the sums of the stored frequencies, a row for each field."""
        lengths = frequencies.copy()
        for field, times in WHOLE_TIMES.items():
            if field != WHOLE_NUMBER:
                lengths[WHOLE_NUMBER] += times * frequencies[field]
        equal = (length_codes(lengths) == self.lengths).all()
        return "" if equal else "the lengths of its passages differ from their postings"

    @cached_property
    def _by_document(self) -> tuple[Ints, Ints | None]:
        """Return the documents in ascending order and the offsets of their passages; None if these ascend too."""
        if (np.diff(self.documents) >= 0).all():
            return self.documents, None
        order = np.argsort(self.documents, kind="stable")
        return self.documents[order], order

    def of_documents(self, documents: Ints) -> NDArray[np.bool_]:
        """Return a mask of the passages of some documents, given in ascending order."""
        if len(documents) > len(self):
            return contains(documents, self.documents)
        every, order = self._by_document
        begin = np.searchsorted(every, documents, "left")
        end = np.searchsorted(every, documents, "right")
        steps = np.zeros(len(every) + 1, np.int32)
        np.add.at(steps, begin, 1)
        np.add.at(steps, end, -1)
        inside = np.cumsum(steps[:-1]) > 0
        if order is None:
            return inside
        mask = np.empty_like(inside)
        mask[order] = inside
        return mask

    def of_rows(self, rows: Ints) -> NDArray[np.bool_]:
        """Return a mask of the passages with these rows, given in ascending order."""
        if len(rows) > len(self):
            return contains(rows, self.rows)
        mask = np.zeros(len(self), bool)
        mask[self.offsets(rows)[0]] = True
        return mask

    def offsets(self, rows: Ints) -> tuple[Ints, NDArray[np.bool_]]:
        """Return the offsets of those rows that the segment has, and a mask of them."""
        known = contains(self.rows, rows)
        return np.searchsorted(self.rows, rows[known]), known


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


def _distinct_lengths() -> NDArray[np.int64]:
    """Return the lengths that a code stands for: as tantivy stores them, exact below 40, then with 4 significant bits above 24."""
    exact = range(40)
    rounded = (24 + (mantissa << step) for step in range(1, 28) for mantissa in range(8, 16))
    return np.array([*exact, *rounded], np.int64)


LENGTHS = _distinct_lengths()
"""Length of a field by its code."""


def length_codes(lengths: Ints) -> NDArray[np.uint8]:
    """Return the codes of lengths, each rounded down to one that has a code."""
    return (np.searchsorted(LENGTHS, lengths, "right") - 1).astype(np.uint8)


def term_key(term: str) -> bytes:
    """Return a term as it is stored: a term that is too long is replaced by its digest."""
    key = term.encode("utf-8", "surrogatepass")
    if 0 < len(key) <= MAX_TERM_BYTES and b"\0" not in key:
        return key
    return b"\xff" + blake2b(key, digest_size=16).hexdigest().encode()


def build(passages: Sequence[Passage]) -> tuple[Passages, PostingTable, Ints]:
    """Return a segment of passages, ordered by row, and the exact lengths of their fields, a row for each field."""
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
    positions = {term: at for at, term in enumerate(terms)}
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
        length_codes(lengths),
    )
    return segment, table, lengths


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
        term: at
        for at, term in enumerate(sorted({term for table in tables for term in table.terms}))
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
        [every[at] for at in used],
        np.searchsorted(used, term),
        field.astype(np.int64),
        offset,
        frequency,
    )
