"""The nouns of asking a history: a commit, and the commits that answer; all frozen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from marklight.answer import Answer, Hit
from marklight.model import DocumentId

SHORT = 7
"""Signs by which people call a commit."""
SHOWN_FILES = 20


@dataclass(frozen=True, slots=True)
class Commit:
    """One commit of a repository."""

    repository: str
    hash: str
    subject: str
    name: str
    """Of its author."""
    email: str
    date: str
    """When it was written, ISO 8601 with the author's zone."""
    files: tuple[str, ...] = ()
    """All that it changed; of a merge none."""
    refs: tuple[str, ...] = ()
    """Branches and tags that mean it."""

    @property
    def short(self) -> str:
        return self.hash[:SHORT]

    @property
    def day(self) -> str:
        return self.date[:10]

    def to_dict(self) -> dict[str, Any]:
        """The commit as JSON holds it."""
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
    """What a search of the history found: passages of messages and diffs, and whose they are."""

    known: Mapping[DocumentId, Commit] = field(default_factory=dict)

    @property
    def ranked(self) -> Sequence[tuple[Commit, Hit]]:
        """Commits with the passage that each was found by, best first."""
        return [(self.known[hit.chunk.document], hit) for hit in self.hits]

    def to_dict(self) -> dict[str, Any]:
        """The answer as JSON holds it: as that of a search, with commits for results."""
        told = Answer.to_dict(self)
        results = [
            {
                "rank": one["rank"],
                "score": one["score"],
                **commit.to_dict(),
                "kind": kind(hit),
                "paths": list(paths(hit)),
                "content": one["content"],
                "why": one["why"],
            }
            for one, (commit, hit) in zip(told["results"], self.ranked, strict=True)
        ]
        return {**told, "results": results}


def kind(hit: Hit) -> str:
    """Which part of a commit was found: its message or its diff."""
    return "message" if hit.chunk.anchor == "message" else "diff"


def paths(hit: Hit) -> tuple[str, ...]:
    """The files that a passage of a diff shows."""
    return (*hit.chunk.headings, *hit.chunk.merged) if kind(hit) == "diff" else ()
