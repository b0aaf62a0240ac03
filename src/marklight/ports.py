"""Interfaces between packages: engines with their snapshots and the values that they return, models, and search stages."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from marklight.answer import Hits, Why
from marklight.lazy import dataclass
from marklight.model import Batch, Chunk, DocumentId, FileState, UnreadChunk
from marklight.query import Filters, Query

if TYPE_CHECKING:
    from marklight.engines.relational.blocks import RelationalBlocks
    from marklight.engines.relational.documents import RelationalContents, RelationalDocuments
    from marklight.engines.relational.links import RelationalLinks
    from marklight.engines.relational.snapshot import RelationalMetadata, RelationalStatus
    from marklight.engines.relational.vocabulary import RelationalVocabulary
    from marklight.model import Matrix, Vector

WRITER_SECONDS = 10.0
"""Time limit for waiting while another process writes to the index."""
INCOMPLETE = "copy"
"""Manifest key: not empty while a copy into the index is incomplete."""
MIN_VOCABULARY, VOCABULARY_SIZE = 1_000, 10_000
"""Terms that get a vector, those in most documents: as many as there are passages, within these limits. In FastAPI's manual,
2,146 of 5,526 terms have one, and 2,495 are in more than one document. Term vectors would be most of a small index."""
FIELD_BOOSTS: Mapping[str, float] = {
    "title": 3.0,
    "headings": 2.5,
    "keywords": 2.5,
    "description": 2.0,
    "tags": 2.0,
    "aliases": 1.5,
    "author": 1.0,
    "body": 1.0,
    "whole": 10.0,
}
"""Prose fields of a passage and their weights in keyword search.

The field `whole` is the concatenation of all others, with the parts of identifiers. Without it a term
in both title and body counts as two, and each field has an idf of its own, which in short
fields is noise: nDCG@10 of best passages, mean of eight development sets, is .629 without it,
.671 with it but without the parts of identifiers, and .682 as it is (benchmarks/words.py measures the whole pipeline).
"""


BOILERPLATE = "boilerplate"
"""Field with the whole text of passages that have boilerplate; searched for quoted phrases only."""

FULL_COVERAGE = 0.999
"""Coverage of all terms, with room for rounding."""


class IndexedFile(NamedTuple):
    """State of a file when it was indexed; equal state, digest and recipe mean nothing to do."""

    file: FileState
    digest: str
    recipe: str


class ScoredChunk(NamedTuple):
    """Id of a passage with one retriever's raw score, higher is better."""

    chunk_id: str
    score: float


class Pool(NamedTuple):
    """Candidates of all retrievers as columns: a row is a passage, in the order of the lists."""

    chunks: Sequence[Chunk]
    """Passages by row; their texts are not read yet."""
    rows: Mapping[str, int]
    """Rows by passage id."""
    scores: Mapping[str, Mapping[int, float]]
    """Scores of each retriever by row, best first."""

    def best(self, count: int) -> set[int]:
        """Return the rows of the best candidates of each retriever."""
        return {row for scores in self.scores.values() for row in islice(scores, count)}

    def entries(self, row: int) -> tuple[Why, ...]:
        """Return a trace entry for each retriever that returned a candidate."""
        return tuple(
            Why(name, scores[row]) for name, scores in self.scores.items() if row in scores
        )


class TermCoverage(NamedTuple):
    """Idf-weighted share of the query terms that a passage contains, 0 to 1."""

    anywhere: float
    title: float


class ScoredTerm(NamedTuple):
    """A term with its cosine similarity to the query."""

    term: str
    score: float


class DocumentMatch(NamedTuple):
    """Passages of one document that contain terms of a query."""

    passages: int
    """Number of passages with any of the terms."""
    best: str
    """Id of the passage with the most of them; of equals the first one."""


class Pending(NamedTuple):
    """A text without a vector, under the digest that its vector will have."""

    digest: str
    chunk: Chunk


class StoredBlock(NamedTuple):
    """A block that documents of the index have."""

    documents: int
    """Number of documents, counted up to a limit."""
    boilerplate: bool
    """True if the documents were chunked with it as boilerplate."""


class SharedBlock(NamedTuple):
    """A block that is boilerplate, with the number of documents that have it and one of them."""

    digest: int
    documents: int
    example: DocumentId


class Job(NamedTuple):
    """A text without a vector, leased to one worker."""

    digest: str
    chunk_id: str
    """A passage with this text."""
    attempts: int
    """Number of times that a worker has taken it, this one included."""


class FailedJob(NamedTuple):
    """A text that is set aside because every attempt to embed it failed."""

    path: str
    """Document of a passage with this text; empty if there is none any more."""
    attempts: int
    reason: str


class QueueStatus(NamedTuple):
    """State of the queue for one model."""

    waiting: int = 0
    leased: int = 0
    """Texts that workers have in hand."""
    failed: int = 0
    """Texts that are set aside."""
    workers: int = 0
    """Workers that took texts or renewed leases within the time of a lease."""
    per_minute: float = 0.0
    """Texts embedded per minute, over the last ten minutes or since the first of them."""
    failures: Sequence[FailedJob] = ()
    """Some of the texts that are set aside, those that failed last first."""


class LexicalReader(Protocol):
    """Inverted index over the terms of passages."""

    def search(
        self, terms: Sequence[str], boosts: Mapping[str, float], filters: Filters, limit: int
    ) -> list[ScoredChunk]:
        """Return the passages that match the filters, ranked by BM25 over boosted fields, best first."""

    def search_code(self, terms: Sequence[str], filters: Filters, limit: int) -> list[ScoredChunk]:
        """Return the passages ranked by BM25 over identifiers in code blocks, best first."""

    def term_coverage(
        self, terms: Sequence[str], chunks: Sequence[str]
    ) -> Mapping[str, TermCoverage]:
        """Return the coverage of these terms by each passage; those without any term are skipped."""

    def existing_terms(self, terms: Sequence[str]) -> set[str]:
        """Return those of these terms that any passage has in its prose fields."""


class VectorReader(Protocol):
    """Embeddings of passages, one set per model fingerprint."""

    def search(self, vector: Vector, model: str, filters: Filters, limit: int) -> list[ScoredChunk]:
        """Return the nearest passages by cosine, best first; the query vector need not be normalised.

        Scores are exact. In a large index some of the nearest may be missed, on average under 2 of 100.
        """

    def best_per_document(
        self, vector: Vector, model: str, filters: Filters
    ) -> Mapping[DocumentId, ScoredChunk]:
        """Return the nearest passage of each document that matches; of equals the first one.

        Compares all matching passages, so the filters should select few documents.
        """

    def get(self, model: str, chunks: Sequence[str]) -> Mapping[str, Vector]:
        """Return the unit vectors of passages; those without one are skipped."""

    def missing(self, model: str, digests: Sequence[str]) -> list[str]:
        """Return those digests that have no vector of this model, in the given order; no passage need have them."""

    def pending(self, model: str, limit: int, first: Sequence[str] = ()) -> list[Pending]:
        """Return distinct texts without a vector of this model, the passages in `first` before others."""


class Snapshot(Protocol):
    """Consistent view of one commit, one reader per duty; an engine may take them from different stores.

    All stores are relational, so their readers are concrete classes; lexical and vector indexes differ.
    """

    @property
    def generation(self) -> int:
        """Return the number of the commit; 0 before the first."""

    @property
    def documents(self) -> RelationalDocuments: ...

    @property
    def metadata(self) -> RelationalMetadata: ...

    @property
    def lexical(self) -> LexicalReader: ...

    @property
    def vectors(self) -> VectorReader: ...

    @property
    def links(self) -> RelationalLinks: ...

    @property
    def vocabulary(self) -> RelationalVocabulary: ...

    @property
    def status(self) -> RelationalStatus: ...

    @property
    def blocks(self) -> RelationalBlocks: ...

    @property
    def contents(self) -> RelationalContents: ...


class Engine(Protocol):
    """Storage of an index. Any number of readers; commits take effect one after another.

    An index in files has one writer at a time. On a server many write at once, and those of one document wait for each other.

    Only a writer creates files: opening, reading or checking an index that does not exist leaves nothing behind.
    """

    def snapshot(self) -> AbstractContextManager[Snapshot]:
        """Open a consistent view of the last commit."""

    def writing(self, wait_seconds: float) -> AbstractContextManager[None]:
        """Hold the writer lock; raises Busy if another process keeps this one from it that long."""

    def commit(self, batch: Batch) -> int:
        """Apply a batch atomically and return the new generation; requires the writer lock.

        Passages whose digest already has a vector need no new one.
        """

    def clean(self, keep: Iterable[str]) -> int:
        """Delete vectors that no passage and no term uses, and all of models not in `keep`; return how many."""

    def sizes(self) -> Mapping[str, int]:
        """Return bytes on disk by part."""

    def count_unused_vectors(self) -> int:
        """Return the number of stored vectors that no passage uses."""

    def check(self) -> list[str]:
        """Verify the whole index, rebuild what is derived, and return the problems found."""

    def take_notices(self) -> list[str]:
        """Return and clear notices about automatic repairs that took a while."""

    def describe(self) -> str:
        """Return the address of the index, without a password."""

    def read_only(self) -> bool:
        """Return true if this user may only read the index; then `writing` raises ReadOnly."""

    def server(self) -> Mapping[str, Any]:
        """Return facts about the server as JSON values; empty for an engine without one.

        Among them `version`, `library`, `role` and `last_write` (ISO 8601).
        """

    def close(self) -> None:
        """Release files and connections."""


class Embedder(Protocol):
    """Turns text into vectors of length one."""

    @property
    def name(self) -> str: ...

    @property
    def fingerprint(self) -> str:
        """Return a digest that changes whenever a vector would."""

    @property
    def dimension(self) -> int: ...

    @property
    def token_limit(self) -> int: ...

    @property
    def languages(self) -> tuple[str, ...]:
        """Return the languages that the model knows, as ISO 639-1 codes; empty if that is not known."""

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        """Count the tokens of each passage, prefix and special tokens included."""

    def embed_passages(self, texts: Sequence[str]) -> Matrix:
        """Return one row for each text, in order; batches are bounded by tokens."""

    def embed_query(self, text: str) -> Vector: ...

    def with_time_limit(self, seconds: float) -> Embedder:
        """Return the same model for a caller that waits at most this long; a local model returns itself."""


class Reranker(Protocol):
    """Scores passages for a query; higher is better."""

    @property
    def name(self) -> str: ...

    def score(self, query: str, passages: Sequence[str], budget_ms: float) -> list[float]:
        """Return one score from 0 to 1 for each passage, in order; fewer when time runs out, at least one."""


class Prompt(NamedTuple):
    """Input of a language model."""

    instructions: str
    """The system prompt."""
    text: str
    """The message of the user."""
    max_tokens: int
    """Maximum size of the response."""


class LanguageModel(Protocol):
    """Writes a response to a prompt."""

    @property
    def name(self) -> str: ...

    def generate(
        self, prompt: Prompt, check_cancelled: Callable[[], None]
    ) -> Generator[str, None, None]:
        """Yield the response piece by piece; raise ModelServerError if it is incomplete or there is none."""


@dataclass(frozen=True, slots=True)
class Tools:
    """Run-time dependencies of stages; the fields of a stage are settings only."""

    snapshot: Snapshot
    embedder: Embedder | None = None
    multilingual: Embedder | None = None
    """Model for documents in languages that `embedder` does not know, if there are any."""
    reranker: Reranker | None = None
    exists: Callable[[DocumentId], bool] = lambda _: True
    """Returns True if a document's file still exists."""
    now: float = 0.0
    """Seconds since the epoch, so that the same query gives the same answer."""
    notify: Callable[[str], None] = lambda _: None
    """Adds a notice to the answer."""
    check_cancelled: Callable[[], None] = lambda: None
    """Raises Stopped once the caller has gone away."""
    explain: bool = True
    """Stages record how they computed scores."""
    shown: int | None = None
    """Maximum number of results; duplicates are merged among the hits of that many documents. None merges all."""

    def pool(self, lists: Mapping[str, Sequence[ScoredChunk]]) -> Pool:
        """Return the candidates of all retrievers as a pool, without their texts."""
        ids = dict.fromkeys(id for candidates in lists.values() for id, _ in candidates)
        chunks = self.snapshot.documents.candidates(list(ids))
        rows = {id: row for row, id in enumerate(chunks)}
        return Pool(
            list(chunks.values()),
            rows,
            {
                name: {rows[id]: score for id, score in candidates if id in rows}
                for name, candidates in lists.items()
            },
        )

    def read(self, hits: Hits) -> Hits:
        """Return hits with whole passages, those that were not read yet by one query."""
        unread = [hit.chunk.id for hit in hits if isinstance(hit.chunk, UnreadChunk)]
        if not unread:
            return hits
        chunks = {chunk.id: chunk for chunk in self.snapshot.documents.chunks(unread)}
        return tuple(
            hit.with_chunk(chunks[hit.chunk.id]) if hit.chunk.id in chunks else hit for hit in hits
        )


Rewrite = Callable[[Query, Tools], Query]
"""A stage that changes the query before retrieval."""
Retrieve = Callable[[Query, int, Tools], Sequence[ScoredChunk]]
"""A stage that returns at most so many candidates, best first."""
Fuse = Callable[[Pool, Query, Mapping[str, float], Tools], Hits]
"""A stage that ranks the candidates of all retrievers, with the user's factors on the weights of retrievers."""
Refine = Callable[[Query, Hits, Tools], Hits]
"""A stage that changes, drops or reorders hits."""

Progress = Callable[[str, int, int], None]
"""Callback of a long operation, called with its phase, how much is done, and the total."""


def no_progress(phase: str, done: int, total: int) -> None:
    """Ignore progress."""
