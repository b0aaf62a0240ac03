"""Read diffs of commits with `git diff-tree`: the names of all changed files, and the first lines of meaningful diffs.

Files of other projects, lock files and generated files are left out of the text.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple

from marklight.ingest.history import git

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

    def __init__(self, place: git.Location, max_lines: int) -> None:
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
        at = 0
        while at < len(hashes):
            if self.problem:
                yield CommitChanges()
                at += 1
                continue
            # A random line that no file can contain marks the end of a diff.
            end = f"end of {secrets.token_hex(16)}\n".encode()
            with git.stream(self._place, "diff-tree", "--stdin", "--raw", "-z", *_DIFF) as process:
                sent, buffer = at, bytearray()
                while at < len(hashes):
                    if sent <= at:
                        sent = min(len(hashes), at + git.READ_AHEAD)
                        process.send(
                            b"".join(each.encode() + b"\n" + end for each in hashes[at:sent])
                        )
                    length = _read_until(process, buffer, end)
                    yield self._changes(hashes[at], bytes(buffer), length, process)
                    at += 1
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
        with git.stream(self._place, "diff-tree", *_DIFF, hash, "--", *paths) as process:
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
    while (at := buffer.find(end, max(0, seen - len(end)))) < 0:
        seen = len(buffer)
        more = process.read()
        if not more or seen > MAX_DIFF_BYTES:
            return None
        buffer += more
    return at


def split_names(output: bytes) -> tuple[list[bytes], bytes]:
    """Return the names of all changed files, old names of renamed files included, and the patch after them."""
    names: list[bytes] = []
    at = 0
    while output[at : at + 1] == b":":
        end = output.find(b"\0", at)
        if end < 0:
            break
        for _ in range(2 if output[at:end].rsplit(b" ", 1)[-1][:1] in (b"R", b"C") else 1):
            begin, end = end + 1, output.find(b"\0", end + 1)
            if end < 0:
                return names, b""
            names.append(output[begin:end])
        at = end + 1
    return names, output[at:].lstrip(b"\0")


def parse_patch(patch: bytes, is_source: Callable[[bytes], bool], max_lines: int) -> list[FileDiff]:
    """Return the diffs of source files, `max_lines` lines in all; binary files have none."""
    diffs: list[FileDiff] = []
    at = 0 if patch.startswith(_FILE) else -1
    while at >= 0 and max_lines > 0:
        after = patch.find(b"\n" + _FILE, at)
        section = patch[at : after if after >= 0 else len(patch)]
        at = after + 1 if after >= 0 else -1
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


def is_generated(path: str) -> bool:
    """Return true for vendored, generated and lock files, by their path alone."""
    return bool(_VENDORED_FOLDERS.search(path) or _GENERATED_FILES.search(path))


class SourceFilter:
    """Returns true for paths that are neither vendored nor generated; remembers each path."""

    def __init__(self, place: git.Location) -> None:
        self._place = place
        self._known: dict[bytes, bool] = {}
        self._process: git.Stream | None = None

    def __call__(self, path: bytes) -> bool:
        if path not in self._known:
            generated = is_generated(path.decode("utf-8", "replace"))
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
