"""Commit objects as git stores them: read in one go, understood whatever their bytes are."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone

from marklight.answer import iso_time
from marklight.ingest.history import git

LONGEST_MESSAGE = 100_000
"""Bytes of a message that are read; a longer one was not written by hand."""
AHEAD = 32
"""Commits that git is asked for before the first is read: few enough for any pipe to hold their names."""

_PERSON = re.compile(rb"(.*?) ?<([^<>]*)> ?(-?\d+)? ?([+-]\d{4,})?")


@dataclass(frozen=True, slots=True)
class Written:
    """What a commit says of itself."""

    hash: str
    parents: tuple[str, ...]
    name: str
    email: str
    date: str
    """When it was written, ISO 8601 with the author's zone."""
    seconds: int
    message: str
    remarks: tuple[str, ...] = ()

    @property
    def subject(self) -> str:
        """Its first paragraph as one line, as git shows it."""
        first = re.split(r"\n\s*\n", self.message.strip(), maxsplit=1)[0]
        return " ".join(first.split())


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A commit that cannot be read, and why."""

    hash: str
    reason: str


def written(place: git.Location, hashes: Sequence[str]) -> Iterator[Written | Unreadable]:
    """Each of these commits, in order; a damaged one is told and the next is read.

    More may be appended while they are read.
    """
    at = 0
    while at < len(hashes):
        with git.stream(place, "cat-file", "--batch") as asked:
            sent = at
            while at < len(hashes):
                if sent <= at:
                    sent = min(len(hashes), at + AHEAD)
                    asked.send("".join(f"{each}\n" for each in hashes[at:sent]).encode())
                found = _next(asked, hashes[at])
                if found is None:
                    yield Unreadable(hashes[at], asked.last_words())
                    at += 1
                    break
                yield found
                at += 1


def _next(asked: git.Stream, hash: str) -> Written | Unreadable | None:
    """None where git has ended."""
    head = asked.line().split()
    if head[1:] == [b"missing"]:
        return Unreadable(hash, "it is missing")
    if len(head) != 3:
        return None
    size, most = int(head[2]), LONGEST_MESSAGE
    data = asked.take(min(size, most))
    left = size - len(data) + 1  # git ends each with a line break
    while left:
        passed = len(asked.take(min(left, most)))
        if not passed:
            return None
        left -= passed
    if head[1] != b"commit":
        return Unreadable(hash, f"it is a {head[1].decode()}, not a commit")
    return understand(hash, data, whole=size <= most)


def understand(hash: str, data: bytes, whole: bool = True) -> Written:
    """A commit object's text."""
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
    remarks = [] if whole else [f"its message is cut after {LONGEST_MESSAGE:,} bytes"]
    text, doubt = decoded(message, encoding)
    if doubt and whole:
        remarks.append(f"its message is no UTF-8; read as {doubt}")
    found = _PERSON.match(person)
    name, email, seconds, zone = found.groups() if found else (person, b"", None, None)
    when = int(seconds or 0)
    return Written(
        hash,
        tuple(parents),
        decoded(name, encoding)[0].strip(),
        decoded(email, encoding)[0].strip(),
        moment(when, (zone or b"+0000").decode()),
        when,
        text.replace("\0", " ").replace("\r\n", "\n").strip(),
        tuple(remarks),
    )


def decoded(data: bytes, encoding: str = "") -> tuple[str, str]:
    """The text, and as what it was read where it is no UTF-8."""
    try:
        return data.decode(), ""
    except UnicodeDecodeError:
        pass
    try:
        return data.decode(encoding), encoding
    except (LookupError, UnicodeDecodeError, ValueError):
        return data.decode("latin-1"), "Latin-1"


def moment(seconds: int, zone: str) -> str:
    """ISO 8601 with its zone; a time or a zone that no calendar has is the nearest in UTC."""
    try:
        away = timedelta(hours=int(zone[1:3]), minutes=int(zone[3:5]))
        own = timezone(-away if zone[0] == "-" else away)
        return (
            (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds))
            .astimezone(own)
            .isoformat()
        )
    except (ValueError, OverflowError):
        return iso_time(seconds * 10**9)
