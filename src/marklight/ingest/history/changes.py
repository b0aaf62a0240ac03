"""What commits changed: every file's name, and the beginning of the diff of those that tell something."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from marklight.ingest.history import git
from marklight.ingest.history.objects import AHEAD
from marklight.ingest.history.patch import Piece, patch_pieces
from marklight.ingest.history.vendored import Telling

LARGEST_DIFF = 16_000_000
"""Bytes of a diff that are looked at; of a larger one a few files are asked for by their names."""
FEW = 50
"""So many files."""
MOST_FILES = 100_000
"""Files of one commit that can be filtered by."""
IN_A_ROW = 5
"""Diffs that may fail one after the other before no more are asked for: a partial clone has none at all."""

_DIFF = (
    *("--root", "-r", "-p", "-U3", "-M", "-l400", "--no-commit-id", "--no-color", "--no-ext-diff"),
    *("--no-textconv", "--submodule=short", "--src-prefix=a/", "--dst-prefix=b/"),
)


@dataclass(frozen=True, slots=True)
class Changed:
    """What one commit changed."""

    files: tuple[str, ...] = ()
    pieces: tuple[Piece, ...] = ()
    remarks: tuple[str, ...] = ()


class Changes:
    """Asks one git for many commits, and another where that one breaks."""

    def __init__(self, place: git.Location, most_lines: int) -> None:
        self._place, self._most_lines = place, most_lines
        self._tells = Telling(place)
        self._failed = 0
        self.lacking = ""
        """Why no more diffs are asked for."""

    def close(self) -> None:
        """Let go of what was asked."""
        self._tells.close()

    def __call__(self, hashes: Sequence[str]) -> Iterator[Changed]:
        """Of each of these commits, in order."""
        at = 0
        while at < len(hashes):
            if self.lacking:
                yield Changed()
                at += 1
                continue
            # Whatever a file holds, nobody can have written this line.
            end = f"end of {secrets.token_hex(16)}\n".encode()
            with git.stream(self._place, "diff-tree", "--stdin", "--raw", "-z", *_DIFF) as asked:
                sent, rest = at, bytearray()
                while at < len(hashes):
                    if sent <= at:
                        sent = min(len(hashes), at + AHEAD)
                        asked.send(
                            b"".join(each.encode() + b"\n" + end for each in hashes[at:sent])
                        )
                    whole = _frame(asked, rest, end)
                    yield self._changed(hashes[at], bytes(rest), whole, asked)
                    at += 1
                    if whole is None:
                        break
                    del rest[: whole + len(end)]

    def _changed(self, hash: str, frame: bytes, whole: int | None, asked: git.Stream) -> Changed:
        if whole is not None:
            self._failed = 0
            names, patch = raw_names(frame[:whole])
            return self._told(names, patch)
        names, _ = raw_names(frame)
        if len(frame) > LARGEST_DIFF:
            return self._a_few(hash, names)
        self._failed += 1
        why = asked.last_words()
        if self._failed == IN_A_ROW:
            self.lacking = why
        return self._told(names, b"", f"its diff cannot be read: {why}")

    def _a_few(self, hash: str, names: Sequence[bytes]) -> Changed:
        """The first files that tell something, asked for by name."""
        wanted = list(islice((name for name in names if self._tells(name)), FEW))
        said = f"its diff is over {LARGEST_DIFF // 1_000_000} MB; only the beginning is read"
        if not wanted:
            return self._told(names, b"", said)
        paths = [name.decode("utf-8", "surrogateescape") for name in wanted]
        with git.stream(self._place, "diff-tree", *_DIFF, hash, "--", *paths) as asked:
            patch = asked.take(LARGEST_DIFF)
        return self._told(names, patch, said)

    def _told(self, names: Sequence[bytes], patch: bytes, *remarks: str) -> Changed:
        pieces = patch_pieces(patch, self._tells, self._most_lines)
        if len(names) > MOST_FILES:
            said = f"it changed {len(names):,} files; the first {MOST_FILES:,} are known by name"
            remarks = (*remarks, said)
        return Changed(tuple(map(shown, names[:MOST_FILES])), tuple(pieces), remarks)


def _frame(asked: git.Stream, rest: bytearray, end: bytes) -> int | None:
    """Where the next commit's output ends; None where git ended before, or there is too much of it."""
    seen = 0
    while (found := rest.find(end, max(0, seen - len(end)))) < 0:
        seen = len(rest)
        more = asked.read()
        if not more or seen > LARGEST_DIFF:
            return None
        rest += more
    return found


def raw_names(frame: bytes) -> tuple[list[bytes], bytes]:
    """The names of all changed files, old ones of renamed files too; and the diff after them."""
    names: list[bytes] = []
    at = 0
    while frame[at : at + 1] == b":":
        end = frame.find(b"\0", at)
        if end < 0:
            break
        for _ in range(2 if frame[at:end].rsplit(b" ", 1)[-1][:1] in (b"R", b"C") else 1):
            begin, end = end + 1, frame.find(b"\0", end + 1)
            if end < 0:
                return names, b""
            names.append(frame[begin:end])
        at = end + 1
    return names, frame[at:].lstrip(b"\0")


def shown(path: bytes) -> str:
    """A path as text, bytes that are none as `\\xff`."""
    return path.decode("utf-8", "backslashreplace")
