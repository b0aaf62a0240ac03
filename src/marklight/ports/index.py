"""What an engine owes: views of one commit, and one writer who makes the next."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, NamedTuple, Protocol

from marklight.answer import Filters, Level
from marklight.model import (
    Batch,
    Chunk,
    Counts,
    Document,
    DocumentId,
    Failure,
    FileState,
    Heading,
    ResolvedLink,
    Section,
)

if TYPE_CHECKING:
    from marklight.model import Vector


class Indexed(NamedTuple):
    """What the index knows about a file without opening it."""

    file: FileState
    digest: str
    recipe: str


class Span(NamedTuple):
    """Documents of one collection by their paths, in the order of signs: from one to before another."""

    collection: str
    first: str = ""
    end: str | None = None
    """The first path that is no part of it; None where there is no end."""

    def holds(self, id: DocumentId) -> bool:
        """Whether a document is one of them."""
        beyond = self.end is not None and id.path >= self.end
        return id.collection == self.collection and self.first <= id.path and not beyond


class Scored(NamedTuple):
    """A passage's id with one retriever's raw score, higher is better."""

    chunk: str
    score: float


class Covered(NamedTuple):
    """How much of what a question's words tell a passage has, 0 to 1; a rare word tells more."""

    anywhere: float
    title: float
    rare: float = 0.0
    """What it has of it by words that hardly any passage has."""


class Pending(NamedTuple):
    """A text that has no vector yet, under the digest that its vector will have."""

    digest: str
    chunk: Chunk


class Concept(NamedTuple):
    """A word of the library with its nearness to a question."""

    term: str
    score: float


MOST_CONCEPTS = 10_000
"""Words of a library that are its vocabulary, those in most documents."""

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
"""The prose fields of a passage and their weight in keyword search.

The whole is all of them as one text, with the parts of names. Without it a word in the title and in
the body counts as if it were two, and each field has a rarity of words of its own, which in short
fields says little: nDCG@10 of best passages, mean of eight development sets, is .629 without it,
.671 with it but without the parts of names, and .682 as it is (benchmarks/words.py has the whole pipeline's).
"""


class Reader(Protocol):
    """A frozen view of one commit; later commits do not show in it."""

    @property
    def generation(self) -> int: ...

    def counts(self, model: str) -> Counts:
        """How much is stored, and how much of it has a vector of this model."""

    def manifest(self) -> Mapping[str, str]: ...

    def models(self) -> Mapping[str, int]:
        """Fingerprints of models that passages have vectors of, and how many passages."""

    def files(self, spans: Sequence[Span] | None = None) -> Mapping[DocumentId, Indexed]:
        """Every indexed document with the state of its file, or those within some spans."""

    def indexed(self, documents: Iterable[DocumentId]) -> Mapping[DocumentId, Indexed]:
        """The same of these documents; those that are not there are left out."""

    def modified(self, documents: Iterable[DocumentId]) -> Mapping[DocumentId, int]:
        """File times of these documents in nanoseconds; those that are not there are left out."""

    def moments(self, documents: Iterable[DocumentId]) -> Mapping[DocumentId, float]:
        """When these documents are from, in seconds since the epoch: their own date, else the file's."""

    def listed(self, filters: Filters, limit: int) -> list[DocumentId]:
        """Documents with a passage that passes the filters, in the order of their ids."""

    def passing(self, filters: Filters) -> int:
        """How many passages pass the filters; where more than a thousand documents do, about how many."""

    def knows(self, key: str) -> bool:
        """Whether any document has this frontmatter key."""

    def values(self, key: str, limit: int) -> Mapping[str, int]:
        """What documents say under this frontmatter key, in lower case, and how many of them; the commonest first."""

    def tags(self) -> Mapping[str, int]:
        """Every tag in lower case with how many documents have it, or one nested below it."""

    def find(self, path: str) -> list[DocumentId]:
        """The documents with exactly this path, in the order of their collections."""

    def failures(self) -> Sequence[Failure]: ...

    def remarks(self) -> list[tuple[DocumentId, str]]:
        """What was odd about documents that are indexed all the same, in the order of their paths."""

    def document(self, id: DocumentId) -> Document | None: ...

    def text_of(self, id: DocumentId) -> tuple[str, tuple[Heading, ...]] | None:
        """A document's text and outline and nothing else, cheap enough for every hit."""

    def chunks(self, ids: Sequence[str]) -> list[Chunk]:
        """These passages in this order; ids that are not there are left out."""

    def owners(self, chunks: Sequence[str]) -> Mapping[str, DocumentId]:
        """Whose passages these are, without reading them; ids that are not there are left out."""

    def chunks_of(self, document: DocumentId) -> list[Chunk]: ...

    def beside(self, document: DocumentId, ordinal: int, count: int) -> list[Chunk]:
        """A document's passage of this place, between so many before it and after it, in order."""

    def levels(self, ids: Sequence[str]) -> Mapping[str, tuple[Level, ...]]:
        """How far each of these passages can be widened; those of which that is not kept are left out."""

    def section(self, id: str) -> tuple[DocumentId, Section] | None: ...

    def damaged_passages(self, ids: Sequence[str]) -> set[DocumentId]:
        """Return the documents of which one of these passages does not match its checksum."""

    def damaged_documents(self, documents: Iterable[DocumentId]) -> set[DocumentId]:
        """Return those of these documents of which any stored part does not match its checksum."""

    @property
    def linked(self) -> int:
        """The generation in which links, or the names they find, last changed."""

    def links_from(self, document: DocumentId) -> list[ResolvedLink]: ...

    def links_to(self, document: DocumentId, limit: int | None = None) -> list[ResolvedLink]: ...

    def neighbours(
        self, documents: Sequence[DocumentId], most: int
    ) -> Mapping[DocumentId, Sequence[DocumentId]]:
        """Documents one link away from each of these, either way, at most so many of each way.

        Which ones of more is not promised.
        """

    def degrees(self, documents: Sequence[DocumentId], most: int) -> Mapping[DocumentId, int]:
        """How many documents link to each of these, and how many it links to; counting stops at
        `most` each way."""

    def edges(self) -> Iterable[tuple[DocumentId, DocumentId]]:
        """Every pair of documents with a link from the first to the second, once, itself left out."""

    def orphans(self) -> list[DocumentId]:
        """Documents that no link leads to or from, in the order of their ids."""

    def communities(self, documents: Iterable[DocumentId]) -> Mapping[DocumentId, int]:
        """The community of each of these, as the last commit of communities had it."""

    def unresolved(self) -> list[ResolvedLink]: ...

    def resolve(self, keys: Sequence[str], collection: str) -> DocumentId | None:
        """The document that these names mean, as a link from this collection would."""

    def keyword(
        self, words: Sequence[str], boosts: Mapping[str, float], filters: Filters, limit: int
    ) -> list[Scored]:
        """BM25 over boosted fields, best first; only passages that pass the filters are ranked."""

    def code(self, tokens: Sequence[str], filters: Filters, limit: int) -> list[Scored]:
        """BM25 over the words of code blocks, best first."""

    def covered(self, words: Sequence[str], chunks: Sequence[str]) -> Mapping[str, Covered]:
        """How much of these words each of these passages has in its prose fields, and in its title.

        Passages that have none of them, and those that are not there, are left out.
        """

    def known(self, words: Sequence[str]) -> set[str]:
        """Those of these words that any passage has in its prose fields."""

    def semantic(self, vector: Vector, model: str, filters: Filters, limit: int) -> list[Scored]:
        """Cosine over the vectors of one model, best first; the question's need not have length one.

        Scores are exact. Of very many vectors a few of the best may be missed, on average not 2 of 100.
        """

    def leading(self, vector: Vector, model: str, filters: Filters) -> Mapping[DocumentId, Scored]:
        """The best passage by cosine of each document, of equals the first in it; looks at all that
        pass the filters, so these name few documents."""

    def named(self, name: str, filters: Filters, limit: int) -> list[Scored]:
        """Passages that are called exactly so: 1.0 the first of a document by its title, alias or
        file name, 0.5 the first of a section by its heading; case and accents do not matter."""

    def vectors(self, model: str, chunks: Sequence[str]) -> Mapping[str, Vector]:
        """The vectors of these passages, of length one; passages without one are left out."""

    def concepts(self, vector: Vector, model: str, limit: int) -> list[Concept]:
        """Words of the library's vocabulary that are nearest in meaning, best first."""

    def concept_vectors(self, model: str, terms: Sequence[str]) -> Mapping[str, Vector]:
        """The vectors of these words, of length one; those outside the vocabulary are left out too."""

    def concept_centre(self, model: str) -> Vector | None:
        """The mean of the vectors of all words of the vocabulary; None where none has one."""

    def term_counts(self, terms: Sequence[str]) -> Mapping[str, int]:
        """How many documents hold each of these words as it is written; those without any are left out."""

    def terms_like(self, start: str, least: int, most: int, limit: int) -> Mapping[str, int]:
        """The same of words that begin so and have so many letters, those in most documents first."""

    def unembedded_concepts(self, model: str, limit: int) -> list[str]:
        """Words of the vocabulary without a vector of this model, the commonest first."""

    def unembedded(self, model: str, limit: int, first: Sequence[str] = ()) -> list[Pending]:
        """Distinct texts without a vector of this model; the passages named in `first` lead."""


class Engine(Protocol):
    """Where an index lives. Readers see a commit; a writer makes one.

    Only a writer leaves anything behind: to open, read or check what is not there makes nothing.
    """

    def snapshot(self) -> AbstractContextManager[Reader]:
        """A frozen view of the last commit."""

    def writing(self, wait_seconds: float) -> AbstractContextManager[None]:
        """Hold the one writer's place; raises Busy when another process keeps it that long."""

    def commit(self, batch: Batch) -> int:
        """Apply a batch whole and return the new generation; the writer's place must be held.

        Passages whose digest already has a vector are embedded by this commit at no cost.
        """

    def clean(self, keep: Iterable[str]) -> int:
        """Drop vectors that no passage and no word of the vocabulary uses, and all of models not in
        `keep`; returns how many."""

    def sizes(self) -> Mapping[str, int]:
        """Bytes on disk by part."""

    def waste(self) -> int:
        """How many stored vectors no passage uses."""

    def check(self) -> list[str]:
        """Look at everything, mend what is derived; what was found, in words, nothing if all is well."""

    def news(self) -> list[str]:
        """What it did unasked that took a while, in words; each is told once."""

    def describe(self) -> str: ...

    def close(self) -> None: ...
