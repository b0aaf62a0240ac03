"""Commits as text for people and as JSON for programs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from marklight.escaping import one_line, quoted
from marklight.surfaces.render import inline_markdown, to_json
from marklight.surfaces.style import PLAIN, Style

if TYPE_CHECKING:
    # Only named here: `--help` needs the formats and nothing that they show.
    from marklight.answer import Answer, Hit
    from marklight.commits import Commit, Commits

FORMATS = ("text", "json", "jsonl", "md")


def commits_as(found: Commits, format: str, style: Style = PLAIN) -> str:
    """Commits in one of the formats of the command line; only text is drawn in a style."""
    if format == "json":
        return to_json(found.to_dict())
    if format == "jsonl":
        return "\n".join(to_json(each, indent=None) for each in found.to_dict()["results"])
    if format == "md":
        return "\n\n".join(_section(commit, hit) for commit, hit in found.ranked)
    several = found.several_collections
    return "\n\n".join(
        commit_text(rank, commit, hit, several, style)
        for rank, (commit, hit) in enumerate(found.ranked, 1)
    )


def commit_text(
    rank: int, commit: Commit, hit: Hit, several: bool = False, style: Style = PLAIN
) -> str:
    """A passage of a commit under the line that says whose and when it is."""
    head = style.bold(f"[{rank}] {called(commit, several)} ({hit.score:.2f})")
    return "\n".join([head, *_files(hit), *_quoted(passage(commit, hit))])


def called(commit: Commit, several: bool = False) -> str:
    """`3f2a9c1 2026-03-01 Ada Lovelace: what it did`, with the repository where there are several."""
    where = f"{commit.repository}/{commit.short}" if several else commit.short
    refs = f" ({', '.join(commit.refs)})" if commit.refs else ""
    return one_line(f"{where} {commit.day} {commit.name or commit.email}: {commit.subject}{refs}")


def passage(commit: Commit, hit: Hit) -> str:
    """Return the text that was found, without the subject, which the header contains."""
    from marklight.commits import kind

    text = hit.chunk.text.strip("\n")
    if kind(hit) == "diff":
        return text
    lines = text.split("\n")
    said = 0
    while said < len(lines) and " ".join(" ".join(lines[: said + 1]).split()) != commit.subject:
        said += 1
    return "\n".join(lines[said + 1 :] if said < len(lines) else lines).strip("\n")


def by_short(found: Commits) -> Answer:
    """The answer with commits called as people call them."""
    from dataclasses import replace

    hits = tuple(
        replace(
            hit, chunk=replace(hit.chunk, document=hit.chunk.document._replace(path=commit.short))
        )
        for commit, hit in found.ranked
    )
    return replace(found, hits=hits)


def _section(commit: Commit, hit: Hit) -> str:
    """Render as Markdown: a quotation, in which a diff has a fence longer than any within."""
    from marklight.commits import kind

    body = passage(commit, hit)
    if kind(hit) == "diff":
        fence = "`" * max(3, *(len(run) + 1 for run in _fences(body)))
        body = f"{fence}diff\n{body}\n{fence}"
    files = (inline_markdown(line) for line in _files(hit))
    parts = [f"### {inline_markdown(called(commit))}", *files, *_quoted(body)]
    return "\n\n".join(parts)


def _files(hit: Hit) -> list[str]:
    """Name the file that a passage of a diff belongs to."""
    from marklight.commits import kind

    if kind(hit) != "diff" or not hit.chunk.headings:
        return []
    return [f"files: {', '.join(map(one_line, hit.chunk.headings))}"]


def _quoted(text: str) -> list[str]:
    return [quoted(text)] if text else []


def _fences(text: str) -> list[str]:
    import re

    return ["", *re.findall(r"`{3,}", text)]
