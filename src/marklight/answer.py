"""The nouns of asking: a query, its hits and the answer; all frozen."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, NamedTuple

from marklight.model import Chunk, Counts, DocumentId

CHARACTERS_PER_TOKEN = 3
"""Of the Kubernetes pages 15.5 million characters are 5.0 million tokens: 3.07 to one."""


@dataclass(frozen=True, slots=True)
class Filters:
    """Which documents and passages may answer; within a field any value may match, all fields must."""

    collections: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()
    """Globs, `**` crosses folders."""
    exclude: tuple[str, ...] = ()
    """Paths or globs that may not answer."""
    tags: tuple[str, ...] = ()
    """A tag also stands for the tags nested below it."""
    where: tuple[tuple[str, str], ...] = ()
    """Frontmatter keys and values; here all must match."""
    after: str | None = None
    before: str | None = None
    """ISO dates, both inclusive; compared with the document's date, else its file time."""
    languages: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    """Globs of files that a commit changed; case does not matter."""
    authors: tuple[str, ...] = ()
    """Parts of an author's name or address; case does not matter."""
    within: tuple[tuple[str, str], ...] = ()
    """Collections with a folder in each, empty for all of it: the part that the asker named."""
    documents: tuple[DocumentId, ...] = ()
    """These documents and no others."""
    phrases: tuple[str, ...] = ()
    """Words that must stand in the passage, its title or its headings, in this order; here all must."""
    without: tuple[str, ...] = ()
    """Words or phrases that may not."""
    also: Filters | None = None
    """What must pass besides: paths and tags of the question, where the caller has named others."""

    def __bool__(self) -> bool:
        return self != Filters()

    @property
    def of_passages(self) -> bool:
        """Whether one passage of a document may pass and another not."""
        return bool(self.phrases or self.without or self.languages)

    def to_dict(self) -> dict[str, Any]:
        """Those that are set, as JSON holds them."""
        found: dict[str, Any] = {}
        for name in self.__slots__:
            value = getattr(self, name)
            if name == "where":
                value = _by_key(value)
            elif isinstance(value, Filters):
                value = value.to_dict()
            elif isinstance(value, tuple):
                value = [list(each) if isinstance(each, tuple) else each for each in value]
            if value:
                found[name] = value
        return found


def _by_key(pairs: tuple[tuple[str, str], ...]) -> dict[str, str | list[str]]:
    """A value for each key, and a list where it is asked for several."""
    found: dict[str, list[str]] = {}
    for key, value in pairs:
        found.setdefault(key, []).append(value)
    return {key: each if len(each) > 1 else each[0] for key, each in found.items()}


class Mode(StrEnum):
    """Which retrievers answer."""

    HYBRID = "hybrid"
    SEMANTIC = "semantic"
    KEYWORD = "keyword"
    CODE = "code"


@dataclass(frozen=True, slots=True)
class Query:
    """A question on its way through the pipeline."""

    text: str
    """What is looked for, in words."""
    asked: str = ""
    """As it was typed, where that held more than the words: filters, phrases."""
    limit: int = 5
    deep: int = 1
    """How many times as many candidates are looked at as usual."""
    mode: Mode = Mode.HYBRID
    filters: Filters = field(default_factory=Filters)
    kind: str = "exploratory"
    weights: Mapping[str, float] = field(default_factory=dict)
    """How much more a retriever counts for this question than it does otherwise, by name."""
    respelled: str = ""
    """The text as the library spells it, where that differs: `connect to Wi-Fi` for `connect to wifi`."""
    spelled_as: tuple[str, ...] = ()
    """The words in which it differs."""
    expanded_with: Mapping[str, float] = field(default_factory=dict)
    """Words of the library that mean nearly the same, for the search by meaning, and how near each is."""
    hypothesis: str = ""
    """An answer as the asker imagines it: what is searched by meaning in place of the question."""
    min_confidence: float | None = None
    max_tokens: int | None = None
    here: str = ""
    """The collection that the asker stands in, where there are several."""
    rerank: bool | None = None
    """Whether a cross-encoder looks at the best hits; None leaves it to the settings."""
    parents: bool = False
    """Whether passages are replaced by the sections they belong to."""
    context: int = 0
    """Neighbours shown with a passage, on each side."""
    expand_context: bool = False
    """Whether the whole section is shown."""

    @property
    def spellings(self) -> tuple[str, ...]:
        """The text as it was typed, and as the library spells it where that differs."""
        return (self.text, self.respelled) if self.respelled else (self.text,)

    @property
    def names(self) -> tuple[str, ...]:
        """What something may be called that is asked for: the text in its spellings, and all that was typed."""
        return tuple(dict.fromkeys((*self.spellings, self.asked or self.text)))


class Why(NamedTuple):
    """One stage's part in a hit's score."""

    stage: str
    value: float


@dataclass(frozen=True, slots=True)
class Hit:
    """A passage with its score, higher is better, and how it came by it."""

    chunk: Chunk
    score: float
    why: tuple[Why, ...] = ()

    def rescored(self, score: float, by: str) -> Hit:
        """The same passage with another score; the stage that changed it is remembered."""
        return Hit(self.chunk, score, (*self.why, Why(by, score)))

    def __str__(self) -> str:
        from marklight import shown

        return shown.hit_text(self)


Hits = tuple[Hit, ...]


def best_first(hits: Iterable[Hit]) -> Hits:
    """In order of score; of equals the same one always comes first."""
    return tuple(sorted(hits, key=lambda hit: (-hit.score, hit.chunk.id)))


@dataclass(frozen=True, slots=True)
class Step:
    """One stage of an answer: how many hits it left and how long it took."""

    stage: str
    count: int
    ms: float


class Level(NamedTuple):
    """How far a hit can be widened, and how much one would get."""

    name: str
    lines: tuple[int, int]
    characters: int

    @property
    def tokens(self) -> int:
        """About as many; a model's own tokenizer may count some more or fewer."""
        return -(-self.characters // CHARACTERS_PER_TOKEN)

    def to_dict(self) -> dict[str, Any]:
        """The level as JSON holds it."""
        return {
            "level": self.name,
            "lines": list(self.lines),
            "characters": self.characters,
            "tokens": self.tokens,
        }


@dataclass(frozen=True, slots=True)
class Answer:
    """What a search found, and everything that a reader needs to trust it."""

    query: Query
    hits: Hits
    index: Counts = field(default_factory=Counts)
    modified: Mapping[DocumentId, int] = field(default_factory=dict)
    """File times in nanoseconds."""
    levels: Mapping[str, Sequence[Level]] = field(default_factory=dict)
    """How far each hit can be widened, by the passage's id."""
    abstained: str | None = None
    stats: Mapping[str, int] = field(default_factory=dict)
    steps: Sequence[Step] = ()
    notices: Sequence[str] = ()
    took_ms: float = 0.0
    explain: bool = False
    several_collections: bool = False
    """Whether a path needs its collection before it to be told from another."""
    commits: Answer | None = None
    """What the history says to the same question, where it was asked too."""
    withheld: bool = False
    """Whether candidates were held back as too unlikely, by a measure that the asker did not choose."""
    moments: Mapping[DocumentId, float] = field(default_factory=dict)
    """When documents are from, in seconds since the epoch: their own date, else the file's time."""

    def why_nothing(self, shows_all: str) -> str | None:
        """Why there are no results, and what would show the nearest ones, as it is called where this is read."""
        advice = self.advice(shows_all)
        return f"{self.abstained}; {advice}" if advice else self.abstained

    def advice(self, shows_all: str) -> str | None:
        """What would show the nearest ones, where there are any."""
        held_back = self.abstained is not None and self.withheld
        return f"{shows_all} shows what comes nearest" if held_back else None

    def to_dict(self) -> dict[str, Any]:
        """The answer as JSON holds it, the same on every surface."""
        return {
            "query": {
                "text": self.query.asked or self.query.text,
                "kind": self.query.kind,
                "expanded_with": [*self.query.spelled_as, *self.query.expanded_with],
                "filters": self.query.filters.to_dict(),
            },
            "results": [self._result(rank, hit) for rank, hit in enumerate(self.hits, 1)],
            "abstained": self.abstained,
            "advice": self.advice("min_confidence 0"),
            "stats": dict(self.stats),
            "steps": [
                {"stage": step.stage, "count": step.count, "ms": round(step.ms, 3)}
                for step in (self.steps if self.explain else ())
            ],
            "index": {
                "documents": self.index.documents,
                "chunks": self.index.chunks,
                "embedded": self.index.embedded,
                "pending": self.index.pending,
                "generation": self.index.generation,
            },
            "notices": list(self.notices),
            "took_ms": round(self.took_ms, 1),
            **({"commits": self.commits.to_dict()} if self.commits else {}),
        }

    def __repr__(self) -> str:
        from marklight import shown

        return shown.answer_line(self)

    def __str__(self) -> str:
        from marklight import shown

        return shown.answer_text(self)

    def _repr_html_(self) -> str:
        """For notebooks."""
        from marklight import shown

        return shown.answer_html(self)

    def _result(self, rank: int, hit: Hit) -> dict[str, Any]:
        chunk = hit.chunk
        return {
            "rank": rank,
            "score": round(hit.score, 4),
            "chunk_id": chunk.id,
            "path": chunk.path,
            "collection": chunk.collection,
            "title": chunk.title,
            "headings": list(chunk.headings),
            "anchor": chunk.anchor,
            "lines": list(chunk.lines),
            "kind": chunk.kind.value,
            "content": chunk.text,
            "modified": iso_time(self.modified.get(chunk.document, 0)),
            "dated": iso_seconds(self.moments.get(chunk.document, 0.0)),
            "levels": [level.to_dict() for level in self.levels.get(chunk.id, ())],
            "why": [
                {"stage": why.stage, "value": round(why.value, 6)}
                for why in (hit.why if self.explain else ())
            ],
        }


def iso_time(time_ns: int) -> str:
    """A file time as ISO 8601 in UTC; one that no calendar holds is the nearest that it does."""
    try:
        time = datetime(1970, 1, 1) + timedelta(microseconds=time_ns // 1000)
    except OverflowError:
        time = datetime.max if time_ns > 0 else datetime.min
    return f"{time.isoformat(timespec='seconds')}Z"


def iso_seconds(time: float) -> str:
    """The same of a time in seconds."""
    return iso_time(int(time * 1_000_000) * 1000)
