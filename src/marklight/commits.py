"""Define the immutable data types of a search in the git history: commits and the answer with them; with their JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from marklight.answer import Answer, Hit, Hits
from marklight.model import DocumentId

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
