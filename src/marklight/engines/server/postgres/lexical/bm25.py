"""BM25 over decoded segments: exact scores of all matching passages, as the in-memory engine computes them.

A posting has a precomputed key of field, term frequency and length code, so that its score is one lookup in a table. A search for
five common terms among 100,000 passages takes 7 ms with cached postings and 28 ms without, on two cores with a load average of 4;
27 and 106 ms at one of 12 (benchmarks/postgres.py). So no postings are skipped.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from marklight.engines.lexical import K1, PHRASE_FIELDS, SCORE_DIGITS, WHOLE, B, idf
from marklight.engines.server.postgres.lexical.posting_blocks import Postings
from marklight.engines.server.postgres.lexical.segments import (
    FIELDS,
    LENGTHS,
    Ints,
    Passages,
    contains,
)

MAX_TABLE_FREQUENCY = 31
"""Higher term frequencies are computed without the table: they are one posting in thousands."""

_CODES = len(LENGTHS)
_FIELD_KEYS = (MAX_TABLE_FREQUENCY + 1) * _CODES
_TITLE, _WHOLE = FIELDS.index("title"), FIELDS.index(WHOLE)

Mask = NDArray[np.bool_]


class KeyedPostings(NamedTuple):
    """Postings of one term in one segment, ready to be scored."""

    counts: tuple[int, ...]
    """Number of postings of each field."""
    offsets: NDArray[np.uint16]
    keys: NDArray[np.uint32]
    """Place in a score table: by field, frequency and length code."""
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


def keyed(postings: Postings, passages: Passages) -> KeyedPostings:
    """Prepare the postings of a term for scoring."""
    field = np.repeat(np.arange(len(FIELDS)), postings.counts)
    offsets = postings.offsets.astype(np.int64)
    high = np.flatnonzero(postings.frequencies > MAX_TABLE_FREQUENCY)
    keys = np.minimum(postings.frequencies, MAX_TABLE_FREQUENCY).astype(np.int64) * _CODES
    keys += field * _FIELD_KEYS
    keys += passages.lengths[field, offsets]
    return KeyedPostings(
        postings.counts,
        postings.offsets.astype(np.uint16),
        keys.astype(np.uint32),
        high,
        postings.frequencies[high],
    )


@dataclass(frozen=True, eq=False)
class Segment:
    """A segment as a snapshot sees it."""

    id: int
    passages: Passages
    living: Mask | None = None
    """Mask of the passages that are not deleted; None if none is."""

    def frequencies(self, postings: KeyedPostings) -> Ints:
        """Return the number of living passages with the term in each field."""
        counts = np.array(postings.counts)
        if self.living is None:
            return counts
        alive = np.concatenate(([0], np.cumsum(self.living[postings.offsets.astype(np.int64)])))
        ends = np.cumsum(counts)
        found: Ints = alive[ends] - alive[ends - counts]
        return found


GetPostings = Callable[[Segment, str], KeyedPostings | None]
"""Returns the postings of a term in a segment; None if it has none."""


class ScoreTable:
    """Scores of a posting by its key, before weights, for one set of average lengths."""

    def __init__(self, passages: int, totals: Sequence[int]) -> None:
        """Take the number of living passages and the sums of their lengths by field."""
        self.passages = passages
        averages = np.array([max(total, 1) for total in totals]) / max(1, passages)
        self._norms = K1 * (1 - B + B * LENGTHS[None, :] / averages[:, None])
        frequencies = np.arange(MAX_TABLE_FREQUENCY + 1)[None, :, None]
        self._table = (K1 + 1) * frequencies / (frequencies + self._norms[:, None, :])

    def weighted(self, weights: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the table with a weight for each field."""
        return (self._table * weights[:, None, None]).ravel()

    def high_scores(
        self, postings: KeyedPostings, weights: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """Return the scores of postings whose frequencies are beyond the table."""
        keys = postings.keys[postings.high].astype(np.int64)
        field, code = keys // _FIELD_KEYS, keys % _CODES
        often = postings.high_frequencies
        scores: NDArray[np.float64] = (
            weights[field] * (K1 + 1) * often / (often + self._norms[field, code])
        )
        return scores


def search(
    segments: Sequence[Segment],
    table: ScoreTable,
    terms: Sequence[str],
    boosts: Mapping[str, float],
    get: GetPostings,
    masks: Sequence[Mask | None],
    limit: int,
) -> list[tuple[int, float]]:
    """Return rows of the best passages with their scores, best first, with all that tie for the last place.

    `masks` selects the passages of each segment that match the filters; None for all.
    """
    values: list[list[NDArray[np.float64]]] = [[] for _ in segments]
    offsets: list[list[Ints]] = [[] for _ in segments]
    for term, times in Counter(terms).items():
        own = [(at, found) for at, segment in enumerate(segments) if (found := get(segment, term))]
        if not own:
            continue
        weights = times * _weights(segments, own, boosts, table.passages)
        begin, end = _span(weights)
        scores = table.weighted(weights)
        for at, postings in own:
            place = slice(sum(postings.counts[:begin]), sum(postings.counts[:end]))
            score = scores[postings.keys[place].astype(np.int64)]
            if len(postings.high):
                inside = (postings.high >= place.start) & (postings.high < place.stop)
                high = table.high_scores(postings, weights)[inside]
                score[postings.high[inside] - place.start] = high
            values[at].append(score)
            offsets[at].append(postings.offsets[place].astype(np.int64))
    rows, totals = [], []
    for at, segment in enumerate(segments):
        if not values[at]:
            continue
        sums = np.bincount(
            np.concatenate(offsets[at]), np.concatenate(values[at]), len(segment.passages)
        )
        matching = sums > 0
        for mask in (segment.living, masks[at]):
            if mask is not None:
                matching &= mask
        rows.append(segment.passages.rows[matching])
        totals.append(sums[matching])
    return _best(np.concatenate(rows), np.concatenate(totals), limit) if rows else []


def _weights(
    segments: Sequence[Segment],
    own: Sequence[tuple[int, KeyedPostings]],
    boosts: Mapping[str, float],
    passages: int,
) -> NDArray[np.float64]:
    """Return boost times idf of a term for each field."""
    frequencies = sum((segments[at].frequencies(postings) for at, postings in own), np.int64(0))
    return np.array(
        [
            boosts.get(field, 0.0) * idf(passages, int(frequency)) if frequency else 0.0
            for field, frequency in zip(FIELDS, np.atleast_1d(frequencies), strict=True)
        ]
    )


def _span(weights: NDArray[np.float64]) -> tuple[int, int]:
    """Return the half-open range of fields outside of which no weight is positive."""
    used = np.flatnonzero(weights)
    return (int(used[0]), int(used[-1]) + 1) if len(used) else (0, 0)


def _best(rows: Ints, scores: NDArray[np.float64], limit: int) -> list[tuple[int, float]]:
    if len(rows) > limit:
        # Scores are rounded only where that decides: rounding all takes longer than the selection.
        least = np.partition(scores, len(scores) - limit)[len(scores) - limit]
        near = scores >= least - 10.0**-SCORE_DIGITS
        rows, scores = rows[near], scores[near]
    ranked = sorted(
        (
            (int(row), round(float(score), SCORE_DIGITS))
            for row, score in zip(rows, scores, strict=True)
        ),
        key=lambda each: (-each[1], each[0]),
    )
    if len(ranked) > limit:
        last = ranked[limit - 1][1]
        ranked = [each for each in ranked if each[1] >= last]
    return ranked


def document_frequency(segments: Sequence[Segment], term: str, get: GetPostings) -> int:
    """Return the number of living passages with a term in any prose field."""
    return sum(
        int(segment.frequencies(postings)[_WHOLE])
        for segment in segments
        if (postings := get(segment, term))
    )


def rows_with_all(
    segment: Segment, terms: Sequence[str], get: GetPostings, mask: Mask | None
) -> Ints:
    """Return the rows of living passages that have all terms in one of the fields in which phrases occur."""
    found = np.zeros(len(segment.passages), bool)
    own = [get(segment, term) for term in dict.fromkeys(terms)]
    lists = [postings for postings in own if postings]
    if len(lists) < len(own):
        return segment.passages.rows[found]
    for field in PHRASE_FIELDS:
        # The rarest first: it limits the rest.
        common, *others = sorted((each.of(FIELDS.index(field)) for each in lists), key=len)
        for other in others:
            common = np.intersect1d(common, other, assume_unique=True)
        found[common] = True
    for selected in (segment.living, mask):
        if selected is not None:
            found &= selected
    return segment.passages.rows[found]


def rows_with(segment: Segment, term: str, field: str, get: GetPostings, mask: Mask | None) -> Ints:
    """Return the rows of living passages that have a term in a field."""
    postings = get(segment, term)
    if postings is None:
        return segment.passages.rows[:0]
    offsets = postings.of(FIELDS.index(field))
    for selected in (segment.living, mask):
        if selected is not None:
            offsets = offsets[selected[offsets]]
    return segment.passages.rows[offsets]


def held_terms(
    segment: Segment, offsets: Ints, terms: Sequence[str], get: GetPostings
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Return which terms each passage has anywhere and in its title: a row for each passage, a column for each term."""
    anywhere = np.zeros((len(offsets), len(terms)), bool)
    in_title = np.zeros((len(offsets), len(terms)), bool)
    for column, term in enumerate(terms):
        if postings := get(segment, term):
            anywhere[:, column] = contains(postings.of(_WHOLE), offsets)
            in_title[:, column] = contains(postings.of(_TITLE), offsets)
    return anywhere, in_title
