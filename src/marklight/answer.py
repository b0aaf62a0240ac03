"""Define the immutable data types of the answer to a query: hits, the trace of their scores, and the answer."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from datetime import datetime, timedelta
from math import ceil
from typing import TYPE_CHECKING, Any, NamedTuple

from marklight.lazy import dataclass
from marklight.model import Chunk, Counts, DocumentId, Kind, Unit, json_keys
from marklight.query import Query

if TYPE_CHECKING:
    from marklight.text.snippets import QueryTerms

CHARACTERS_PER_TOKEN = 3.4
"""Estimate where only the length is known: English documentation by the tokenizer that Anthropic has published."""

NO_INPUTS: Mapping[str, float] = {}


class Result:
    """Result of an operation, whose type declares its JSON by `json_keys`."""

    __slots__ = ()

    def to_dict(self) -> dict[str, Any]:
        """Return the result as JSON values, the same on every surface."""
        from marklight.serialization import json_values

        values: dict[str, Any] = json_values(self)
        return values


@json_keys("stage value formula? inputs?")
class Why(NamedTuple):
    """One entry of a hit's trace: a stage or a feature, its value, and how the value was computed."""

    stage: str
    value: float
    """The new score, if the entry is of a stage that changed the score."""
    formula: str = ""
    """How the value was computed from `inputs`, such as `answer × relevance`."""
    inputs: Mapping[str, float] = NO_INPUTS
    """Numbers by name."""


@json_keys("chunk_id document@lines title anchor lines score")
class SimilarHit(NamedTuple):
    """A passage that duplicate removal merged into a better hit."""

    chunk_id: str
    """ID of the passage."""
    document: DocumentId
    title: str
    """Title of the document."""
    anchor: str
    """Anchor of the innermost heading."""
    lines: tuple[int, int]
    """First and last line, starting at 1."""
    score: float

    @property
    def path(self) -> str:
        return self.document.path


@json_keys("document@lines title anchor lines")
class LinkedDocument(NamedTuple):
    """A document that is linked with a result and is no result itself, with its passage nearest to the query."""

    document: DocumentId
    title: str
    """Title of the document."""
    anchor: str
    """Anchor of the passage nearest to the query."""
    lines: tuple[int, int]
    """First and last line, starting at 1."""

    @property
    def path(self) -> str:
        return self.document.path


@dataclass(frozen=True, slots=True)
class Hit:
    """A passage with its score, higher is better, and what stages hand on about it."""

    chunk: Chunk
    score: float
    trace: tuple[Why, ...] | None = ()
    """How the score was computed, for people: stages append to it and never read it. None without `explain`."""
    answer_probability: float | None = None
    """The probability that the library contains an answer to the query, where the fusion computes it."""
    rank_sum: float | None = None
    """The sum of reciprocal rank fusion, where that is the fusion."""
    coverage: float = 0.0
    """The idf-weighted share of the query terms that the passage contains, where the fusion computes it."""
    exact_match: bool = False
    """The query is a title, heading or keyword of the document, and the score was raised for it."""
    similar: tuple[SimilarHit, ...] = ()
    """The duplicates that were merged into it, best first."""
    linked: tuple[LinkedDocument, ...] = ()
    """Documents that are linked with this one and are no results themselves, nearest to the query first."""
    further: tuple[str, ...] = ()
    """Ids of the passages of the document that match too and are no results, since a document has a limited number."""
    continues: Unit | None = None
    """Rest of the list, table, procedure, definition list or code block that the passage ends in."""

    @property
    def why(self) -> tuple[Why, ...]:
        """Return the trace of the score; empty without `explain`."""
        return self.trace or ()

    def merged_with(self, others: Iterable[Hit]) -> Hit:
        """Return the hit with its duplicates, and those that were merged into them, as `similar`."""
        merged = [*self.similar]
        for other in others:
            chunk = other.chunk
            merged.append(
                SimilarHit(
                    chunk.id, chunk.document, chunk.title, chunk.anchor, chunk.lines, other.score
                )
            )
            merged += other.similar
        ordered = sorted(merged, key=lambda similar: (-similar.score, similar.chunk_id))
        return replace(self, similar=tuple(ordered))

    def rescored(self, score: float, by: str, formula: str = "", **inputs: float) -> Hit:
        """Return the hit with a new score and a trace entry for the stage that set it."""
        trace = self.trace
        if trace is not None:
            trace = (*trace, Why(by, score, formula, inputs))
        return self._changed(self.chunk, score, trace)

    def with_chunk(self, chunk: Chunk) -> Hit:
        """Return the hit with another passage."""
        return self._changed(chunk, self.score, self.trace)

    def with_further(self, further: tuple[str, ...]) -> Hit:
        """Return the hit with the ids of other passages of its document that match."""
        return self._changed(self.chunk, self.score, self.trace, further)

    @property
    def more(self) -> int:
        """Return the number of other passages of its document that match."""
        return len(self.further)

    def _changed(
        self,
        chunk: Chunk,
        score: float,
        trace: tuple[Why, ...] | None,
        further: tuple[str, ...] | None = None,
    ) -> Hit:
        # `dataclasses.replace` takes three times as long.
        return Hit(
            chunk,
            score,
            trace,
            self.answer_probability,
            self.rank_sum,
            self.coverage,
            self.exact_match,
            self.similar,
            self.linked,
            self.further if further is None else further,
            self.continues,
        )

    def __str__(self) -> str:
        from marklight import formatting

        return formatting.hit_text(self)


Hits = tuple[Hit, ...]

ANSWERS = 0.5
"""Calibrated score from which a passage is more likely relevant than not."""
DOUBTFUL = 0.3
"""Calibrated score of the best passage below which none is likely to answer."""
UNLIKELY = "No passage is likely to answer this"
MOST = 0.5
"""Term coverage above which a passage contains most of the query. For 14 broad queries about generated notes, 80 instead of 40
right documents are among ten results with it (`python -m benchmarks.everyday vault`)."""


def verdict(hit: Hit) -> str:
    """Return how well a passage matches, for people; it holds only if scores are calibrated (`Answer.calibrated`).

    answers: more likely relevant than not; mentions: less likely, and contains most of the query's terms, as the results
    of a broad query of one word do; weak: neither.
    """
    if hit.score >= ANSWERS:
        return "answers"
    return "mentions" if hit.coverage > MOST or hit.exact_match else "weak"


def unlikely(best: float) -> str:
    """Return that no passage is likely to answer, with the highest probability of one."""
    return f"{UNLIKELY} (best {best:.2f})"


def best_first(hits: Iterable[Hit]) -> Hits:
    """Sort by descending score; ties are broken by passage id."""
    return tuple(sorted(hits, key=lambda hit: (-hit.score, hit.chunk.id)))


@json_keys("stage count ms")
@dataclass(frozen=True, slots=True)
class Step:
    """One stage of a search: the number of hits it returned and its duration."""

    stage: str
    count: int
    ms: float


@json_keys("level=name lines characters tokens")
class Level(NamedTuple):
    """A context level of a passage: its lines and size."""

    name: str
    lines: tuple[int, int]
    """First and last line, starting at 1."""
    characters: int

    @property
    def tokens(self) -> int:
        """Return the estimated number of tokens."""
        return ceil(self.characters / CHARACTERS_PER_TOKEN)


@json_keys(
    "rank score verdict chunk_id document@lines title headings anchor lines kind content snippet highlight modified dated levels"
    " similar linked more continues boilerplate why"
)
@dataclass(frozen=True, slots=True)
class RankedPassage:
    """A result as JSON contains it: the passage, its score, and what the answer has about its document."""

    rank: int
    score: float
    """Probability that this answers the query, 0 to 1."""
    verdict: str | None
    """The score in a word: answers, mentions (has most of the query's terms) or weak; null if scores are not calibrated."""
    chunk_id: str
    """ID of the passage."""
    document: DocumentId
    title: str
    """Title of the document."""
    headings: tuple[str, ...]
    """Headings above the passage, outermost first."""
    anchor: str
    """Anchor of the innermost heading."""
    lines: tuple[int, int]
    """First and last line, starting at 1."""
    kind: Kind
    """Kind of passage: prose, code, list, table or another."""
    content: str
    """The passage, as it is in the document."""
    snippet: str
    """The part that answers the query, as text without markup."""
    highlight: tuple[int, int]
    """The sentence of the snippet that answers: first character, and the one after the last; both 0 if none has a term of the query."""
    modified: str
    """Modification time of the file, in UTC."""
    dated: str
    """Date that the filters after and before use, in UTC: the document's own date, else the modification time."""
    levels: Sequence[Level]
    """Context levels of the passage and their sizes."""
    similar: tuple[SimilarHit, ...]
    """Duplicates that were merged into this result."""
    linked: tuple[LinkedDocument, ...]
    """Documents linked with this one that are no results themselves."""
    more: int
    """Number of passages of the document that match too and are no results: a document has a limited number."""
    continues: str | None
    """The place where its list, table, procedure, definition list or code block goes on; null if it is complete."""
    boilerplate: tuple[tuple[int, int], ...]
    """Parts of `content` that many documents share and that are not ranked: first character, and the one after the last."""
    why: tuple[Why, ...]
    """Contributions to the score; empty without explain."""


class Ranking(NamedTuple):
    """Result of the search pipeline: ranked hits, counts of candidates, and the query as rewritten."""

    query: Query
    """The query as rewritten."""
    hits: Hits
    nearest: Hits = ()
    """The closest passages, best first, where the search abstained: candidates below the threshold."""
    abstained: str | None = None
    """Why there are no hits."""
    below_threshold: bool = False
    """Candidates were left out by the default threshold, not by one of the caller."""
    stats: Mapping[str, int] = {}
    steps: Sequence[Step] = ()
    calibrated: bool = False
    """Scores are calibrated probabilities for this mode, model and language of the query."""

    @property
    def passages(self) -> Hits:
        """Return the hits or, where the search abstained, the closest passages."""
        return self.hits or self.nearest

    def with_passages(self, passages: Hits) -> Ranking:
        """Return the ranking with these passages in place of its own."""
        return self._replace(hits=passages) if self.hits else self._replace(nearest=passages)

    def without(self, documents: Collection[DocumentId], reason: str) -> Ranking:
        """Return the ranking without passages of some documents; `reason` is why none is left."""
        if not documents:
            return self
        hits, nearest = (
            tuple(hit for hit in passages if hit.chunk.document not in documents)
            for passages in (self.hits, self.nearest)
        )
        abstained = self.abstained if hits or nearest else reason
        return self._replace(hits=hits, nearest=nearest, abstained=abstained)


@json_keys(
    "query results calibrated abstained doubt nearest=nearest_results advice=own_advice stats steps=shown_steps index notices"
    " took_ms commits?"
)
@dataclass(frozen=True, slots=True)
class Answer(Result):
    """The result of a search: a ranking with the state of the index, notices, and what is shown about the documents."""

    query: Query
    hits: Hits
    nearest: Hits = ()
    abstained: str | None = None
    """Why there are no results; null if there are some."""
    below_threshold: bool = False
    stats: Mapping[str, int] = field(default_factory=dict)
    """Number of candidates left after each step."""
    steps: Sequence[Step] = ()
    calibrated: bool = False
    """Scores are calibrated probabilities for this mode, model and language of the query."""
    index: Counts = field(default_factory=Counts)
    notices: Sequence[str] = ()
    """Remarks: degraded results, omissions, problems."""
    modified: Mapping[DocumentId, int] = field(default_factory=dict)
    """Modification times of files in nanoseconds since the epoch."""
    dates: Mapping[DocumentId, float] = field(default_factory=dict)
    """Dates of documents in seconds since the epoch: their own date, else the modification time."""
    levels: Mapping[str, Sequence[Level]] = field(default_factory=dict)
    """Context levels of each hit, by passage id."""
    took_ms: float = 0.0
    explain: bool = False
    several_collections: bool = False
    """Paths need their collection as a prefix to be unambiguous."""
    commits: Answer | None = None
    """The commits that match the same query, where the history was searched too."""

    def __iter__(self) -> Iterator[Hit]:
        return iter(self.hits)

    def __len__(self) -> int:
        """Return the number of hits; an answer without any is false."""
        return len(self.hits)

    @property
    def passages(self) -> Hits:
        """Return the hits or, where the search abstained, the closest passages."""
        return self.hits or self.nearest

    @property
    def doubt(self) -> str | None:
        """Return that no passage is likely to answer, of the results or the closest passages; null if one is, or if there are none."""
        if not self.hits:
            return self.abstained if self.nearest else None
        best = max(hit.score for hit in self.hits)
        is_doubtful = self.calibrated and self.query.text and best < DOUBTFUL
        return unlikely(best) if is_doubtful else None

    def empty_reason(self, shows_all: str) -> str | None:
        """Return why there are no results and which option, called `shows_all`, shows the closest passages."""
        advice = self.advice(shows_all)
        return f"{self.abstained}. {advice}" if advice else self.abstained

    def advice(self, shows_all: str) -> str | None:
        """Return how to see the closest passages, if the search abstained from showing any."""
        left_out = self.abstained is not None and self.below_threshold
        return f"Use {shows_all} to see the closest passages" if left_out else None

    @property
    def results(self) -> tuple[RankedPassage, ...]:
        """Return the results, best first."""
        return self._ranked(self.hits)

    @property
    def nearest_results(self) -> tuple[RankedPassage, ...]:
        """Return the closest passages, if the search abstained; else empty."""
        return self._ranked(self.nearest)

    @property
    def own_advice(self) -> str | None:
        """Return how to see the results that were below the threshold."""
        return self.advice("min_confidence 0")

    @property
    def shown_steps(self) -> Sequence[Step]:
        """Return the stages with their timings; empty without explain."""
        return self.steps if self.explain else ()

    def __repr__(self) -> str:
        from marklight import formatting

        return formatting.answer_line(self)

    def __str__(self) -> str:
        from marklight import formatting

        return formatting.answer_text(self)

    def _repr_html_(self) -> str:
        """Return the answer as HTML for notebooks."""
        from marklight import formatting

        return formatting.answer_html(self)

    def _ranked(self, hits: Hits) -> tuple[RankedPassage, ...]:
        if not hits:
            return ()
        terms = self.query.terms
        return tuple(self._result(rank, hit, terms) for rank, hit in enumerate(hits, 1))

    def _result(self, rank: int, hit: Hit, terms: QueryTerms) -> RankedPassage:
        from marklight.formatting import place_text
        from marklight.text.snippets import snippet

        chunk = hit.chunk
        shown, sentence = snippet(chunk, terms)
        return RankedPassage(
            rank=rank,
            score=hit.score,
            verdict=verdict(hit) if self.calibrated else None,
            chunk_id=chunk.id,
            document=chunk.document,
            title=chunk.title,
            headings=chunk.headings,
            anchor=chunk.anchor,
            lines=chunk.lines,
            kind=chunk.kind,
            content=chunk.text,
            snippet=shown,
            highlight=sentence,
            modified=iso_time(self.modified.get(chunk.document, 0)),
            dated=iso_seconds(self.dates.get(chunk.document, 0.0)),
            levels=self.levels.get(chunk.id, ()),
            similar=hit.similar,
            linked=hit.linked,
            more=hit.more,
            continues=place_text(chunk.document, self.several_collections, hit.continues.lines)
            if hit.continues
            else None,
            boilerplate=chunk.boilerplate,
            why=hit.why if self.explain else (),
        )


def iso_time(time_ns: int) -> str:
    """Format a file time as ISO 8601 in UTC; times out of range are clamped."""
    try:
        time = datetime(1970, 1, 1) + timedelta(microseconds=time_ns // 1000)
    except OverflowError:
        time = datetime.max if time_ns > 0 else datetime.min
    return f"{time.isoformat(timespec='seconds')}Z"


def iso_seconds(time: float) -> str:
    """Format a time in seconds since the epoch as ISO 8601 in UTC."""
    return iso_time(int(time * 1_000_000) * 1000)
