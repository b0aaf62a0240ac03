"""Define the results that extend a search: lists of documents, answers with citations, and commits; with their JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple

from marklight.answer import Answer, Hit, Hits, index_dict, iso_seconds
from marklight.formatting import counted, place_text
from marklight.model import Counts, DocumentId
from marklight.query import Query, query_dict


class Sort(StrEnum):
    """Order of a list of documents."""

    RELEVANCE = "relevance"
    DATE = "date"
    PATH = "path"


@dataclass(frozen=True, slots=True)
class ListedDocument:
    """A document that matches, with its best passage."""

    document: DocumentId
    title: str
    passages: int
    """Number of passages that match."""
    chunk_id: str
    """Id of the best passage that matches."""
    lines: tuple[int, int]
    """Lines of that passage."""
    dated: float
    """Date in seconds since the epoch: the document's own date, else the modification time."""
    score: float | None = None
    """Probability that the best passage answers the query; None if it was not among the candidates that were scored."""
    by_meaning: bool = False
    """True if the document lacks a word of the query, and was found by search."""


@dataclass(frozen=True, slots=True)
class Listing:
    """One page of the documents that match a query, with the number of all."""

    query: Query
    documents: tuple[ListedDocument, ...]
    total: int
    """Number of documents on all pages."""
    passages: int
    """Number of their passages that match."""
    sort: Sort = Sort.RELEVANCE
    page: int = 1
    limit: int | None = None
    """Documents on a page; None for all."""
    abstained: str | None = None
    """Why there are no documents."""
    index: Counts = field(default_factory=Counts)
    notices: Sequence[str] = ()
    took_ms: float = 0.0
    several_collections: bool = False
    """Paths need their collection as a prefix to be unambiguous."""

    @property
    def shown(self) -> set[DocumentId]:
        """Return the documents on this page."""
        return {listed.document for listed in self.documents}

    @property
    def pages(self) -> int:
        """Return the number of pages; an empty list has one."""
        return max(1, -(-self.total // self.limit)) if self.limit else 1

    @property
    def first_rank(self) -> int:
        """Return the rank of the first document on this page."""
        return (self.page - 1) * (self.limit or 0) + 1

    @property
    def summary(self) -> str:
        """Return the count, such as `31 documents, 112 passages`, and which of them this page has."""
        count = f"{counted(self.total, 'document')}, {counted(self.passages, 'passage')}"
        if self.pages == 1:
            return count
        last = self.first_rank + len(self.documents) - 1
        shown = f"; {self.first_rank:,} to {last:,}" if self.documents else ""
        return f"{count}{shown} (page {self.page:,} of {self.pages:,})"

    def to_dict(self) -> dict[str, Any]:
        """Return the page as JSON."""
        return {
            "query": query_dict(self.query),
            "sort": self.sort.value,
            "total": self.total,
            "passages": self.passages,
            "page": self.page,
            "pages": self.pages,
            "documents": [
                _document_dict(rank, each, self.several_collections)
                for rank, each in enumerate(self.documents, self.first_rank)
            ],
            "abstained": self.abstained,
            "index": index_dict(self.index),
            "notices": list(self.notices),
            "took_ms": round(self.took_ms, 1),
        }


def _document_dict(rank: int, listed: ListedDocument, several: bool) -> dict[str, Any]:
    return {
        "rank": rank,
        "score": None if listed.score is None else round(listed.score, 4),
        "path": listed.document.path,
        "collection": listed.document.collection,
        "ref": place_text(listed.document, several),
        "title": listed.title,
        "passages": listed.passages,
        "match": "meaning" if listed.by_meaning else "words",
        "dated": iso_seconds(listed.dated),
        "chunk_id": listed.chunk_id,
        "lines": list(listed.lines),
    }


class Sentence(NamedTuple):
    """A sentence of an answer, or one of its code blocks."""

    text: str
    """The text without citations."""
    lead: str
    """White space, and the mark of a list item, between the sentence before and this one."""
    citations: tuple[int, ...] = ()
    """Numbers of the cited passages, which exist; the first passage is 1."""
    support: float = 0.0
    """Estimated probability that the cited passages support the sentence."""
    problem: str = ""
    """Why the sentence is not supported; empty if it is."""

    @property
    def supported(self) -> bool:
        """Return true if the cited passages support the sentence."""
        return not self.problem

    @property
    def marks(self) -> str:
        """Return the citations as text, such as `[1][3]`."""
        return "".join(f"[{number}]" for number in self.citations)

    def to_dict(self) -> dict[str, Any]:
        """Return the sentence for JSON."""
        return {
            "text": self.text,
            "lead": self.lead,
            "citations": list(self.citations),
            "supported": self.supported,
            "support": round(self.support, 3),
            "problem": self.problem or None,
        }


@dataclass(frozen=True, slots=True)
class CitedAnswer:
    """An answer that a language model wrote from the results of a search."""

    search: Answer
    """The search; its hits are the passages that the model got, in the order of their numbers."""
    sentences: Sequence[Sentence] = ()
    removed: Sequence[Sentence] = ()
    """Unsupported sentences that were removed, as `ask.unsupported = "remove"` demands."""
    model: str = ""
    """The model that wrote; empty if none was called."""
    abstained: str | None = None
    """Why there is no answer."""
    incomplete: str = ""
    """Why the answer ends early; empty if it does not."""
    notices: Sequence[str] = ()
    took_ms: float = 0.0

    @property
    def text(self) -> str:
        """Return the answer as text with citations; unsupported sentences are marked."""
        return "".join(
            f"{sentence.lead}{sentence_text(sentence)}" for sentence in self.sentences
        ).strip()

    @property
    def answered(self) -> bool:
        """Return true if any sentence is supported by the passages that it cites."""
        return any(sentence.supported for sentence in self.sentences)

    @property
    def cited(self) -> Sequence[tuple[int, Hit]]:
        """Return the passages that sentences cite, with their numbers."""
        numbers = {number for sentence in self.sentences for number in sentence.citations}
        return [(rank, hit) for rank, hit in enumerate(self.search.hits, 1) if rank in numbers]

    def to_dict(self) -> dict[str, Any]:
        """Return the answer for JSON, the same on every surface."""
        found = self.search.to_dict()
        cited = {number for number, _ in self.cited}
        return {
            "query": query_dict(self.search.query),
            "answer": self.text if self.sentences else None,
            "sentences": [each.to_dict() for each in self.sentences],
            "removed": [each.to_dict() for each in self.removed],
            "sources": [{**each, "cited": each["rank"] in cited} for each in found["results"]],
            "abstained": self.abstained,
            "nearest": found["nearest"],
            "model": self.model or None,
            "incomplete": self.incomplete or None,
            "index": index_dict(self.search.index),
            "notices": list(self.notices),
            "took_ms": round(self.took_ms, 1),
        }

    def __str__(self) -> str:
        from marklight import formatting

        places = (
            f"[{number}] {formatting.headed_place(hit.chunk, self.search.several_collections)}"
            for number, hit in self.cited
        )
        body = formatting.visible(self.text) or formatting.one_line(self.abstained or "No answer")
        return "\n".join([body, "", *places]) if self.sentences else body


def sentence_text(sentence: Sentence) -> str:
    """Return a sentence with its citations, marked if they do not support it."""
    end = "\n" if sentence.text.endswith(("```", "~~~")) else " "
    marks = sentence.marks + ("" if sentence.supported else " (unsupported)")
    return f"{sentence.text}{end}{marks.strip()}" if marks else sentence.text


SHORT_HASH = 7
"""Characters of an abbreviated hash."""


SHOWN_FILES = 20


@dataclass(frozen=True, slots=True)
class Commit:
    """A commit of a git repository."""

    repository: str
    hash: str
    subject: str
    name: str
    """Name of the author."""
    email: str
    date: str
    """Author date, ISO 8601 with time zone."""
    files: tuple[str, ...] = ()
    """Files that it changed; none for a merge."""
    refs: tuple[str, ...] = ()
    """Branches and tags that point to it."""

    @property
    def short(self) -> str:
        return self.hash[:SHORT_HASH]

    @property
    def day(self) -> str:
        return self.date[:10]

    def to_dict(self) -> dict[str, Any]:
        """Return the commit as JSON."""
        return {
            "commit": self.hash,
            "short": self.short,
            "repository": self.repository,
            "subject": self.subject,
            "author": {"name": self.name, "email": self.email},
            "date": self.date,
            "files": list(self.files[:SHOWN_FILES]),
            "more_files": max(0, len(self.files) - SHOWN_FILES),
            "refs": list(self.refs),
        }


@dataclass(frozen=True, slots=True)
class Commits(Answer):
    """The answer of a search of commits: passages of messages and diffs with their commits."""

    known: Mapping[DocumentId, Commit] = field(default_factory=dict)

    @property
    def ranked(self) -> Sequence[tuple[Commit, Hit]]:
        """Return each commit with the passage that matched, best first."""
        return self._with_commits(self.hits)

    def _with_commits(self, hits: Hits) -> Sequence[tuple[Commit, Hit]]:
        return [(self.known[hit.chunk.document], hit) for hit in hits]

    def to_dict(self) -> dict[str, Any]:
        """Return the answer as JSON: as that of a search, with commits as results."""
        answer = Answer.to_dict(self)
        return {
            **answer,
            "results": self._results(answer["results"], self.hits),
            "nearest": self._results(answer["nearest"], self.nearest),
        }

    def _results(self, results: Sequence[Mapping[str, Any]], hits: Hits) -> list[dict[str, Any]]:
        return [
            {
                "rank": result["rank"],
                "score": result["score"],
                **commit.to_dict(),
                "kind": commit_part(hit),
                "paths": list(diff_paths(hit)),
                "content": result["content"],
                "why": result["why"],
            }
            for result, (commit, hit) in zip(results, self._with_commits(hits), strict=True)
        ]


def commit_part(hit: Hit) -> str:
    """Return the part of a commit that matched: message or diff."""
    return "message" if hit.chunk.anchor == "message" else "diff"


def diff_paths(hit: Hit) -> tuple[str, ...]:
    """Return the files that a passage of a diff contains."""
    return (*hit.chunk.headings, *hit.chunk.merged) if commit_part(hit) == "diff" else ()
