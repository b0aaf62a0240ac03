"""Encoding of postings: blocks of some 2 kB, sorted by term, with all postings in columns.

A block is a row of a table, so a commit of one document writes some ten rows and not one for each of a thousand terms. A posting
takes 3 bytes: an offset within the segment and a term frequency. All tables of the index take 380 to 490 bytes per passage, depending
on what merges left free; a table with a row for each term and passage takes 4,250, and 5 times as long for five common terms.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from marklight.engines.server.postgres.lexical.segments import (
    FIELDS,
    WHOLE_NUMBER,
    WHOLE_TIMES,
    DamagedSegment,
    Ints,
    PostingTable,
)

BLOCK_BYTES = 1_900
"""Size of a block. PostgreSQL stores rows up to 2 kB in place; a longer list of one term is a block of its own."""

_BLOCK = struct.Struct("<?IIII")
"""Wide frequencies or not; bytes of all terms; numbers of terms, runs and postings. A run is a field of a term."""


class Postings(NamedTuple):
    """Postings of one term in one segment: fields in order, within them offsets in order."""

    counts: tuple[int, ...]
    """Number of postings of each field."""
    offsets: NDArray[np.uint16]
    frequencies: NDArray[np.int32]

    def of(self, field: int) -> slice:
        """Return the place of the postings of a field."""
        begin = sum(self.counts[:field])
        return slice(begin, begin + self.counts[field])


NO_POSTINGS = Postings((0,) * len(FIELDS), np.empty(0, np.uint16), np.empty(0, np.int32))


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
        own, own_runs = slice(postings[begin], postings[end]), slice(runs[begin], runs[end])
        frequency = table.frequency[own]
        wide = bool(frequency.min() < 0 or frequency.max() > 255)
        text = b"\0%b\0" % b"\0".join(table.terms[begin:end])
        parts = (
            _BLOCK.pack(
                wide,
                len(text),
                end - begin,
                own_runs.stop - own_runs.start,
                own.stop - own.start,
            ),
            text,
            np.diff(runs[begin : end + 1]).astype(np.uint8).tobytes(),
            run_fields[own_runs].tobytes(),
            (run_counts[own_runs] - 1).astype("<u2").tobytes(),
            table.offset[own].astype("<u2").tobytes(),
            frequency.astype("<i4" if wide else np.uint8).tobytes(),
        )
        yield table.terms[begin], b"".join(parts)


def _groups(sizes: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield half-open ranges of terms whose postings make up a block."""
    begin = total = 0
    for at, size in enumerate(sizes):
        if total and total + size > BLOCK_BYTES:
            yield begin, at
            begin, total = at, 0
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
        at = _BLOCK.size + text
        numbers = np.frombuffer(data, np.uint8, terms, at)
        fields = np.frombuffer(data, np.uint8, runs, at + terms)
        counts = np.frombuffer(data, "<u2", runs, at + terms + runs).astype(np.int64) + 1
        at += terms + 3 * runs
        offsets = np.frombuffer(data, "<u2", postings, at)
        frequencies = np.frombuffer(data, "<i4" if wide else np.uint8, postings, at + 2 * postings)
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


def find_postings(data: bytes, term: bytes, passages: int) -> Postings:
    """Return the postings of a term by its block, with those of `whole` computed; none if the block lacks the term."""
    block = _read(data)
    at = block.text.find(b"\0%b\0" % term)
    if at < 0 or not term or b"\0" in term:
        return NO_POSTINGS
    number = block.text.count(b"\0", 0, at)
    run = int(block.run_numbers[:number].sum())
    begin = int(block.run_counts[:run].sum())
    own: dict[int, tuple[NDArray[np.uint16], NDArray[np.int32]]] = {}
    for at in range(run, run + int(block.run_numbers[number])):
        end = begin + int(block.run_counts[at])
        own[int(block.run_fields[at])] = (
            block.offsets[begin:end],
            block.frequencies[begin:end].astype(np.int32),
        )
        begin = end
    if any(len(offsets) and int(offsets[-1]) >= passages for offsets, _ in own.values()):
        raise DamagedSegment("a posting is outside of its segment")
    prose = [(times, *own[field]) for field, times in WHOLE_TIMES.items() if field in own]
    if prose:
        own[WHOLE_NUMBER] = _weighted_sum(prose, passages)
    found = [
        own.get(field, (NO_POSTINGS.offsets, NO_POSTINGS.frequencies))
        for field in range(len(FIELDS))
    ]
    return Postings(
        tuple(len(offsets) for offsets, _ in found),
        np.concatenate([offsets for offsets, _ in found]),
        np.concatenate([frequencies for _, frequencies in found]),
    )


def _weighted_sum(
    parts: Sequence[tuple[int, NDArray[np.uint16], NDArray[np.int32]]], passages: int
) -> tuple[NDArray[np.uint16], NDArray[np.int32]]:
    """Return the postings of a field that consists of others, each repeated some times."""
    if len(parts) == 1:
        times, offsets, frequencies = parts[0]
        return offsets, times * frequencies
    if 16 * sum(len(offsets) for _, offsets, _ in parts) < passages:
        every = np.concatenate([offsets for _, offsets, _ in parts])
        weights = np.concatenate([times * frequencies for times, _, frequencies in parts])
        offsets, places = np.unique(every, return_inverse=True)
        sums = np.bincount(places, weights, len(offsets)).astype(np.int32)
        return offsets[sums > 0], sums[sums > 0]
    totals = np.zeros(passages, np.int32)
    for times, offsets, frequencies in parts:
        totals[offsets] += times * frequencies
    present = np.flatnonzero(totals)
    return present.astype(np.uint16), totals[present]
