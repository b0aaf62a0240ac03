"""Define the immutable data types of the answer to a query: hits, the trace of their scores, and the answer."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Any, NamedTuple

from marklight.model import Chunk, Counts, DocumentId
from marklight.query import Query, query_dict

MAX_PLACES_NAMED = 3
"""Places that a notice about omitted results names."""
SHOWS_WHOLE = "shows a passage whole: "
CHARACTERS_PER_TOKEN = 3
"""Estimate for token budgets: the Kubernetes documentation has 15.5 million characters and 5.0 million tokens."""

NO_INPUTS: Mapping[str, float] = MappingProxyType({})


class Why(NamedTuple):
    """One entry of a hit's trace: a stage or a feature, its value, and how the value was computed."""

    stage: str
    value: float
    """The new score, if the entry is of a stage that changed the score."""
    formula: str = ""
    """Arithmetic over the names of `inputs`, such as `answer × relevance`."""
    inputs: Mapping[str, float] = NO_INPUTS

    def to_dict(self) -> dict[str, Any]:
        """Return the entry for JSON."""
        entry: dict[str, Any] = {"stage": self.stage, "value": round(self.value, 6)}
        if self.formula:
            entry["formula"] = self.formula
            entry["inputs"] = {name: round(value, 6) for name, value in self.inputs.items()}
        return entry


class SimilarHit(NamedTuple):
    """A passage that duplicate removal merged into a better hit."""

    chunk_id: str
    document: DocumentId
    title: str
    anchor: str
    lines: tuple[int, int]
    score: float

    @property
    def path(self) -> str:
        return self.document.path

    def to_dict(self, several_collections: bool = False) -> dict[str, Any]:
        """Return the passage for JSON."""
        from marklight.formatting import place_text

        return {
            "chunk_id": self.chunk_id,
            "path": self.document.path,
            "collection": self.document.collection,
            "ref": place_text(self.document, several_collections, self.lines),
            "title": self.title,
            "anchor": self.anchor,
            "lines": list(self.lines),
            "score": round(self.score, 4),
        }


class LinkedDocument(NamedTuple):
    """A document that is linked with a result and is no result itself, with its passage nearest to the query."""

    document: DocumentId
    title: str
    anchor: str
    lines: tuple[int, int]

    @property
    def path(self) -> str:
        return self.document.path

    def to_dict(self, several_collections: bool = False) -> dict[str, Any]:
        """Return the document for JSON."""
        from marklight.formatting import place_text

        return {
            "path": self.document.path,
            "collection": self.document.collection,
            "ref": place_text(self.document, several_collections, self.lines),
            "title": self.title,
            "anchor": self.anchor,
            "lines": list(self.lines),
        }


@dataclass(frozen=True, slots=True)
class Hit:
    """A passage with its score, higher is better, and what stages hand on about it."""

    chunk: Chunk
    score: float
    why: tuple[Why, ...] = ()
    """The trace of the score, for people: stages append to it and never read it."""
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
        ordered = sorted(merged, key=lambda each: (-each.score, each.chunk_id))
        return replace(self, similar=tuple(ordered))

    def rescored(self, score: float, by: str, formula: str = "", **inputs: float) -> Hit:
        """Return the hit with a new score and a trace entry for the stage that set it."""
        return Hit(
            self.chunk,
            score,
            (*self.why, Why(by, score, formula, inputs)),
            self.answer_probability,
            self.rank_sum,
            self.coverage,
            self.exact_match,
            self.similar,
            self.linked,
        )

    def __str__(self) -> str:
        from marklight import formatting

        return formatting.hit_text(self)


Hits = tuple[Hit, ...]


def best_first(hits: Iterable[Hit]) -> Hits:
    """Sort by descending score; ties are broken by passage id."""
    return tuple(sorted(hits, key=lambda hit: (-hit.score, hit.chunk.id)))


@dataclass(frozen=True, slots=True)
class Step:
    """One stage of a search: the number of hits it returned and its duration."""

    stage: str
    count: int
    ms: float


class Level(NamedTuple):
    """A context level of a passage: its lines and size."""

    name: str
    lines: tuple[int, int]
    characters: int

    @property
    def tokens(self) -> int:
        """Return the estimated number of tokens."""
        return -(-self.characters // CHARACTERS_PER_TOKEN)

    def to_dict(self) -> dict[str, Any]:
        """Return the level for JSON."""
        return {
            "level": self.name,
            "lines": list(self.lines),
            "characters": self.characters,
            "tokens": self.tokens,
        }


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


def within_budget(
    passages: Hits, max_tokens: int | None, several_collections: bool
) -> tuple[Hits, str]:
    """Return the first passages that fit the token budget, the last one cut at a sentence, and a notice if any is missing."""
    if max_tokens is None:
        return passages, ""
    kept = cut_passages(passages, max_tokens)
    if kept == passages:
        return passages, ""
    from marklight.formatting import place_text

    omitted = passages[len(kept) :]
    results = "1 result" if len(omitted) == 1 else f"{len(omitted)} results"
    change = f"{results} left out" if omitted else "the last result cut"
    places = ", ".join(
        place_text(hit.chunk.document, several_collections, hit.chunk.lines)
        for hit in (omitted or kept[-1:])[:MAX_PLACES_NAMED]
    )
    return (
        kept,
        f"{change} to stay within {max_tokens} tokens; `marklight get` {SHOWS_WHOLE}{places}",
    )


def cut_passages(passages: Hits, max_tokens: int) -> Hits:
    """Return the first passages that fit a token budget, the last one cut at a sentence."""
    from marklight.text.lines import truncate_at_sentence

    available = max_tokens * CHARACTERS_PER_TOKEN
    kept: list[Hit] = []
    for hit in passages:
        if len(hit.chunk.text) <= available:
            kept.append(hit)
            available -= len(hit.chunk.text)
            continue
        if available > 0:
            text = truncate_at_sentence(hit.chunk.text, available)
            kept.append(replace(hit, chunk=replace(hit.chunk, text=text, boilerplate=())))
        break
    return tuple(kept)


@dataclass(frozen=True, slots=True)
class Answer:
    """The result of a search: a ranking with the state of the index, notices, and what is shown about the documents."""

    query: Query
    hits: Hits
    nearest: Hits = ()
    abstained: str | None = None
    below_threshold: bool = False
    stats: Mapping[str, int] = field(default_factory=dict)
    steps: Sequence[Step] = ()
    index: Counts = field(default_factory=Counts)
    notices: Sequence[str] = ()
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

    @property
    def passages(self) -> Hits:
        """Return the hits or, where the search abstained, the closest passages."""
        return self.hits or self.nearest

    def empty_reason(self, shows_all: str) -> str | None:
        """Return why there are no results and which option, called `shows_all`, shows the closest passages."""
        advice = self.advice(shows_all)
        return f"{self.abstained}. {advice}" if advice else self.abstained

    def advice(self, shows_all: str) -> str | None:
        """Return how to see the closest passages, if the search abstained from showing any."""
        left_out = self.abstained is not None and self.below_threshold
        return f"Use {shows_all} to see the closest passages" if left_out else None

    def to_dict(self) -> dict[str, Any]:
        """Return the answer for JSON, the same on every surface."""
        return {
            "query": query_dict(self.query),
            "results": [self._result(rank, hit) for rank, hit in enumerate(self.hits, 1)],
            "abstained": self.abstained,
            "nearest": [self._result(rank, hit) for rank, hit in enumerate(self.nearest, 1)],
            "advice": self.advice("min_confidence 0"),
            "stats": dict(self.stats),
            "steps": [
                {"stage": step.stage, "count": step.count, "ms": round(step.ms, 3)}
                for step in (self.steps if self.explain else ())
            ],
            "index": index_dict(self.index),
            "notices": list(self.notices),
            "took_ms": round(self.took_ms, 1),
            **({"commits": self.commits.to_dict()} if self.commits else {}),
        }

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

    def _result(self, rank: int, hit: Hit) -> dict[str, Any]:
        from marklight.formatting import place_text
        from marklight.text.analyzer import query_terms
        from marklight.text.markdown import readable, snippet

        chunk = hit.chunk
        terms = frozenset(query_terms(*self.query.spellings))
        return {
            "rank": rank,
            "score": round(hit.score, 4),
            "chunk_id": chunk.id,
            "path": chunk.path,
            "collection": chunk.collection,
            "ref": place_text(chunk.document, self.several_collections, chunk.lines),
            "title": chunk.title,
            "headings": list(chunk.headings),
            "anchor": chunk.anchor,
            "lines": list(chunk.lines),
            "kind": chunk.kind.value,
            "content": chunk.text,
            "snippet": snippet(
                readable(chunk.snippet_text(self.query.filters.has_phrases), reflow=True), terms
            ),
            "modified": iso_time(self.modified.get(chunk.document, 0)),
            "dated": iso_seconds(self.dates.get(chunk.document, 0.0)),
            "levels": [level.to_dict() for level in self.levels.get(chunk.id, ())],
            "similar": [other.to_dict(self.several_collections) for other in hit.similar],
            "linked": [other.to_dict(self.several_collections) for other in hit.linked],
            "boilerplate": [list(part) for part in chunk.boilerplate],
            "why": [entry.to_dict() for entry in (hit.why if self.explain else ())],
        }


def index_dict(index: Counts) -> dict[str, int]:
    """Return the counts of the index for JSON."""
    return {
        "documents": index.documents,
        "chunks": index.chunks,
        "embedded": index.embedded,
        "pending": index.pending,
        "generation": index.generation,
    }


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
