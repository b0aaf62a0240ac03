"""Match paths with patterns in bounded time, and refuse patterns with too many wildcards."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

from marklight.errors import UsageError

MAX_BACKTRACKING = 1_000_000
"""Steps that a backtracking regular expression may take for one path; beyond it the slower, linear algorithm
is used. Hand-set; not measured."""
MAX_CROSSINGS, MAX_STARS = 8, 4
"""`**` in a pattern and `*` in one name of it: each further one multiplies the ways to match, and with 25
in a name a single file takes hours."""
_WILDCARDS = {"**/": "(?:.*/)?", "/**": "(?:/.*)?", "**": ".*", "*": "[^/]*"}
"""Wildcards of a glob as regular expressions."""


class _Pattern(NamedTuple):
    parts: tuple[str | re.Pattern[str], ...]
    """Wildcards as in `_WILDCARDS`, and regular expressions for what is between them."""
    whole: re.Pattern[str]
    """Compile a glob to a regular expression, which backtracks: fast for few wildcards."""
    wildcards: int


def matches_glob(path: str, glob: str) -> bool:
    """Return true if a pattern matches a path, in a time bounded by the product of their lengths.

    `*` stays within a folder, `**` crosses folders; a bare name matches at any depth. A pattern without
    wildcards also matches everything below a folder of that name.
    """
    pattern = _pattern(glob)
    if len(path) ** pattern.wildcards <= MAX_BACKTRACKING:
        return bool(pattern.whole.fullmatch(path))
    return _matches_linearly(path, pattern)


def _matches_linearly(path: str, pattern: _Pattern) -> bool:
    """Simulate the pattern as an automaton: keep all positions that the parts so far can end at."""
    ends = {0}
    for part in pattern.parts:
        if not ends:
            break
        first = min(ends)
        if isinstance(part, re.Pattern):
            ends = {match.end() for offset in ends if (match := part.match(path, offset))}
        elif part == "*":
            ends = _ends_within_names(path, ends)
        elif part == "**":
            ends = set(range(first, len(path) + 1))
        elif part == "**/":
            ends |= {offset + 1 for offset in range(first, len(path)) if path[offset] == "/"}
        else:
            slash = min(
                (offset for offset in ends if path.startswith("/", offset)), default=len(path)
            )
            ends |= set(range(slash + 1, len(path) + 1))
    return len(path) in ends


def _ends_within_names(path: str, starts: set[int]) -> set[int]:
    """Return all positions from these up to the next `/` after each."""
    ends: set[int] = set()
    for offset in sorted(starts):
        if offset not in ends:
            slash = path.find("/", offset)
            ends.update(range(offset, (len(path) if slash < 0 else slash) + 1))
    return ends


@lru_cache(maxsize=512)
def _pattern(glob: str) -> _Pattern:
    given = glob.strip().removeprefix("./")
    anywhere = "/" not in glob.strip().rstrip("/")
    trimmed = re.sub(r"(\*\*/)+", "**/", re.sub(r"\*{3,}", "**", given.lstrip("/")))
    if not re.search(r"[*?\[]", trimmed):
        parts = [re.escape(trimmed.rstrip("/")), "/**"]
    else:
        split = re.split(r"(\*\*/|\*\*|\*|\?|\[[^\]]+\])", trimmed)
        parts = [part if part in _WILDCARDS else _translate(part) for part in split if part]
        parts += ["**"] if trimmed.endswith("/") else []
    try:
        return _compiled(["**/", *parts] if anywhere else parts)
    except re.error:  # an invalid range such as [z-a] matches itself
        return _compiled([re.escape(trimmed)])


def _compiled(parts: list[str]) -> _Pattern:
    return _Pattern(
        tuple(part if part in _WILDCARDS else re.compile(part, re.DOTALL) for part in parts),
        re.compile("".join(_WILDCARDS.get(part, part) for part in parts), re.DOTALL),
        sum(part in _WILDCARDS for part in parts),
    )


def _translate(part: str) -> str:
    if part == "?":
        return "[^/]"
    if part.startswith("[") and part.endswith("]") and len(part) > 2:
        inner = part[1:-1].replace("\\", r"\\").replace("[", r"\[")
        return f"[^{inner[1:]}]" if inner[0] in "!^" else f"[{inner}]"
    return re.escape(part)


def posix_pattern(glob: str) -> str:
    """Return the glob as an anchored regular expression that PostgreSQL understands; it matches as `matches_glob` does."""
    parts = (
        _WILDCARDS.get(part, "") if isinstance(part, str) else _posix_part(part.pattern)
        for part in _pattern(glob).parts
    )
    return f"^(?:{''.join(parts)})$"


def _posix_part(pattern: str) -> str:
    """Translate what is between wildcards: a set of characters, or an escaped text."""
    if pattern == "[^/]":
        return pattern
    if not pattern.startswith("["):
        text = re.sub(r"\\(.)", r"\1", pattern, flags=re.DOTALL)
        return "".join(sign if sign.isalnum() or sign in "/_" else _code(sign) for sign in text)
    inner = pattern[1:-1].replace(r"\[", "[").replace(r"\\", "\\")
    negated = inner.startswith("^")
    # A range is written with codes, as PostgreSQL has more special characters within brackets than Python.
    codes = re.sub(
        r"(.)-(.)|(.)",
        lambda match: _code(match[3]) if match[3] else f"{_code(match[1])}-{_code(match[2])}",
        inner[negated:],
        flags=re.DOTALL,
    )
    return f"[{'^' * negated}{codes}]"


def _code(sign: str) -> str:
    return f"\\U{ord(sign):08x}"


def has_too_many_wildcards(pattern: str) -> bool:
    """Return true if a pattern has more wildcards than can be matched in bounded time."""
    wild = re.sub(r"\[[^\]]+\]", "", pattern)
    names = [name for name in wild.split("/") if name != "**"]
    return wild.count("**") > MAX_CROSSINGS or any(name.count("*") > MAX_STARS for name in names)


def validate_glob(pattern: str) -> str:
    """Return the pattern; raise UsageError if it has too many wildcards."""
    if has_too_many_wildcards(pattern):
        raise UsageError(
            f"{pattern!r} has too many wildcards", f"Use at most {MAX_STARS} in a name"
        )
    return pattern
