"""BM25 over the segments of a snapshot: exact scores of all matching passages, as the in-memory engine computes them.

A posting has a precomputed key of field, term frequency and length code, so that its score is one lookup in a table. A search for
five common terms among 100,000 passages takes 7 ms with cached postings and 28 ms without, on two cores with a load average of 4;
27 and 106 ms at one of 12 (benchmarks/postgres.py). So no postings are skipped.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from marklight.engines.server.bm25 import LENGTHS, Floats, Ints, norms, term_scores
from marklight.engines.server.postgres.segments import (
    FIELD_KEYS,
    FIELDS,
    MAX_TABLE_FREQUENCY,
    NO_ROWS,
    Passages,
    Postings,
    contains,
)
from marklight.lazy import dataclass
from marklight.lexical import PHRASE_FIELDS, SCORE_DIGITS, WHOLE, idf

_TITLE, _WHOLE = FIELDS.index("title"), FIELDS.index(WHOLE)

Mask = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Segment:
    """A segment as a snapshot sees it."""

    id: int
    passages: Passages
    deleted: Ints = field(default_factory=lambda: NO_ROWS)
    """Documents that its commits deleted from older segments."""
    living: Mask | None = None
    """Mask of the passages that are not deleted; None if none is."""

    @property
    def size(self) -> int:
        """Return the bytes in memory."""
        stored = self.passages.rows, self.passages.documents, self.passages.lengths, self.deleted
        return sum(array.nbytes for array in stored) + len(self.passages)

    def frequencies(self, postings: Postings) -> Ints:
        """Return the number of living passages with the term in each field."""
        counts = np.array(postings.counts)
        if self.living is None:
            return counts
        alive = np.concatenate(([0], np.cumsum(self.living[postings.offsets.astype(np.int64)])))
        ends = np.cumsum(counts)
        result: Ints = alive[ends] - alive[ends - counts]
        return result

    def selected(self, mask: Mask | None) -> Mask:
        """Return a mask of the living passages that another mask selects; None selects all."""
        masks = [chosen for chosen in (self.living, mask) if chosen is not None]
        return np.logical_and.reduce(masks) if masks else np.ones(len(self.passages), bool)


GetPostings = Callable[[Segment, str], Postings | None]
"""Returns the postings of a term in a segment; None if it has none."""


class ScoreTable:
    """Scores of a posting by its key, before weights, for one set of average lengths."""

    def __init__(self, passages: int, totals: Sequence[int]) -> None:
        """Take the number of living passages and the sums of their lengths by field."""
        means = np.array([max(total, 1) for total in totals]) / max(1, passages)
        self._norms = norms(LENGTHS[None, :], means[:, None])
        frequencies = np.arange(MAX_TABLE_FREQUENCY + 1)[None, :, None]
        self._table = term_scores(frequencies, self._norms[:, None, :])

    def weighted(self, weights: Floats) -> Floats:
        """Return the table with a weight for each field."""
        return (self._table * weights[:, None, None]).ravel()

    def high_scores(self, postings: Postings, weights: Floats) -> Floats:
        """Return the scores of postings whose frequencies are beyond the table."""
        keys = postings.keys[postings.high].astype(np.int64)
        field, code = keys // FIELD_KEYS, keys % len(LENGTHS)
        scores: Floats = weights[field] * term_scores(
            postings.high_frequencies, self._norms[field, code]
        )
        return scores


class VisibleSegments(NamedTuple):
    """The segments of a snapshot without deleted passages; the same for all snapshots with these segments."""

    segments: list[Segment]
    passages: int
    """Number of living passages."""
    table: ScoreTable

    @classmethod
    def of(cls, segments: Sequence[Segment]) -> VisibleSegments:
        """Return the segments without the passages that any of them deletes."""
        deleted = np.concatenate([NO_ROWS, *(segment.deleted for segment in segments)])
        visible, count, totals = [], 0, np.zeros(len(FIELDS), np.int64)
        for segment in segments:
            living = ~np.isin(segment.passages.documents, deleted)
            visible.append(replace(segment, living=None if living.all() else living))
            count += int(living.sum())
            totals += segment.passages.lengths[:, living].sum(axis=1, dtype=np.int64)
        return cls(visible, count, ScoreTable(count, totals.tolist()))

    @property
    def size(self) -> int:
        """Return the bytes in memory."""
        return sum(segment.size for segment in self.segments)


def best_passages(
    visible: VisibleSegments,
    terms: Sequence[str],
    boosts: Mapping[str, float],
    get: GetPostings,
    masks: Sequence[Mask | None],
    limit: int,
) -> list[tuple[int, float]]:
    """Return rows of the best passages with their scores, best first, with all that tie for the last place.

    `masks` selects the passages of each segment that match the filters; None for all.
    """
    segments, passages, table = visible
    values: list[list[Floats]] = [[] for _ in segments]
    offsets: list[list[Ints]] = [[] for _ in segments]
    for term, times in Counter(terms).items():
        lists = [
            (place, postings)
            for place, segment in enumerate(segments)
            if (postings := get(segment, term))
        ]
        if not lists:
            continue
        weights = times * _weights(segments, lists, boosts, passages)
        begin, end = _span(weights)
        scores = table.weighted(weights)
        for part, postings in lists:
            place = slice(sum(postings.counts[:begin]), sum(postings.counts[:end]))
            score = scores[postings.keys[place].astype(np.int64)]
            if len(postings.high):
                inside = (postings.high >= place.start) & (postings.high < place.stop)
                high = table.high_scores(postings, weights)[inside]
                score[postings.high[inside] - place.start] = high
            values[part].append(score)
            offsets[part].append(postings.offsets[place].astype(np.int64))
    rows, totals = [], []
    for part, segment in enumerate(segments):
        if not values[part]:
            continue
        sums = np.bincount(
            np.concatenate(offsets[part]), np.concatenate(values[part]), len(segment.passages)
        )
        matching = (sums > 0) & segment.selected(masks[part])
        rows.append(segment.passages.rows[matching])
        totals.append(sums[matching])
    return _best(np.concatenate(rows), np.concatenate(totals), limit) if rows else []


def _weights(
    segments: Sequence[Segment],
    lists: Sequence[tuple[int, Postings]],
    boosts: Mapping[str, float],
    passages: int,
) -> Floats:
    """Return boost times idf of a term for each field."""
    frequencies = sum(
        (segments[part].frequencies(postings) for part, postings in lists), np.int64(0)
    )
    return np.array(
        [
            boosts.get(field, 0.0) * idf(passages, int(frequency)) if frequency else 0.0
            for field, frequency in zip(FIELDS, np.atleast_1d(frequencies), strict=True)
        ]
    )


def _span(weights: Floats) -> tuple[int, int]:
    """Return the half-open range of fields outside of which no weight is positive."""
    used = np.flatnonzero(weights)
    return (int(used[0]), int(used[-1]) + 1) if len(used) else (0, 0)


def _best(rows: Ints, scores: Floats, limit: int) -> list[tuple[int, float]]:
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
        key=lambda result: (-result[1], result[0]),
    )
    if len(ranked) > limit:
        last = ranked[limit - 1][1]
        ranked = [result for result in ranked if result[1] >= last]
    return ranked


def document_frequency(visible: VisibleSegments, term: str, get: GetPostings) -> int:
    """Return the number of living passages with a term in any prose field."""
    return sum(
        int(segment.frequencies(postings)[_WHOLE])
        for segment in visible.segments
        if (postings := get(segment, term))
    )


def rows_with_all(
    segment: Segment, terms: Sequence[str], get: GetPostings, mask: Mask | None
) -> Ints:
    """Return the rows of living passages that have all terms in one of the fields in which phrases occur."""
    lists = [get(segment, term) for term in dict.fromkeys(terms)]
    matching = np.zeros(len(segment.passages), bool)
    if all(lists):
        for field in PHRASE_FIELDS:
            # The rarest first: it limits the rest.
            offsets = [postings.of(FIELDS.index(field)) for postings in lists if postings]
            common, *others = sorted(offsets, key=len)
            for other in others:
                common = np.intersect1d(common, other, assume_unique=True)
            matching[common] = True
    return segment.passages.rows[matching & segment.selected(mask)]


def rows_with(segment: Segment, term: str, field: str, get: GetPostings, mask: Mask | None) -> Ints:
    """Return the rows of living passages that have a term in a field."""
    postings = get(segment, term)
    if postings is None:
        return NO_ROWS
    offsets = postings.of(FIELDS.index(field))
    return segment.passages.rows[offsets[segment.selected(mask)[offsets]]]


def held_terms(
    segment: Segment, offsets: Ints, terms: Sequence[str], get: GetPostings
) -> tuple[Mask, Mask]:
    """Return which terms each passage has anywhere and in its title: a row for each passage, a column for each term."""
    anywhere = np.zeros((len(offsets), len(terms)), bool)
    in_title = np.zeros((len(offsets), len(terms)), bool)
    for column, term in enumerate(terms):
        if postings := get(segment, term):
            anywhere[:, column] = contains(postings.of(_WHOLE), offsets)
            in_title[:, column] = contains(postings.of(_TITLE), offsets)
    return anywhere, in_title
