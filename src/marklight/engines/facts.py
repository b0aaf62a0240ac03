"""What filters ask about a document: its facts, its moment, its path."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any

from marklight.answer import Filters, iso_time
from marklight.errors import UsageError
from marklight.model import Document

Fact = tuple[str, str]
TAG = "#"
"""The key of a tag's fact; no frontmatter key is a bare `#`."""


def facts(document: Document) -> set[Fact]:
    """Keys and values in lower case; a list counts for each member, a nested key is `outer.inner`."""
    found = set(_flatten("", document.metadata))
    for key, value in (
        ("author", document.author),
        ("category", document.category),
        ("title", document.title),
    ):
        if value:
            found.add((key, _plain(value)))
    for key, values in (
        ("keywords", document.keywords),
        ("tags", document.tags),
        ("aliases", document.aliases),
    ):
        found.update((key, _plain(value)) for value in values)
    for tag in document.tags:
        steps = tag_key(tag).split("/")
        # Written out for every level, so that asking for a tag is one comparison.
        found.update((TAG, "/".join(steps[:depth])) for depth in range(1, len(steps) + 1))
    return found


def _flatten(prefix: str, value: Any) -> Iterator[Fact]:
    if isinstance(value, dict):
        for key, inner in value.items():
            name = str(key).strip().lower()
            yield from _flatten(f"{prefix}.{name}" if prefix else name, inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _flatten(prefix, inner)
    elif value is not None and prefix:
        yield prefix, _plain(value)


def _plain(value: Any) -> str:
    return str(value).strip().lower()


def tag_key(tag: str) -> str:
    """A tag as its fact names it: without the sign, in lower case."""
    return tag.strip().lstrip("#").strip("/").lower()


def asked(filters: Filters) -> list[Fact]:
    """The facts that must all hold, from `where`."""
    return [(key.strip().lower(), _plain(value)) for key, value in filters.where]


def moment(date: str | None, mtime_ns: int) -> str:
    """When a document is from: its own date, else its file time, as ISO 8601."""
    return date or iso_time(mtime_ns)


_ISO = re.compile(
    r"\d{4}(-\d{2}(-\d{2}([T ]\d{2}(:\d{2}(:\d{2}(\.\d+)?)?)?(Z|[+-]\d{2}:?\d{2})?)?)?)?"
)


def bound(date: str | None) -> str | None:
    """A bound on moments; they are compared to the precision that it has, so a day is all of it."""
    if date is None:
        return None
    if not _ISO.fullmatch(date.strip()):
        raise UsageError(f"{date!r} is not a date", "Write it as 2026-01-31, 2026-01 or 2026")
    return date.strip().replace(" ", "T")


def in_time(when: str, after: str | None, before: str | None) -> bool:
    """Whether a moment lies between two bounds, both of them included."""
    return (after is None or when[: len(after)] >= after) and (
        before is None or when[: len(before)] <= before
    )


def any_glob(path: str, globs: Iterable[str]) -> bool:
    """Whether one of these patterns means this path."""
    return any(_pattern(glob).fullmatch(path) for glob in globs)


@lru_cache(maxsize=512)
def _pattern(glob: str) -> re.Pattern[str]:
    """`*` stays within a folder, `**` crosses them; a bare name is found at any depth.

    What is written without a wildcard may also be a folder, and then means all below it.
    """
    given = glob.strip().removeprefix("./")
    anywhere = "/" not in glob.strip().rstrip("/")
    trimmed = re.sub(r"(\*\*/)+", "**/", re.sub(r"\*{3,}", "**", given.lstrip("/")))
    body = "".join(_translate(part) for part in re.split(r"(\*\*/|\*\*|\*|\?|\[[^\]]+\])", trimmed))
    if not re.search(r"[*?\[]", trimmed):
        body = re.escape(trimmed.rstrip("/")) + r"(?:/.*)?"
    elif trimmed.endswith("/"):
        body += ".*"
    try:
        return re.compile(("(?:.*/)?" if anywhere else "") + body, re.DOTALL)
    except re.error:  # a range such as [z-a] means nothing but itself
        return re.compile(re.escape(trimmed), re.DOTALL)


def _translate(part: str) -> str:
    match part:
        case "**/":
            return "(?:.*/)?"
        case "**":
            return ".*"
        case "*":
            return "[^/]*"
        case "?":
            return "[^/]"
    if part.startswith("[") and part.endswith("]") and len(part) > 2:
        inner = part[1:-1].replace("\\", r"\\").replace("[", r"\[")
        return f"[^{inner[1:]}]" if inner[0] in "!^" else f"[{inner}]"
    return re.escape(part)
