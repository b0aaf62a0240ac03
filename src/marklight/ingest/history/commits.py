"""Read commit objects with `git cat-file --batch`, build a document of each commit, and cut it into passages."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta, timezone
from typing import NamedTuple

from marklight.answer import iso_time
from marklight.batch import Entry
from marklight.ingest.history import git
from marklight.ingest.history.diffs import CommitChanges
from marklight.model import Chunk, Document, DocumentId, FileState, Heading, Kind
from marklight.text import digest
from marklight.text.markdown import embedding_text

VERSION = "commits 2"
"""Raise the number when documents or passages of commits change: all commits are then read again."""
MAX_MESSAGE_BYTES = 100_000
"""Bytes of a message that are read; a longer one was not written by hand."""
MAX_TEXT_CHARS = 20_000
"""Characters of a message that are searched."""
MAX_SUBJECT_CHARS = 1000
MAX_TITLE_CHARS = 200
"""Characters of the subject that stand before every passage of a commit."""
SHORT_HASH = 7
"""Characters of a short hash."""
MAX_CHARS = 1200
"""Characters of a passage: code has more tokens than prose, and few models read more than 512 of them."""
SMALL_CHARS = 400
"""Files with less than this share a passage with their neighbours."""
MAX_NAMES = 30
"""Names of changed files by which a message can be found."""

_PERSON = re.compile(rb"(.*?) ?<([^<>]*)> ?(-?\d+)? ?([+-]\d{4,})?")


@dataclass(frozen=True, slots=True)
class CommitObject:
    """The fields of a commit."""

    hash: str
    parents: tuple[str, ...]
    name: str
    email: str
    date: str
    """Author date, ISO 8601 with the author's time zone."""
    seconds: int
    message: str
    remarks: tuple[str, ...] = ()

    @property
    def subject(self) -> str:
        """Return the first paragraph as one line, as git shows it."""
        first = re.split(r"\n\s*\n", self.message.strip(), maxsplit=1)[0]
        return " ".join(first.split())


@dataclass(frozen=True, slots=True)
class UnreadableCommit:
    """A commit that cannot be read, and why."""

    hash: str
    reason: str


def read_commits(
    place: git.Location, hashes: Sequence[str]
) -> Iterator[CommitObject | UnreadableCommit]:
    """Return each of these commits, in order; a damaged one does not stop the others.

    The caller may append hashes while it iterates.
    """
    at = 0
    while at < len(hashes):
        with git.stream(place, "cat-file", "--batch") as process:
            sent = at
            while at < len(hashes):
                if sent <= at:
                    sent = min(len(hashes), at + git.READ_AHEAD)
                    process.send("".join(f"{each}\n" for each in hashes[at:sent]).encode())
                commit = _next_commit(process, hashes[at])
                if commit is None:
                    yield UnreadableCommit(hashes[at], process.wait_for_error())
                    at += 1
                    break
                yield commit
                at += 1


def _next_commit(process: git.Stream, hash: str) -> CommitObject | UnreadableCommit | None:
    """Read one object; None where git has ended."""
    head = process.line().split()
    if head[1:] == [b"missing"]:
        return UnreadableCommit(hash, "it is missing")
    if len(head) != 3:
        return None
    size = int(head[2])
    data = process.take(min(size, MAX_MESSAGE_BYTES))
    left = size - len(data) + 1  # git ends each with a line break
    while left:
        skipped = len(process.take(min(left, MAX_MESSAGE_BYTES)))
        if not skipped:
            return None
        left -= skipped
    if head[1] != b"commit":
        return UnreadableCommit(hash, f"it is a {head[1].decode()}, not a commit")
    return parse_commit(hash, data, whole=size <= MAX_MESSAGE_BYTES)


def parse_commit(hash: str, data: bytes, whole: bool = True) -> CommitObject:
    """Parse a commit object; accepts any bytes."""
    head, _, message = data.partition(b"\n\n")
    parents, person, encoding = [], b"", ""
    for line in head.split(b"\n"):
        key, _, value = line.partition(b" ")
        if key == b"parent":
            parents.append(value.decode("ascii", "replace"))
        elif key == b"author":
            person = value
        elif key == b"encoding":
            encoding = value.decode("ascii", "replace")
    remarks = [] if whole else [f"its message is cut after {MAX_MESSAGE_BYTES:,} bytes"]
    text, fallback = _decode(message, encoding)
    if fallback and whole:
        remarks.append(f"its message is not valid UTF-8; decoded as {fallback}")
    author = _PERSON.match(person)
    name, email, seconds, zone = author.groups() if author else (person, b"", None, None)
    time = int(seconds or 0)
    return CommitObject(
        hash,
        tuple(parents),
        _decode(name, encoding)[0].strip(),
        _decode(email, encoding)[0].strip(),
        _iso_date(time, (zone or b"+0000").decode()),
        time,
        text.replace("\0", " ").replace("\r\n", "\n").strip(),
        tuple(remarks),
    )


def _decode(data: bytes, encoding: str = "") -> tuple[str, str]:
    """Return the text, and the encoding used where it is not UTF-8."""
    try:
        return data.decode(), ""
    except UnicodeDecodeError:
        pass
    try:
        return data.decode(encoding), encoding
    except (LookupError, UnicodeDecodeError, ValueError):
        return data.decode("latin-1"), "Latin-1"


def _iso_date(seconds: int, zone: str) -> str:
    """Return ISO 8601 with the zone; an impossible time or zone becomes the nearest time in UTC."""
    try:
        offset = timedelta(hours=int(zone[1:3]), minutes=int(zone[3:5]))
        own = timezone(-offset if zone[0] == "-" else offset)
        utc = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds)
        return utc.astimezone(own).isoformat()
    except (ValueError, OverflowError):
        return iso_time(seconds * 10**9)


def commit_document(
    repository: str, commit: CommitObject, changes: CommitChanges, recipe: str
) -> Document:
    """Return a commit as a document: its message, then the beginning of its diff, one outline entry per file."""
    message = commit.message[:MAX_TEXT_CHARS] or "(no message)"
    subject = commit.subject or "(no message)"
    lines = message.split("\n")
    outline = [Heading(1, subject[:MAX_SUBJECT_CHARS], "message", (1, len(lines)))]
    for number, file in enumerate(changes.diffs, 1):
        lines += ["", *file.lines]
        first = len(lines) - len(file.lines) + 1
        outline.append(Heading(2, file.path, f"diff-{number}", (first, len(lines))))
    text = "\n".join(lines).encode("utf-8", "replace").decode()
    # The filter `author:ada` matches any word of the name and the local part of the address.
    author = [commit.name, commit.email, *commit.name.split(), commit.email.partition("@")[0]]
    return Document(
        id=DocumentId(repository, commit.hash),
        title=subject[:MAX_SUBJECT_CHARS],
        text=text,
        file=FileState(len(text), commit.seconds * 10**9),
        digest=digest(text),
        recipe=recipe,
        aliases=(commit.hash[:SHORT_HASH],),
        author=commit.name,
        date=commit.date,
        metadata={"author": author, "files": list(changes.files)},
        outline=tuple(outline),
        remarks=(*commit.remarks, *changes.remarks),
    )


class _Part(NamedTuple):
    """Lines of one file, or of the message."""

    head: Heading
    first: int
    lines: tuple[str, ...]

    @property
    def size(self) -> int:
        return sum(len(line) + 1 for line in self.lines)


def chunk_commit(document: Document) -> Entry:
    """Cut a commit into passages: its message, then its diff by files and hunks, small files merged."""
    lines = document.text.split("\n")
    message, *files = document.outline
    names = document.metadata["files"][:MAX_NAMES]
    chunks = [
        _chunk(document, part, (), tuple(names) if part.first == 1 else (), Kind.PROSE)
        for part in _parts(message, lines)
    ]
    parts = [part for head in files for part in _parts(head, lines)]
    groups = _merge_small(parts)
    chunks += [_diff_chunk(document, group) for group in groups]
    return Entry(document, tuple(_with_ids(document, chunks)))


def _parts(head: Heading, lines: Sequence[str]) -> Iterator[_Part]:
    """Split lines into parts of `MAX_CHARS`, at a hunk or paragraph if one starts in the second half of a part."""
    first, last = head.lines
    at = first
    while at <= last:
        size, end, good = 0, at, 0
        while end <= last and (size + len(lines[end - 1]) < MAX_CHARS or end == at):
            size += len(lines[end - 1]) + 1
            end += 1
            begins = end <= last and (lines[end - 1].startswith("@@") or not lines[end - 2].strip())
            if begins and size > MAX_CHARS // 2:
                good = end
        end = good if good and end <= last else end
        taken = tuple(lines[at - 1 : end - 1])
        if any(line.strip() for line in taken):
            yield _Part(head, at, taken)
        at = end


def _merge_small(parts: Sequence[_Part]) -> list[list[_Part]]:
    groups: list[list[_Part]] = []
    for part in parts:
        small = groups and part.size < SMALL_CHARS and groups[-1][-1].size < SMALL_CHARS
        if small and sum(each.size for each in groups[-1]) + part.size < 2 * SMALL_CHARS:
            groups[-1].append(part)
        else:
            groups.append([part])
    return groups


def _diff_chunk(document: Document, group: Sequence[_Part]) -> Chunk:
    if len(group) == 1:
        return _chunk(document, group[0], (group[0].head.text,), (), Kind.CODE)
    lines = [line for part in group for line in (part.head.text, *part.lines)]
    names = tuple(dict.fromkeys(part.head.text for part in group))
    head = group[0].head._replace(lines=(group[0].first, group[-1].head.lines[1]))
    return _chunk(document, _Part(head, group[0].first, tuple(lines)), (), names, Kind.CODE)


def _chunk(
    document: Document, part: _Part, headings: tuple[str, ...], merged: tuple[str, ...], kind: Kind
) -> Chunk:
    text = "\n".join(part.lines).strip("\n")
    title = document.title[:MAX_TITLE_CHARS]
    code = "\n".join(line[1:] if line[:1] in "+- " else line for line in part.lines)
    return Chunk(
        id="",
        document=document.id,
        ordinal=0,
        title=title,
        headings=headings,
        anchor=part.head.anchor,
        lines=(part.first, max(part.first, part.first + len(part.lines) - 1)),
        kind=kind,
        text=text,
        parent="",
        digest=digest(embedding_text(title, headings, text)),
        merged=merged,
        code=code if kind is Kind.CODE else "",
    )


def _with_ids(document: Document, chunks: Sequence[Chunk]) -> Iterator[Chunk]:
    for ordinal, chunk in enumerate(chunks):
        id = digest(*document.id, chunk.anchor, str(chunk.lines[0]), str(ordinal), size=8)
        yield replace(chunk, id=id, ordinal=ordinal)
