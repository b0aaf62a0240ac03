"""Render answers, lists of documents, commits, outlines and reports as text, Markdown and JSON; style text for a terminal."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from marklight.formatting import (
    PLAIN,
    Style,
    columns,
    counted,
    escape_json,
    headed_place,
    hit_text,
    one_line,
    place_text,
    quoted,
)
from marklight.place import complete_commands

if TYPE_CHECKING:
    # Types only: `--help` needs the formats and nothing else.
    from marklight.answer import Answer, Hit, Level, Result
    from marklight.model import DocumentId, Heading, ResolvedLink
    from marklight.report import Extract, Links, Outline, Related, Report
    from marklight.results import Commit, Commits, ListedDocument, Listing

FORMATS = ("text", "json", "jsonl", "md", "files")
COMMIT_FORMATS = ("text", "json", "jsonl", "md")
MAX_SKIPPED = 20
"""Skipped files listed in the text of a report."""
MAX_REMARKS = 5


def style_for(
    stream: TextIO,
    environment: Mapping[str, str],
    folders: Mapping[str, Path],
    *,
    color: str = "auto",
    address: str = "",
) -> Style:
    """Return the style for a stream; `color` is auto, always or never, and auto honours NO_COLOR."""
    wanted = not environment.get("NO_COLOR") and environment.get("TERM") != "dumb"
    escapes = color == "always" or (color == "auto" and wanted and stream.isatty())
    terminal = color == "always" or stream.isatty()
    try:
        near = os.getcwd()
    except OSError:  # it was deleted
        near = ""
    return Style(escapes, folders, address, terminal, near)


def to_json(value: Any, indent: int | None = 2) -> str:
    """Serialise as JSON that is safe to print; letters of all scripts stay readable."""
    import json

    return escape_json(json.dumps(value, ensure_ascii=False, indent=indent, default=str))


def json_body(value: Any) -> bytes:
    """Return the bytes that `to_json` and a line end are encoded to, in a third of the time.

    The standard library has its fast encoder for JSON without indentation only.
    """
    import json

    import msgspec

    compact = escape_json(json.dumps(value, ensure_ascii=False, default=str))
    return msgspec.json.format(compact.encode("utf-8", "replace"), indent=2) + b"\n"


def _for_programs(
    result: Result, key: str, documents: Sequence[DocumentId], format: str, style: Style
) -> str | None:
    """Render a result as JSON, its rows as JSON lines, or the files of its rows; None for other formats."""
    if format == "json":
        return to_json(result.to_dict())
    files = list(map(style.file, documents))
    if format == "jsonl":
        rows = zip(result.to_dict()[key], files, strict=True)
        return "\n".join(to_json({**row, "file": file}, indent=None) for row, file in rows)
    return "\n".join(dict.fromkeys(map(one_line, files))) if format == "files" else None


def answer_as(answer: Answer, format: str, style: Style = PLAIN) -> str:
    """Render an answer in one of `FORMATS`; only text is styled."""
    documents = [hit.chunk.document for hit in answer.hits]
    data = _for_programs(answer, "results", documents, format, style)
    return passages_as(answer, format, style) if data is None else data


def passages_as(answer: Answer, format: str, style: Style = PLAIN) -> str:
    """Render the results, or the closest passages where there are none, as text or Markdown."""
    several = answer.several_collections
    if format == "md":
        return "\n\n".join(
            f"### [{inline_markdown(headed_place(hit.chunk, several))}]({link_target(style.file(hit.chunk.document), hit.chunk.anchor)})"
            f"\n\n{quoted(hit.chunk.text)}"
            for hit in answer.passages
        )
    return "\n\n".join(
        hit_text(hit, several, f"[{rank}] ", style, answer.passages[rank:])
        for rank, hit in enumerate(answer.passages, 1)
    )


def link_target(path: str, anchor: str | None = None) -> str:
    """Return the target of a Markdown link; spaces, brackets and `#` in a path are percent-encoded."""
    from urllib.parse import quote

    def encoded(part: str) -> str:
        return re.sub(r"[^\w./-]+", lambda match: quote(match[0], errors="replace"), part)

    return encoded(path) if anchor is None else f"{encoded(path)}#{encoded(anchor)}"


def inline_markdown(text: str) -> str:
    """Escape what would begin a link, an image, HTML, an entity, code or emphasis in Markdown."""
    return re.sub(r"[\\`*\[\]<>&]", r"\\\g<0>", text)


def report_text(report: Report) -> str:
    """Render the report of an indexing run as a few lines."""
    counts = [
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
        counts.append(f"{counted(report.newly_embedded, 'passage')} embedded")
    commits = report.history
    lines = [", ".join(counts) or ("nothing changed" if commits is None else "no document changed")]
    # The run took the time of both; each line shows its own.
    took_ms = report.took_ms - (commits.took_ms if commits is not None else 0.0)
    documents = counted(report.index.documents, "document")
    where = one_line(f" in {report.folder}") if report.folder else ""
    lines.append(f"{documents}, {_passages(report, took_ms)}{where}")
    if commits is not None:
        lines.append(_history_line(commits))
    lines += [
        one_line(f"skipped {report.name(failure.document)}: {failure.reason}")
        for failure in report.skipped[:MAX_SKIPPED]
    ]
    lines += [
        one_line(f"remark on {report.name(id)}: {remark}")
        for id, remark in report.remarks[:MAX_REMARKS]
    ]
    more = max(0, len(report.skipped) - MAX_SKIPPED) + max(0, len(report.remarks) - MAX_REMARKS)
    if more:
        lines.append(
            complete_commands(f"… and {more} more; see `marklight status`", Path(report.folder))
        )
    return "\n".join(lines)


def _history_line(report: Report) -> str:
    """Render the report of indexing commits."""
    changes = f"{len(report.added)} added, {len(report.removed)} removed"
    if report.skipped:
        changes += f", {len(report.skipped)} unreadable"
    if report.newly_embedded:
        changes += f", {counted(report.newly_embedded, 'passage')} embedded"
    commits = counted(report.index.documents, "commit")
    return f"{commits} ({changes}), {_passages(report, report.took_ms)}"


def _passages(report: Report, took_ms: float) -> str:
    """Return the number of passages, how many are embedded, and the time of a run."""
    counts = report.index
    state = embedding_state(counts.embedded, counts.pending)
    return f"{counted(counts.chunks, 'passage')}, {state} ({took_ms / 1000:.1f} s)"


def embedding_state(embedded: int, pending: int) -> str:
    """Return how many passages are embedded, in words that `index` and `status` share."""
    if pending:
        share = 100 * embedded // (embedded + pending)
        return f"{embedded:,} embedded, {pending:,} to do ({share} %)"
    return "all embedded" if embedded else "none embedded: keyword search only"


def extract_text(extract: Extract, style: Style = PLAIN) -> str:
    """Render a part of a document: a header with its place, then the quoted text."""
    where = headed_place(extract, extract.several_collections, style)
    return f"{style.bold(f'document: {where}')}\n{quoted(extract.text)}"


def levels_text(levels: Sequence[Level]) -> str:
    """List context levels with their sizes."""
    return " · ".join(
        f"{level.name} {level.characters:,} characters (~{level.tokens:,} tokens)"
        for level in levels
    )


def outline_text(outline: Outline, style: Style = PLAIN) -> str:
    """List headings after their lines, indented by level, with their anchors."""
    return "\n".join(
        heading_rows(outline.headings, lambda text, line: style.link(text, outline.document, line))
    )


def heading_rows(
    headings: Sequence[Heading], link: Callable[[str, int], str] = lambda text, _: text
) -> list[str]:
    """Return `:11-16  Heading  #anchor` for each heading; its text is untrusted, so it never starts a line."""
    top = min((heading.level for heading in headings), default=1)
    places = [f":{heading.lines[0]}-{heading.lines[1]}" for heading in headings]
    width = max(map(len, places), default=0)
    return [
        f"{link(place, heading.lines[0])}{' ' * (width - len(place))}"
        f"  {'  ' * (heading.level - top)}{one_line(heading.text)}  #{one_line(heading.anchor)}"
        for place, heading in zip(places, headings, strict=True)
    ]


def table(values: Mapping[str, Any]) -> str:
    """List names and values, one a line, values aligned."""
    rows = [(one_line(name), one_line(str(value))) for name, value in values.items()]
    return columns(rows, left=(0, 1))


def block_quoted(text: str) -> list[str]:
    """Return a text as a block quotation, in a list that is empty for no text."""
    return [quoted(text)] if text else []


def listing_as(listing: Listing, format: str, style: Style = PLAIN) -> str:
    """Render a list of documents in one of `FORMATS`; only text is styled."""
    documents = [listed.document for listed in listing.documents]
    data = _for_programs(listing, "documents", documents, format, style)
    if data is not None:
        return data
    several = listing.several_collections
    if format == "md":
        rows_md = (
            f"- [{inline_markdown(_document_name(each, several))}]({link_target(style.file(each.document))})"
            f" ({_document_facts(each)})"
            + "".join(
                f"\n  - [{'x' if task.done else ' '}] {inline_markdown(one_line(task.text))}"
                for task in each.tasks
            )
            + "".join(
                f"\n  - {line.line}: {inline_markdown(one_line(line.text))}"
                for line in each.matching_lines or ()
            )
            for each in listing.documents
        )
        return "\n".join([*rows_md, "", listing.summary])
    rows_text = (
        row
        for each in listing.documents
        for row in (
            document_line(each, several, style),
            *_task_lines(each, style),
            *_matching_lines(each, style),
        )
    )
    return "\n".join([*rows_text, style.bold(listing.summary)])


def _task_lines(each: ListedDocument, style: Style) -> list[str]:
    """Return `  :12  ☐ call the plumber` for each task."""
    width = max((len(f":{task.line}") for task in each.tasks), default=0)
    return [
        f"  {style.link(f':{task.line}'.ljust(width), each.document, task.line)}"
        f"  {'☑' if task.done else '☐'} {one_line(task.text)}"
        for task in each.tasks
    ]


def _matching_lines(each: ListedDocument, style: Style) -> Iterator[str]:
    """Yield `  :12  Text of the line` for each line that matches, below `  § Section`."""
    rows = each.matching_lines or ()
    width = max((len(f":{row.line}") for row in rows), default=0)
    for section, of_section in groupby(rows, lambda row: row.section):
        if section:
            yield f"  {style.dim(f'§ {one_line(section)}')}"
        for row in of_section:
            place = f":{row.line}".ljust(width)
            yield f"  {style.link(place, each.document, row.line)}  {one_line(row.text)}"
    if each.more_lines:
        yield f"  {style.dim(more_lines(each))}"


def more_lines(each: ListedDocument) -> str:
    """Return how many lines are left out."""
    return f"… and {counted(each.more_lines or 0, 'more line')} with some of the words"


def document_line(
    document: ListedDocument, several: bool, style: Style = PLAIN, day: str = ""
) -> str:
    """Return `guide/auth.md § Authentication (3 passages, 2026-01-02, 0.83)`; without the date of all documents, if given."""
    facts = style.dim(f"({_document_facts(document, day)})")
    return f"{_document_name(document, several, style)} {facts}"


def _document_name(each: ListedDocument, several: bool, style: Style = PLAIN) -> str:
    """Return `guide/auth.md § Authentication`."""
    place = place_text(each.document, several)
    path = style.place(place, each.document, each.lines[0])
    return f"{style.bold(path)} § {one_line(each.title)}" if each.title else style.bold(path)


def _document_facts(each: ListedDocument, day: str = "") -> str:
    """Return the number of passages, the date unless it is the given day, and the score unless it is 0.00."""
    facts = [counted(each.passages, "passage")]
    if each.date[:10] != day:
        facts.append(each.date[:10])
    if each.score is not None and (score := f"{each.score:.2f}") != "0.00":
        facts.append(score)
    return ", ".join([*facts, *(["by meaning"] if each.by_meaning else [])])


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
    from marklight.results import commit_part

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
    hits = tuple(
        replace(
            hit, chunk=replace(hit.chunk, document=hit.chunk.document._replace(path=commit.short))
        )
        for commit, hit in commits.ranked
    )
    return replace(commits, hits=hits)


def _commit_markdown(commit: Commit, hit: Hit) -> str:
    """Render a commit as Markdown: a quotation; a diff gets a code fence longer than any inside it."""
    from marklight.results import commit_part

    body = commit_passage(commit, hit)
    if commit_part(hit) == "diff":
        fence = "`" * max(3, *(len(run) + 1 for run in ("", *re.findall(r"`{3,}", body))))
        body = f"{fence}diff\n{body}\n{fence}"
    files = (inline_markdown(line) for line in _files(hit))
    parts = [f"### {inline_markdown(commit_header(commit))}", *files, *block_quoted(body)]
    return "\n\n".join(parts)


def _files(hit: Hit) -> list[str]:
    """List the files that a passage of a diff belongs to."""
    from marklight.results import commit_part

    if commit_part(hit) != "diff" or not hit.chunk.headings:
        return []
    return [f"files: {', '.join(map(one_line, hit.chunk.headings))}"]


def links_text(links: Links, style: Style = PLAIN) -> str:
    """Render lists of links; for a whole library, broken links and orphans."""

    def place(id: DocumentId, line: int | None = None, fragment: str = "") -> str:
        lines = () if line is None else (line,)
        return style.place(
            place_text(id, links.several_collections, lines, fragment), id, line or 1
        )

    def outgoing(resolved: ResolvedLink) -> str:
        assert resolved.target
        line = f":{resolved.link.line}"
        return (
            f"{' ' * (6 - len(line))}{style.link(line, resolved.source)}"
            f"  {place(resolved.target, fragment=resolved.link.fragment)}{_type(resolved)}"
        )

    def incoming(resolved: ResolvedLink) -> str:
        section = f"  {_fragment(resolved)}" if resolved.link.fragment else ""
        return f"{place(resolved.source, resolved.link.line)}{section}{_type(resolved)}"

    def broken(resolved: ResolvedLink) -> str:
        where = place(resolved.source, resolved.link.line)
        return f"{where}  {one_line(resolved.link.target)}{_fragment(resolved)}{_type(resolved)}"

    lists: list[tuple[str, str, list[str]]] = [
        ("links to", "out", list(map(outgoing, links.out))),
        ("linked from", "in", list(map(incoming, links.back))),
        ("broken links", "unresolved", list(map(broken, links.unresolved))),
        ("documents without links", "orphans", list(map(place, links.orphans))),
    ]
    parts = []
    for name, key, rows in lists:
        if rows:
            more = links.more.get(key, 0)
            head = style.bold(f"{name} ({len(rows) + more:,})")
            rest = [f"  … and {more:,} more; raise -n to see them"] if more else []
            parts.append("\n".join([head, *(f"  {row}" for row in rows), *rest]))
    return "\n\n".join(parts)


def related_text(related: Related, style: Style = PLAIN) -> str:
    """Render each related document with its score, and the reasons below it."""
    rows = []
    for relative in related.relatives:
        place = place_text(relative.document, related.several_collections)
        name = style.place(place, relative.document)
        title = f"  {one_line(relative.title)}" if relative.title else ""
        rows.append(f"{relative.score:.2f}  {style.bold(name)}{title}")
        rows.append(f"      {one_line('; '.join(relative.reasons))}")
    return "\n".join(rows)


def _fragment(resolved: ResolvedLink) -> str:
    return one_line(f"#{resolved.link.fragment}") if resolved.link.fragment else ""


def _type(resolved: ResolvedLink) -> str:
    """Return the type of a typed link, such as `supersedes`."""
    type = resolved.link.type.value
    return "" if type == "links_to" else f"  ({type})"
