"""Commits as documents: read messages with `git cat-file --batch` and diffs with `git diff-tree`, and cut them into passages.

Files of other projects, lock files and generated files are left out of the text of diffs.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from itertools import islice
from typing import NamedTuple

from marklight.answer import iso_time
from marklight.ingest import git
from marklight.lazy import dataclass
from marklight.model import Chunk, Document, DocumentId, Entry, FileState, Heading, Kind, digest
from marklight.results import SHORT_HASH
from marklight.text.markdown import embedding_digest

VERSION = "commits 2"
"""Raise the number when documents or passages of commits change: all commits are then read again."""
MAX_MESSAGE_BYTES = 100_000
"""Bytes of a message that are read; a longer one was not written by hand."""
MAX_TEXT_CHARS = 20_000
"""Characters of a message that are searched."""
MAX_SUBJECT_CHARS = 1000
MAX_TITLE_CHARS = 200
"""Characters of the subject that stand before every passage of a commit."""
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
    place: git.Repository, hashes: Sequence[str]
) -> Iterator[CommitObject | UnreadableCommit]:
    """Return each of these commits, in order; a damaged one does not stop the others.

    The caller may append hashes while it iterates.
    """
    index = 0
    while index < len(hashes):
        with git.Stream(place, "cat-file", "--batch") as process:
            sent = index
            while index < len(hashes):
                if sent <= index:
                    sent = min(len(hashes), index + git.READ_AHEAD)
                    process.send("".join(f"{hash}\n" for hash in hashes[index:sent]).encode())
                commit = _next_commit(process, hashes[index])
                yield commit or UnreadableCommit(hashes[index], process.wait_for_error())
                index += 1
                if commit is None:
                    break


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
        author_zone = timezone(-offset if zone[0] == "-" else offset)
        utc = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds)
        return utc.astimezone(author_zone).isoformat()
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
    numbered = (
        replace(
            chunk,
            id=digest(*document.id, chunk.anchor, str(chunk.lines[0]), str(ordinal), size=8),
            ordinal=ordinal,
        )
        for ordinal, chunk in enumerate(chunks)
    )
    return Entry(document, tuple(numbered))


def _parts(head: Heading, lines: Sequence[str]) -> Iterator[_Part]:
    """Split lines into parts of `MAX_CHARS`, at a hunk or paragraph if one starts in the second half of a part."""
    first, last = head.lines
    start = first
    while start <= last:
        size, end, good = 0, start, 0
        while end <= last and (size + len(lines[end - 1]) < MAX_CHARS or end == start):
            size += len(lines[end - 1]) + 1
            end += 1
            begins = end <= last and (lines[end - 1].startswith("@@") or not lines[end - 2].strip())
            if begins and size > MAX_CHARS // 2:
                good = end
        end = good if good and end <= last else end
        taken = tuple(lines[start - 1 : end - 1])
        if any(line.strip() for line in taken):
            yield _Part(head, start, taken)
        start = end


def _merge_small(parts: Sequence[_Part]) -> list[list[_Part]]:
    groups: list[list[_Part]] = []
    for part in parts:
        small = groups and part.size < SMALL_CHARS and groups[-1][-1].size < SMALL_CHARS
        if small and sum(member.size for member in groups[-1]) + part.size < 2 * SMALL_CHARS:
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
        digest=embedding_digest(title, headings, text),
        merged=merged,
        code=code if kind is Kind.CODE else "",
    )


MAX_DIFF_BYTES = 16_000_000
"""Longest diff that is read whole; of a longer one `FEW_FILES` files are requested by name."""
FEW_FILES = 50
MAX_FILES = 100_000
"""Files of one commit that the filter `--files` can match."""
MAX_FAILURES = 5
"""Consecutive failures after which no more diffs are requested: a partial clone has none at all."""
MAX_LINE_CHARS = 400
"""Characters of a line that are kept; longer lines are data."""

_DIFF = (
    *("--root", "-r", "-p", "-U3", "-M", "-l400", "--no-commit-id", "--no-color", "--no-ext-diff"),
    *("--no-textconv", "--submodule=short", "--src-prefix=a/", "--dst-prefix=b/"),
)
_FILE = b"diff --git "
_QUOTED = re.compile(rb'\\(?:([0-7]{3})|([abtnvfr"\\]))')
_ESCAPES = dict(zip(b'abtnvfr"\\', b'\a\b\t\n\v\f\r"\\', strict=True))

_VENDORED_FOLDERS = re.compile(
    r"(?:^|/)(?:node_modules|bower_components|jspm_packages|vendor|vendored|third[_-]?party|Pods"
    r"|site-packages|\.venv|__pycache__|\.yarn)/",
    re.IGNORECASE,
)
_GENERATED_FILES = re.compile(
    r"(?:^|/)(?:package-lock\.json|npm-shrinkwrap\.json|yarn\.lock|pnpm-lock\.ya?ml|bun\.lockb?|deno\.lock"
    r"|Cargo\.lock|poetry\.lock|uv\.lock|pdm\.lock|Pipfile\.lock|Gemfile\.lock|composer\.lock|go\.sum"
    r"|flake\.lock|mix\.lock|pubspec\.lock|Podfile\.lock|gradle\.lockfile|packages\.lock\.json)$"
    r"|\.min\.(?:js|css|mjs)$|\.(?:map|svg|ipynb)$|\.pb\.(?:go|cc|h)$|_pb2(?:_grpc)?\.pyi?$|\.bundle\.js$"
    r"|-min\.(?:js|css)$|\.snap$",
    re.IGNORECASE,
)
_ATTRIBUTES = ("linguist-generated", "linguist-vendored")
"""Attributes in `.gitattributes` by which a repository marks such files, as on code hosts."""


class FileDiff(NamedTuple):
    """A file and the first lines of its diff."""

    path: str
    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CommitChanges:
    """The files that one commit changed, and their diffs."""

    files: tuple[str, ...] = ()
    diffs: tuple[FileDiff, ...] = ()
    remarks: tuple[str, ...] = ()


class DiffReader:
    """Reads many diffs from one git process, and starts another where it breaks."""

    def __init__(self, place: git.Repository, max_lines: int) -> None:
        self._place, self._max_lines = place, max_lines
        self._is_source = SourceFilter(place)
        self._failures = 0
        self.problem = ""
        """Why no more diffs are requested."""

    def close(self) -> None:
        """End the git processes."""
        self._is_source.close()

    def __call__(self, hashes: Sequence[str]) -> Iterator[CommitChanges]:
        """Return the changes of each of these commits, in order."""
        index = 0
        while index < len(hashes):
            if self.problem:
                yield CommitChanges()
                index += 1
                continue
            # A random line that no file can contain marks the end of a diff.
            end = f"end of {secrets.token_hex(16)}\n".encode()
            with git.Stream(self._place, "diff-tree", "--stdin", "--raw", "-z", *_DIFF) as process:
                sent, buffer = index, bytearray()
                while index < len(hashes):
                    if sent <= index:
                        sent = min(len(hashes), index + git.READ_AHEAD)
                        process.send(
                            b"".join(hash.encode() + b"\n" + end for hash in hashes[index:sent])
                        )
                    length = _read_until(process, buffer, end)
                    yield self._changes(hashes[index], bytes(buffer), length, process)
                    index += 1
                    if length is None:
                        break
                    del buffer[: length + len(end)]

    def _changes(
        self, hash: str, output: bytes, length: int | None, process: git.Stream
    ) -> CommitChanges:
        if length is not None:
            self._failures = 0
            names, patch = split_names(output[:length])
            return self._parsed(names, patch)
        names, _ = split_names(output)
        if len(output) > MAX_DIFF_BYTES:
            return self._first_files(hash, names)
        self._failures += 1
        error = process.wait_for_error()
        if self._failures == MAX_FAILURES:
            self.problem = error
        return self._parsed(names, b"", f"its diff cannot be read: {error}")

    def _first_files(self, hash: str, names: Sequence[bytes]) -> CommitChanges:
        """Request the diffs of the first source files by name."""
        wanted = list(islice((name for name in names if self._is_source(name)), FEW_FILES))
        remark = f"its diff is over {MAX_DIFF_BYTES // 1_000_000} MB; only the beginning is read"
        if not wanted:
            return self._parsed(names, b"", remark)
        paths = [name.decode("utf-8", "surrogateescape") for name in wanted]
        with git.Stream(self._place, "diff-tree", *_DIFF, hash, "--", *paths) as process:
            patch = process.take(MAX_DIFF_BYTES)
        return self._parsed(names, patch, remark)

    def _parsed(self, names: Sequence[bytes], patch: bytes, *remarks: str) -> CommitChanges:
        diffs = parse_patch(patch, self._is_source, self._max_lines)
        if len(names) > MAX_FILES:
            remark = f"it changed {len(names):,} files; filters match the first {MAX_FILES:,} only"
            remarks = (*remarks, remark)
        return CommitChanges(tuple(map(_path_text, names[:MAX_FILES])), tuple(diffs), remarks)


def _read_until(process: git.Stream, buffer: bytearray, end: bytes) -> int | None:
    """Return the length of the next commit's output; None where git ended before, or it is too long."""
    seen = 0
    while (length := buffer.find(end, max(0, seen - len(end)))) < 0:
        seen = len(buffer)
        more = process.read()
        if not more or seen > MAX_DIFF_BYTES:
            return None
        buffer += more
    return length


def split_names(output: bytes) -> tuple[list[bytes], bytes]:
    """Return the names of all changed files, old names of renamed files included, and the patch after them."""
    names: list[bytes] = []
    offset = 0
    while output[offset : offset + 1] == b":":
        end = output.find(b"\0", offset)
        if end < 0:
            break
        for _ in range(2 if output[offset:end].rsplit(b" ", 1)[-1][:1] in (b"R", b"C") else 1):
            begin, end = end + 1, output.find(b"\0", end + 1)
            if end < 0:
                return names, b""
            names.append(output[begin:end])
        offset = end + 1
    return names, output[offset:].lstrip(b"\0")


def parse_patch(patch: bytes, is_source: Callable[[bytes], bool], max_lines: int) -> list[FileDiff]:
    """Return the diffs of source files, `max_lines` lines in all; binary files have none."""
    diffs: list[FileDiff] = []
    offset = 0 if patch.startswith(_FILE) else -1
    while offset >= 0 and max_lines > 0:
        after = patch.find(b"\n" + _FILE, offset)
        section = patch[offset : after if after >= 0 else len(patch)]
        offset = after + 1 if after >= 0 else -1
        hunks = section.find(b"\n@@ ")
        path = _patch_path(section[:hunks]) if hunks >= 0 else None
        if path is None or not is_source(path):
            continue
        # Few of very many lines are needed, so not all are split.
        lines = section[hunks + 1 :].split(b"\n", max_lines)[:max_lines]
        kept = tuple(_line_text(line) for line in lines if line)
        max_lines -= len(kept)
        diffs.append(FileDiff(_path_text(path), kept))
    return diffs


def _line_text(line: bytes) -> str:
    text = line.rstrip(b"\r")[: 4 * MAX_LINE_CHARS].decode("utf-8", "replace").replace("\0", " ")
    return text if len(text) <= MAX_LINE_CHARS else f"{text[:MAX_LINE_CHARS]} …"


def _path_text(path: bytes) -> str:
    """Return a path as text, invalid bytes as `\\xff`."""
    return path.decode("utf-8", "backslashreplace")


def _patch_path(head: bytes) -> bytes | None:
    """Return the path of the new file, or of the old one where it was removed."""
    for mark in (b"\n+++ b/", b'\n+++ "b/', b"\n--- a/", b'\n--- "a/'):
        begin = head.find(mark)
        if begin >= 0:
            end = head.find(b"\n", begin + 1)
            name = head[begin + len(mark) : end if end >= 0 else len(head)]
            # git ends a name that has a space with a tab, and one that it quotes with the quote.
            return _unquoted(name[:-1]) if b'"' in mark else name.removesuffix(b"\t")
    return None


def _unquoted(name: bytes) -> bytes:
    """Resolve the C escapes of a quoted path."""
    return _QUOTED.sub(
        lambda match: bytes([int(match[1], 8)]) if match[1] else bytes([_ESCAPES[match[2][0]]]),
        name,
    )


class SourceFilter:
    """Returns true for paths that are neither vendored nor generated; remembers each path."""

    def __init__(self, place: git.Repository) -> None:
        self._place = place
        self._known: dict[bytes, bool] = {}
        self._process: git.Stream | None = None

    def __call__(self, path: bytes) -> bool:
        if path not in self._known:
            text = path.decode("utf-8", "replace")
            generated = _VENDORED_FOLDERS.search(text) or _GENERATED_FILES.search(text)
            self._known[path] = not generated and not self._has_attribute(path)
        return self._known[path]

    def _has_attribute(self, path: bytes) -> bool:
        """Return true if `.gitattributes` marks a path as generated or vendored; false where git fails."""
        if self._process is None:
            self._process = git.Stream(self._place, "check-attr", "--stdin", "-z", *_ATTRIBUTES)
        self._process.send(path + b"\0")
        output = b""
        while output.count(b"\0") < 3 * len(_ATTRIBUTES):
            more = self._process.read()
            if not more:
                return False
            output += more
        return any(value in (b"set", b"true") for value in output.split(b"\0")[2::3])

    def close(self) -> None:
        """End the git process."""
        if self._process:
            self._process.close()
            self._process = None
