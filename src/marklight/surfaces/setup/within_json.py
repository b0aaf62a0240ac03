"""One entry in a JSON file, put in or taken out by its letters: everything else stays as it is written."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

_DECODER = json.JSONDecoder()


class _Member(NamedTuple):
    """A key and its value: where the key begins, where the value begins and ends."""

    key: str
    at: int
    value_at: int
    end: int


def parse(text: str) -> Any:
    """What the file says; a blank one says nothing."""
    return json.loads(text, object_pairs_hook=_once) if text.strip() else {}


def same(one: Any, other: Any) -> bool:
    """Whether two files say the same; NaN, which Python reads, equals itself here."""
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)


def put(text: str, keys: Sequence[str], value: Any) -> str:
    """The file with a value at the end of a path of keys, in the file's own indentation."""
    if not text.strip():
        text = "{}\n"
    written = _Writing(text)
    start = _skip(text, 0)
    for depth, key in enumerate(keys, 1):
        members, end = _members(text, start)
        here = next((member for member in members if member.key == key), None)
        if here is None:
            for outer in reversed(keys[depth:]):
                value = {outer: value}
            said = f"{json.dumps(key)}: {written.dumped(value, depth)}"
            if members:
                last = members[-1].end
                return f"{text[:last]},{written.line(depth)}{said}{text[last:]}"
            inside = f"{written.line(depth)}{said}{written.line(depth - 1)}"
            return text[: start + 1] + inside + text[end:]
        if depth == len(keys):
            return text[: here.value_at] + written.dumped(value, depth) + text[here.end :]
        start = here.value_at
    raise AssertionError("a path has at least one key")


def take(text: str, keys: Sequence[str]) -> str:
    """The file without the member at the end of a path of keys, which is there."""
    start = _skip(text, 0)
    for key in keys[:-1]:
        start = next(each.value_at for each in _members(text, start)[0] if each.key == key)
    members, end = _members(text, start)
    at = next(place for place, each in enumerate(members) if each.key == keys[-1])
    if at:
        return text[: members[at - 1].end] + text[members[at].end :]
    if len(members) > 1:
        return text[: members[0].at] + text[members[1].at :]
    return text[: start + 1] + text[end:]


def snippet(keys: Sequence[str], value: Any) -> str:
    """A file that holds the entry alone: what can be pasted."""
    return put("", keys, value).rstrip("\n")


class _Writing:
    """How the file is written: on one line or on many, and with which indentation."""

    def __init__(self, text: str) -> None:
        one_line = "\n" not in text.strip() and len(text.strip()) > len("{}")
        self._newline = "" if one_line else "\r\n" if "\r\n" in text else "\n"
        indented = re.search(r'\n([ \t]+)"', text)
        self._unit = "" if one_line else indented[1] if indented else "  "

    def line(self, depth: int) -> str:
        return self._newline + self._unit * depth

    def dumped(self, value: Any, depth: int) -> str:
        said = json.dumps(value, ensure_ascii=False, indent=self._unit or None)
        return said.replace("\n", self.line(depth))


def _members(text: str, start: int) -> tuple[list[_Member], int]:
    """The members of the object that begins there, and where it ends; the text is known to be JSON."""
    found: list[_Member] = []
    at = _skip(text, start + 1)
    while text[at] != "}":
        key, end = _DECODER.raw_decode(text, at)
        value_at = _skip(text, _skip(text, end) + 1)
        _, end = _DECODER.raw_decode(text, value_at)
        found.append(_Member(key, at, value_at, end))
        at = _skip(text, end)
        if text[at] == ",":
            at = _skip(text, at + 1)
    return found, at


def _skip(text: str, at: int) -> int:
    while text[at : at + 1] in (" ", "\t", "\n", "\r"):
        at += 1
    return at


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        # Which of the two a program reads differs from program to program.
        raise ValueError("a key stands twice in one object")
    return found
