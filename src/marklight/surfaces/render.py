"""Render answers, lists of documents, commits, outlines and reports as text, Markdown and JSON; style text for a terminal."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from marklight.formatting import (
    counted,
    escape_json,
    headed_place,
    linked_line,
    one_line,
    place_text,
    quoted,
    similar_line,
    text_of,
    unescape,
)
from marklight.place import complete_commands

if TYPE_CHECKING:
    # Types only: `--help` needs the formats and nothing else.
    from marklight.answer import Answer, Hit, Level
    from marklight.model import DocumentId
    from marklight.report import Extract, Outline, Report
    from marklight.results import Commit, Commits, ListedDocument, Listing

FORMATS = ("text", "json", "jsonl", "md", "files")
COMMIT_FORMATS = ("text", "json", "jsonl", "md")
MAX_SKIPPED = 20
"""Skipped files listed in the text of a report."""
MAX_REMARKS = 5
NEAREST_CHARACTERS = 300
"""Characters of a passage that is shown although it is no confident match."""


@dataclass(frozen=True, slots=True)
class Style:
    """Style text for the output: escape sequences on a terminal, plain text elsewhere."""

    escapes: bool = False
    """True if bold text and hyperlinks are written as escape sequences."""
    folders: Mapping[str, Path] = field(default_factory=dict)
    """Folders of the collections, by name: the targets of hyperlinks."""
    address: str = ""
    """Hyperlink template with `{path}` and `{line}`; empty links to the file itself."""
    terminal: bool = False
    """True if the output goes to a terminal."""
    near: str = ""
    """The current folder, from which a path may also be written; empty if it does not matter."""

    def bold(self, text: str) -> str:
        """Return the text in bold."""
        return f"\x1b[1m{text}\x1b[0m" if self.escapes else text

    def dim(self, text: str) -> str:
        """Return the text dimmed."""
        return f"\x1b[2m{text}\x1b[0m" if self.escapes else text

    def link(self, text: str, document: DocumentId, line: int = 1) -> str:
        """Return the text as a hyperlink to a line of the document's file."""
        folder = self.folders.get(document.collection)
        if not self.escapes or folder is None:
            return text
        return hyperlink(text, folder / document.path, line, self.address)

    def place(self, text: str, document: DocumentId, line: int = 1) -> str:
        """Return a place as a hyperlink, with a slash before it if a file of the current folder has the same name."""
        return self.link(self.rooted(text, document), document, line)

    def rooted(self, text: str, document: DocumentId, *_: int) -> str:
        """Return a place with a slash before it if a file of the current folder has the same name."""
        folder = self.folders.get(document.collection)
        if not self.near or folder is None:
            return text
        here = os.path.join(self.near, place_text(document, len(self.folders) > 1))
        return f"/{text}" if _is_other_file(here, folder / document.path) else text

    def file(self, document: DocumentId) -> str:
        """Return the path of the document's file, relative if it is below the current folder.

        `./` is put before a path with a leading dash, so that no program takes it for an option, and before one
        that is also the name of another document in the library.
        """
        folder = self.folders.get(document.collection)
        if folder is None:
            return document.path
        file = folder / document.path
        try:
            relative = str(file.relative_to(Path.cwd()))
        except (ValueError, OSError):
            return str(file)
        owner, _, rest = unescape(relative).partition("/")
        several = len(self.folders) > 1
        names = {owner: rest} if several else dict.fromkeys(self.folders, unescape(relative))
        others = (
            os.path.join(self.folders[name], path)
            for name, path in names.items()
            if name in self.folders
        )
        shared = any(_is_other_file(other, file) for other in others)
        return f"./{relative}" if shared or relative.startswith("-") else relative


def _is_other_file(path: str, file: Path) -> bool:
    """Return true if a path is that of an existing file, and not of this one."""
    return os.path.isfile(path) and not os.path.samefile(path, file) if file.exists() else False


PLAIN = Style()


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


def hyperlink(text: str, file: Path, line: int = 1, address: str = "") -> str:
    """Return the text as an OSC 8 hyperlink; the host is empty, as the file is on this machine."""
    uri = file.absolute().as_uri()
    path = uri.removeprefix("file://")
    target = address.replace("{path}", path).replace("{line}", str(line)) if address else uri
    return f"\x1b]8;;{target}\x1b\\{text}\x1b]8;;\x1b\\"


def to_json(value: Any, indent: int | None = 2) -> str:
    """Serialise as JSON that is safe to print; letters of all scripts stay readable."""
    import json

    return escape_json(json.dumps(value, ensure_ascii=False, indent=indent, default=str))


def answer_as(answer: Answer, format: str, style: Style = PLAIN) -> str:
    """Render an answer in one of `FORMATS`; only text is styled."""
    if format == "json":
        return to_json(answer.to_dict())
    if format == "jsonl":
        rows = zip(answer.to_dict()["results"], answer.hits, strict=True)
        with_file = ({**result, "file": style.file(hit.chunk.document)} for result, hit in rows)
        return "\n".join(to_json(result, indent=None) for result in with_file)
    if format == "files":
        files = (one_line(style.file(hit.chunk.document)) for hit in answer.hits)
        return "\n".join(dict.fromkeys(files))
    several = answer.several_collections
    if format == "md":
        return "\n\n".join(
            f"### [{inline_markdown(headed_place(hit.chunk, several))}]({link_target(style.file(hit.chunk.document), hit.chunk.anchor)})"
            f"\n\n{quoted(hit.chunk.text)}"
            for hit in answer.hits
        )
    return "\n\n".join(
        hit_text(rank, hit, several, style) for rank, hit in enumerate(answer.hits, 1)
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


def hit_text(rank: int, hit: Hit, several_collections: bool, style: Style = PLAIN) -> str:
    """Render a result: a header with rank, place and score, then the quoted passage."""
    where = headed_place(hit.chunk, several_collections, style.place)
    head = style.bold(f"[{rank}] {where} ({hit.score:.2f})")
    below = (
        similar_line(hit, several_collections, style.rooted),
        linked_line(hit, several_collections, style.rooted),
    )
    return "\n".join([head, text_of(hit.chunk), *(style.dim(line) for line in below if line)])


def nearest_text(answer: Answer, style: Style = PLAIN) -> str:
    """Render the passages that come closest to a query without a confident match, dimmed and shortened."""
    several = answer.several_collections
    return "\n\n".join(
        style.dim(
            f"[{rank}] {headed_place(hit.chunk, several, style.rooted)} ({hit.score:.2f})\n"
            + quoted(shortened(hit.chunk.text.strip()))
        )
        for rank, hit in enumerate(answer.nearest, 1)
    )


def shortened(text: str) -> str:
    """Cut a passage that is no confident match to a few sentences."""
    from marklight.text.lines import truncate_at_sentence

    if len(text) <= NEAREST_CHARACTERS:
        return text
    return truncate_at_sentence(text, NEAREST_CHARACTERS)


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
    index, commits = report.index, report.history
    lines = [", ".join(counts) or ("nothing changed" if commits is None else "no document changed")]
    # The run took the time of both; each line shows its own.
    took_ms = report.took_ms - (commits.took_ms if commits is not None else 0.0)
    lines.append(
        f"{counted(index.documents, 'document')}, {counted(index.chunks, 'passage')}, {index.embedded:,} embedded"
        f" ({took_ms / 1000:.1f} s)" + (one_line(f" in {report.folder}") if report.folder else "")
    )
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
    counts, skipped = report.index, len(report.skipped)
    changes = f"{len(report.added)} added, {len(report.removed)} removed"
    if skipped:
        changes += f", {skipped} unreadable"
    if report.newly_embedded:
        changes += f", {counted(report.newly_embedded, 'passage')} embedded"
    return (
        f"{counted(counts.documents, 'commit')} ({changes}), {counted(counts.chunks, 'passage')},"
        f" {counts.embedded:,} embedded ({report.took_ms / 1000:.1f} s)"
    )


def extract_text(extract: Extract, style: Style = PLAIN) -> str:
    """Render a part of a document: a header with its place, then the quoted text."""
    where = headed_place(extract, extract.several_collections, style.place)
    return f"{style.bold(f'document: {where}')}\n{quoted(extract.text)}"


def levels_text(levels: Sequence[Level]) -> str:
    """List context levels with their sizes."""
    return " · ".join(
        f"{level.name} {level.characters:,} characters (~{level.tokens:,} tokens)"
        for level in levels
    )


def outline_text(outline: Outline, style: Style = PLAIN) -> str:
    """List headings after their lines, indented by level, with their anchors."""
    top = min((heading.level for heading in outline.headings), default=1)
    places = [lines_text(heading.lines) for heading in outline.headings]
    width = max(map(len, places), default=0)
    return "\n".join(
        f"{style.link(place, outline.document, heading.lines[0])}{' ' * (width - len(place))}"
        f"  {heading_text(heading.level - top, heading.text, heading.anchor)}"
        for place, heading in zip(places, outline.headings, strict=True)
    )


def lines_text(lines: Sequence[int]) -> str:
    """Return `:11-16`, the suffix of a path."""
    return f":{lines[0]}-{lines[1]}"


def heading_text(depth: int, text: str, anchor: str) -> str:
    """Indent a heading and add its anchor; its text is untrusted, so it never starts a line."""
    return f"{'  ' * depth}{one_line(text)}  #{one_line(anchor)}"


def flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Flatten nested mappings to dotted keys."""
    rows: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, Mapping):
            rows |= flat(value, f"{prefix}{name}.")
        else:
            rows[prefix + name] = value
    return rows


def table(values: Mapping[str, Any]) -> str:
    """List names and values, one a line, values aligned."""
    rows = {one_line(name): one_line(str(value)) for name, value in values.items()}
    width = max(map(len, rows), default=0)
    return "\n".join(f"{name:<{width}}  {value}" for name, value in rows.items())


def block_quoted(text: str) -> list[str]:
    """Return a text as a block quotation, in a list that is empty for no text."""
    return [quoted(text)] if text else []


def listing_as(listing: Listing, format: str, style: Style = PLAIN) -> str:
    """Render a list of documents in one of `FORMATS`; only text is styled."""
    if format == "json":
        return to_json(listing.to_dict())
    if format == "jsonl":
        rows = zip(listing.to_dict()["documents"], listing.documents, strict=True)
        return "\n".join(
            to_json({**row, "file": style.file(each.document)}, indent=None) for row, each in rows
        )
    if format == "files":
        return "\n".join(one_line(style.file(each.document)) for each in listing.documents)
    several = listing.several_collections
    if format == "md":
        rows_md = (
            f"- [{inline_markdown(_document_name(each, several))}]({link_target(style.file(each.document))})"
            f" ({_document_facts(each)})"
            for each in listing.documents
        )
        return "\n".join([*rows_md, "", listing.summary])
    rows_text = (
        f"{_document_name(each, several, style)} {style.dim(f'({_document_facts(each)})')}"
        for each in listing.documents
    )
    return "\n".join([*rows_text, style.bold(listing.summary)])


def _document_name(each: ListedDocument, several: bool, style: Style = PLAIN) -> str:
    """Return `guide/auth.md § Authentication`."""
    place = place_text(each.document, several)
    path = style.place(place, each.document, each.lines[0])
    return f"{style.bold(path)} § {one_line(each.title)}" if each.title else style.bold(path)


def _document_facts(each: ListedDocument) -> str:
    """Return the number of passages, the date and the score."""
    from marklight.answer import iso_seconds

    facts = [f"{each.passages:,} passage{'s' * (each.passages != 1)}", iso_seconds(each.dated)[:10]]
    if each.score is not None:
        facts.append(f"{each.score:.2f}")
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
