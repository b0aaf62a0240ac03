"""Render commits as text, Markdown and JSON."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from marklight.formatting import (
    one_line,
)
from marklight.surfaces.render import PLAIN, Style, block_quoted, inline_markdown, to_json

if TYPE_CHECKING:
    # Types only: `--help` needs the formats and nothing else.
    from marklight.answer import Answer, Hit
    from marklight.commits import Commit, Commits


def commits_as(commits: Commits, format: str, style: Style = PLAIN) -> str:
    """Render commits in one of `COMMIT_FORMATS`; only text is styled."""
    if format == "json":
        return to_json(commits.to_dict())
    if format == "jsonl":
        return "\n".join(to_json(result, indent=None) for result in commits.to_dict()["results"])
    if format == "md":
        return "\n\n".join(_commit_markdown(commit, hit) for commit, hit in commits.ranked)
    several = commits.several_collections
    return "\n\n".join(
        commit_text(rank, commit, hit, several, style)
        for rank, (commit, hit) in enumerate(commits.ranked, 1)
    )


def commit_text(
    rank: int, commit: Commit, hit: Hit, several: bool = False, style: Style = PLAIN
) -> str:
    """Render a commit: a header with rank, hash, date and author, then the quoted passage."""
    head = style.bold(f"[{rank}] {commit_header(commit, several)} ({hit.score:.2f})")
    return "\n".join([head, *_files(hit), *block_quoted(commit_passage(commit, hit))])


def commit_header(commit: Commit, several: bool = False) -> str:
    """Return `3f2a9c1 2026-03-01 Ada Lovelace: subject`, with the repository where there are several."""
    where = f"{commit.repository}/{commit.short}" if several else commit.short
    refs = f" ({', '.join(commit.refs)})" if commit.refs else ""
    return one_line(f"{where} {commit.day} {commit.name or commit.email}: {commit.subject}{refs}")


def commit_passage(commit: Commit, hit: Hit) -> str:
    """Return the matching text without the subject, which the header contains."""
    from marklight.commits import commit_part

    text = hit.chunk.text.strip("\n")
    if commit_part(hit) == "diff":
        return text
    lines = text.split("\n")
    last = 0  # of the lines that make up the subject
    while last < len(lines) and " ".join(" ".join(lines[: last + 1]).split()) != commit.subject:
        last += 1
    return "\n".join(lines[last + 1 :] if last < len(lines) else lines).strip("\n")


def with_short_hashes(commits: Commits) -> Answer:
    """Return the answer with short hashes as paths."""
    from dataclasses import replace

    hits = tuple(
        replace(
            hit, chunk=replace(hit.chunk, document=hit.chunk.document._replace(path=commit.short))
        )
        for commit, hit in commits.ranked
    )
    return replace(commits, hits=hits)


def _commit_markdown(commit: Commit, hit: Hit) -> str:
    """Render a commit as Markdown: a quotation; a diff gets a code fence longer than any inside it."""
    from marklight.commits import commit_part

    body = commit_passage(commit, hit)
    if commit_part(hit) == "diff":
        fence = "`" * max(3, *(len(run) + 1 for run in ("", *re.findall(r"`{3,}", body))))
        body = f"{fence}diff\n{body}\n{fence}"
    files = (inline_markdown(line) for line in _files(hit))
    parts = [f"### {inline_markdown(commit_header(commit))}", *files, *block_quoted(body)]
    return "\n\n".join(parts)


def _files(hit: Hit) -> list[str]:
    """List the files that a passage of a diff belongs to."""
    from marklight.commits import commit_part

    if commit_part(hit) != "diff" or not hit.chunk.headings:
        return []
    return [f"files: {', '.join(map(one_line, hit.chunk.headings))}"]
