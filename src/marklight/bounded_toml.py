"""Parse TOML from files that others wrote: the nesting of keys is bounded before the parser sees them.

For a dotted key of n parts `tomllib` keeps n prefixes of up to n parts: 40 kB of `a.a.a` take 1.7 GB.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

MOST_PARTS = 20
"""Limit of the parts of one key or table name; our own have four at the most."""
MOST_BYTES = 1_000_000
"""Limit of the size of a file; the largest `pyproject.toml` of well-known projects have a tenth of it."""

# Strings end where tomllib ends them, or else a quotation mark could hide a key from the check.
_STRING_OR_COMMENT = re.compile(
    r'"""(?:[^\\]|\\.)*?"""(?:"{0,2})'
    r"|'''.*?'''(?:'{0,2})"
    r'|"(?:[^"\\\n]|\\.)*"'
    r"|'[^'\n]*'"
    r"|\#[^\n]*",
    re.DOTALL,
)
_LONG_KEY = re.compile(rf"(?<![\w-])(?:[\w-]++[ \t]*+\.[ \t]*+){{{MOST_PARTS}}}")
"""From the beginning of a word and without backtracking: linear in the length of the text."""


class TooDeep(ValueError):
    """A key has more parts than anybody means."""


def loads(source: str) -> dict[str, Any]:
    """Parse TOML; raise TooDeep for a key of too many parts, before any memory is taken for it."""
    bare = _STRING_OR_COMMENT.sub(_blank, source)
    if found := _LONG_KEY.search(bare):
        line = bare.count("\n", 0, found.start()) + 1
        raise TooDeep(f"line {line}: a key has more than {MOST_PARTS} parts")
    return tomllib.loads(source)


def load(path: Path) -> dict[str, Any]:
    """Parse a file; raise OSError, or ValueError for what is too large, too deep or no TOML."""
    with path.open("rb") as file:
        return parse(file.read(MOST_BYTES + 1))


def parse(data: bytes) -> dict[str, Any]:
    """Parse the content of a file; raise ValueError for what is too large, too deep or no TOML."""
    if len(data) > MOST_BYTES:
        raise ValueError(f"it has more than {MOST_BYTES:,} bytes")
    return loads(data.decode("utf-8-sig").replace("\r\n", "\n").replace("\r", "\n"))


def _blank(found: re.Match[str]) -> str:
    """Return a part of a key for a string, nothing for a comment; lines keep their numbers."""
    text = found[0]
    return "" if text[0] == "#" else "x" + "\n" * text.count("\n")
