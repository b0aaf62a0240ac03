"""Define the results that extend a search: lists of documents, answers with citations, and commits; with their JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from enum import StrEnum
from typing import NamedTuple

from marklight.answer import Answer, Hit, Hits, RankedPassage, Result, iso_seconds
from marklight.formatting import counted
from marklight.lazy import dataclass
from marklight.model import Counts, DocumentId, json_keys
from marklight.query import Query


class Sort(StrEnum):
    """Order of a list of documents."""

    RELEVANCE = "relevance"
    DATE = "date"
    PATH = "path"


@json_keys("line text done")
class ListedTask(NamedTuple):
    """An item of a task list."""

    line: int
    """Its line, starting at 1."""
    text: str
    """Its text, without markup."""
    done: bool


@json_keys("line text section")
class MatchingLine(NamedTuple):
    """A line of a document that matches."""

    line: int
    """Its number, starting at 1."""
    text: str
    """Its text, in Markdown."""
    section: str
    """The heading above it; empty if there is none."""


@json_keys(
    "score document title passages match dated=date chunk_id lines tasks matching_lines? more_lines?"
)
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
    tasks: tuple[ListedTask, ...] = ()
    """Its open or finished tasks, where the filter `task:` asks for them."""
    by_meaning: bool = False
    """True if the document lacks a word of the query, and was found by search."""
    matching_lines: tuple[MatchingLine, ...] | None = None
    """Its lines that match; None if they were not requested."""
    more_lines: int | None = None
    """Number of further lines with as many words of the query, where none has all of them."""

    @property
    def line_count(self) -> int:
        """Return the number of lines that match."""
        return len(self.matching_lines or ()) + (self.more_lines or 0)

    @property
    def match(self) -> str:
        """Return `words` if the document contains all words of the query, else `meaning`."""
        return "meaning" if self.by_meaning else "words"

    @property
    def date(self) -> str:
        """Return the date in UTC."""
        return iso_seconds(self.dated)


@json_keys("rank *listed")
class RankedDocument(NamedTuple):
    """A document of a list with its rank, as JSON contains it."""

    rank: int
    listed: ListedDocument


@json_keys("query sort total passages page pages documents=ranked abstained index notices took_ms")
@dataclass(frozen=True, slots=True)
class Listing(Result):
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
    def ranked(self) -> list[RankedDocument]:
        """Return the documents on this page."""
        return [RankedDocument(*row) for row in enumerate(self.documents, self.first_rank)]

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
        tasks = sum(len(each.tasks) for each in self.documents)
        lines = sum(each.line_count for each in self.documents)
        unit = counted(tasks, "task") if tasks else counted(self.passages, "passage")
        count = f"{counted(self.total, 'document')}, {unit}"
        if lines:
            count += f", {counted(lines, 'line')}{'' if self.pages == 1 else ' on this page'}"
        if self.pages == 1:
            return count
        last = self.first_rank + len(self.documents) - 1
        shown = f"; {self.first_rank:,} to {last:,}" if self.documents else ""
        return f"{count}{shown} (page {self.page:,} of {self.pages:,})"


@json_keys("text lead citations supported support problem|null")
class Sentence(NamedTuple):
    """A sentence of an answer, or one of its code blocks."""

    text: str
    """The text without citations."""
    lead: str
    """White space and list mark before it."""
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


@json_keys("*passage cited")
class Source(NamedTuple):
    """A passage that the model got."""

    passage: RankedPassage
    cited: bool
    """True if a sentence cites it."""


@json_keys(
    "query=search.query answer sentences removed sources abstained nearest=search.nearest_results model|null"
    " incomplete|null index=search.index notices took_ms"
)
@dataclass(frozen=True, slots=True)
class CitedAnswer(Result):
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
    def several_collections(self) -> bool:
        """Return true if paths need their collection as a prefix to be unambiguous."""
        return self.search.several_collections

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

    @property
    def answer(self) -> str | None:
        """Return the answer with citations; null if there is none."""
        return self.text if self.sentences else None

    @property
    def sources(self) -> list[Source]:
        """Return the passages that the model got, numbered by `rank`."""
        cited = {number for number, _ in self.cited}
        return [Source(passage, passage.rank in cited) for passage in self.search.results]

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


@json_keys("commit=hash short repository subject author date files=first_files more_files refs")
@dataclass(frozen=True, slots=True)
class Commit:
    """A commit of a git repository."""

    repository: str
    """Name of the first collection in the repository."""
    hash: str
    """Full hash."""
    subject: str
    """First paragraph of the message."""
    name: str
    """Name of the author."""
    email: str
    date: str
    """Author date, ISO 8601 with time zone."""
    files: tuple[str, ...] = ()
    """Files that it changed; none for a merge."""
    refs: tuple[str, ...] = ()
    """Branches and tags that point to the commit."""

    @property
    def short(self) -> str:
        """Return the abbreviated hash."""
        return self.hash[:SHORT_HASH]

    @property
    def day(self) -> str:
        return self.date[:10]

    @property
    def author(self) -> dict[str, str]:
        """Return the name and the email of the author."""
        return {"name": self.name, "email": self.email}

    @property
    def first_files(self) -> tuple[str, ...]:
        """Return the first changed files; empty for a merge."""
        return self.files[:SHOWN_FILES]

    @property
    def more_files(self) -> int:
        """Return the number of further changed files."""
        return max(0, len(self.files) - SHOWN_FILES)


@json_keys(
    "rank=passage.rank score=passage.score *commit kind paths content=passage.content why=passage.why"
)
class RankedCommit(NamedTuple):
    """A commit with the passage that matched, as JSON contains it."""

    passage: RankedPassage
    commit: Commit
    hit: Hit

    @property
    def kind(self) -> str:
        """Return the part of the commit that matches: message or diff."""
        return commit_part(self.hit)

    @property
    def paths(self) -> tuple[str, ...]:
        """Return the files in the matching part of the diff."""
        return diff_paths(self.hit)


@json_keys(
    "query results=found abstained nearest=closest advice=own_advice stats steps=shown_steps index notices took_ms"
    " commits?"
)
@dataclass(frozen=True, slots=True)
class Commits(Answer):
    """The answer of a search of commits: passages of messages and diffs with their commits."""

    known: Mapping[DocumentId, Commit] = field(default_factory=dict)

    @property
    def ranked(self) -> Sequence[tuple[Commit, Hit]]:
        """Return each commit with the passage that matched, best first."""
        return [(self.known[hit.chunk.document], hit) for hit in self.hits]

    @property
    def found(self) -> list[RankedCommit]:
        """Return the commits, best first."""
        return self._commits(self.hits)

    @property
    def closest(self) -> list[RankedCommit]:
        """Return the closest commits, if the search abstained; else empty."""
        return self._commits(self.nearest)

    def _commits(self, hits: Hits) -> list[RankedCommit]:
        return [
            RankedCommit(passage, self.known[hit.chunk.document], hit)
            for passage, hit in zip(self._ranked(hits), hits, strict=True)
        ]


def commit_part(hit: Hit) -> str:
    """Return the part of a commit that matched: message or diff."""
    return "message" if hit.chunk.anchor == "message" else "diff"


def diff_paths(hit: Hit) -> tuple[str, ...]:
    """Return the files that a passage of a diff contains."""
    return (*hit.chunk.headings, *hit.chunk.merged) if commit_part(hit) == "diff" else ()
