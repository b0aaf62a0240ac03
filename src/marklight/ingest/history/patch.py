"""A diff as git prints it to pieces: of each file the changed lines with what stands around them."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

LONGEST_LINE = 400
"""Signs of a line that are kept: longer ones are data."""
_FILE = b"diff --git "
_QUOTED = re.compile(rb'\\(?:([0-7]{3})|([abtnvfr"\\]))')
_SIGNS = dict(zip(b'abtnvfr"\\', b'\a\b\t\n\v\f\r"\\', strict=True))


class Piece(NamedTuple):
    """A file and the beginning of what changed in it."""

    path: str
    lines: tuple[str, ...]


def patch_pieces(patch: bytes, tells: Callable[[bytes], bool], most_lines: int) -> list[Piece]:
    """Files that tell something, until so many lines are taken; binary ones have none."""
    found: list[Piece] = []
    at = 0 if patch.startswith(_FILE) else -1
    while at >= 0 and most_lines > 0:
        after = patch.find(b"\n" + _FILE, at)
        section = patch[at : after if after >= 0 else len(patch)]
        at = after + 1 if after >= 0 else -1
        hunks = section.find(b"\n@@ ")
        path = _path(section[:hunks]) if hunks >= 0 else None
        if path is None or not tells(path):
            continue
        # Few of very many lines are needed, so not all are split.
        lines = section[hunks + 1 :].split(b"\n", most_lines)[:most_lines]
        kept = tuple(_line(line) for line in lines if line)
        most_lines -= len(kept)
        found.append(Piece(path.decode("utf-8", "backslashreplace"), kept))
    return found


def _line(line: bytes) -> str:
    text = line.rstrip(b"\r")[: 4 * LONGEST_LINE].decode("utf-8", "replace").replace("\0", " ")
    return text if len(text) <= LONGEST_LINE else f"{text[:LONGEST_LINE]} …"


def _path(head: bytes) -> bytes | None:
    """Of the new file, or of the old one where it was removed."""
    for mark in (b"\n+++ b/", b'\n+++ "b/', b"\n--- a/", b'\n--- "a/'):
        begin = head.find(mark)
        if begin >= 0:
            end = head.find(b"\n", begin + 1)
            name = head[begin + len(mark) : end if end >= 0 else len(head)]
            # git ends a name that has a blank with a tab, and one that it quotes with the quote.
            return unquoted(name[:-1]) if b'"' in mark else name.removesuffix(b"\t")
    return None


def unquoted(name: bytes) -> bytes:
    """A name as C writes it, as bytes."""
    return _QUOTED.sub(
        lambda sign: bytes([int(sign[1], 8)]) if sign[1] else bytes([_SIGNS[sign[2][0]]]), name
    )
