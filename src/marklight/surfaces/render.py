"""Answers, reports and extracts as text for people and as JSON for programs."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from marklight.escaping import escape_json, one_line, quoted
from marklight.formatting import headed_place, text_of
from marklight.surfaces.style import PLAIN, Style

if TYPE_CHECKING:
    # Only named here: `--help` needs the formats and nothing that they show.
    from marklight.answer import Answer, Hit, Level
    from marklight.model import Chunk
    from marklight.report import Extract, Outline, Report

FORMATS = ("text", "json", "jsonl", "md", "files")


def to_json(value: Any, indent: int | None = 2) -> str:
    """Serialise as JSON that is safe to print; letters of all scripts stay readable."""
    import json

    return escape_json(json.dumps(value, ensure_ascii=False, indent=indent, default=str))


def answer_as(answer: Answer, format: str, style: Style = PLAIN) -> str:
    """An answer in one of the formats of the command line; only text is drawn with signs."""
    if format == "json":
        return to_json(answer.to_dict())
    if format == "jsonl":
        rows = zip(answer.to_dict()["results"], answer.hits, strict=True)
        named = ({**result, "file": style.file(hit.chunk.document)} for result, hit in rows)
        return "\n".join(to_json(result, indent=None) for result in named)
    if format == "files":
        files = (one_line(style.file(hit.chunk.document)) for hit in answer.hits)
        return "\n".join(dict.fromkeys(files))
    several = answer.several_collections
    if format == "md":
        return "\n\n".join(
            f"### [{inline_markdown(headed_place(hit.chunk, several))}]({_address(hit.chunk)})"
            f"\n\n{quoted(hit.chunk.text)}"
            for hit in answer.hits
        )
    return "\n\n".join(
        hit_text(rank, hit, several, style) for rank, hit in enumerate(answer.hits, 1)
    )


def _address(chunk: Chunk) -> str:
    """Where a link of Markdown leads: a blank or a bracket in a path would end it, `#` begin an anchor."""
    from urllib.parse import quote

    def encoded(part: str) -> str:
        return re.sub(r"[^\w./-]+", lambda signs: quote(signs[0], errors="replace"), part)

    return f"{encoded(chunk.path)}#{encoded(chunk.anchor)}"


def inline_markdown(text: str) -> str:
    """Escape what would begin a link, an image, HTML, an entity, code or emphasis in Markdown."""
    return re.sub(r"[\\`*\[\]<>&]", r"\\\g<0>", text)


def hit_text(rank: int, hit: Hit, several_collections: bool, style: Style = PLAIN) -> str:
    """A whole passage under the line that says where it stands."""
    where = headed_place(hit.chunk, several_collections, style.link)
    return f"{style.bold(f'[{rank}] {where} ({hit.score:.2f})')}\n{text_of(hit.chunk)}"


def report_text(report: Report) -> str:
    """What an indexing run did, in a few lines."""
    done = [
        f"{len(values)} {name}"
        for name, values in (
            ("added", report.added),
            ("changed", report.changed),
            ("moved", report.moved),
            ("removed", report.removed),
            ("skipped", report.skipped),
        )
        if values
    ]
    if report.newly_embedded:
        done.append(f"{report.newly_embedded} passages embedded")
    index, commits = report.index, report.history
    lines = [", ".join(done) or ("nothing changed" if commits is None else "no document changed")]
    # The run took the time of both, and each is told beside its own.
    took_ms = report.took_ms - (commits.took_ms if commits is not None else 0.0)
    lines.append(
        f"{index.documents} documents, {index.chunks} passages, {index.embedded} embedded"
        f" ({took_ms / 1000:.1f} s)" + (one_line(f" in {report.folder}") if report.folder else "")
    )
    if commits is not None:
        lines.append(_history_line(commits))
    lines += [
        one_line(f"skipped {failure.document.path}: {failure.reason}")
        for failure in report.skipped[:20]
    ]
    lines += [one_line(f"remark on {id.path}: {said}") for id, said in report.remarks[:5]]
    more = max(0, len(report.skipped) - 20) + max(0, len(report.remarks) - 5)
    if more:
        lines.append(f"… and {more} more; `marklight status` lists them")
    return "\n".join(lines)


def _history_line(report: Report) -> str:
    """What was done for the history."""
    counts, skipped = report.index, len(report.skipped)
    new = f"{len(report.added)} read, {len(report.removed)} gone"
    if skipped:
        new += f", {skipped} cannot be read"
    if report.newly_embedded:
        new += f", {report.newly_embedded} passages embedded"
    return (
        f"{counts.documents} commits ({new}), {counts.chunks} passages, {counts.embedded} embedded"
        f" ({report.took_ms / 1000:.1f} s)"
    )


def extract_text(extract: Extract, style: Style = PLAIN) -> str:
    """Quote a piece of a document below the line with its place."""
    where = headed_place(extract, link=style.link)
    return f"{style.bold(f'document: {where}')}\n{quoted(extract.text)}"


def levels_text(levels: Sequence[Level]) -> str:
    """How much each level is, so that one can choose."""
    return " · ".join(
        f"{level.name} {level.characters:,} characters (~{level.tokens:,} tokens)"
        for level in levels
    )


def outline_text(outline: Outline, style: Style = PLAIN) -> str:
    """List headings, each behind its lines, indented by level, with its anchor."""
    top = min((heading.level for heading in outline.headings), default=1)
    places = [lines_text(heading.lines) for heading in outline.headings]
    width = max(map(len, places), default=0)
    return "\n".join(
        f"{style.link(place, outline.document, heading.lines[0])}{' ' * (width - len(place))}"
        f"  {heading_text(heading.level - top, heading.text, heading.anchor)}"
        for place, heading in zip(places, outline.headings, strict=True)
    )


def lines_text(lines: Sequence[int]) -> str:
    """`:11-16`, which follows a path."""
    return f":{lines[0]}-{lines[1]}"


def heading_text(depth: int, text: str, anchor: str) -> str:
    """Indent a heading and add its anchor; it never begins a line, as whoever wrote it chose its words."""
    return f"{'  ' * depth}{one_line(text)}  #{one_line(anchor)}"


def flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Tables within tables as dotted names."""
    found: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, Mapping):
            found |= flat(value, f"{prefix}{name}.")
        else:
            found[prefix + name] = value
    return found


def table(values: Mapping[str, Any]) -> str:
    """List names and values, one a line, values aligned."""
    rows = {one_line(name): one_line(str(value)) for name, value in values.items()}
    width = max(map(len, rows), default=0)
    return "\n".join(f"{name:<{width}}  {value}" for name, value in rows.items())
