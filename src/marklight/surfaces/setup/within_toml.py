"""One table in a TOML file, put in or taken out by its lines: comments and order stay as they are."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple


class _Statement(NamedTuple):
    """The fewest lines that mean something by themselves."""

    text: str
    values: Mapping[str, Any]

    @property
    def opens(self) -> bool:
        """Whether a table begins here."""
        return self.text.lstrip().startswith("[")

    @property
    def table(self) -> tuple[str, ...]:
        """The name of the table that begins here, part by part."""
        names: list[str] = []
        inner: Any = self.values
        while isinstance(inner, Mapping) and inner:
            names.append(next(iter(inner)))
            inner = inner[names[-1]]
        return tuple(names) if inner == {} else ()


def parse(text: str) -> Any:
    """What the file says."""
    return tomllib.loads(text)


def same(one: Any, other: Any) -> bool:
    """Whether two files say the same; a table that holds nothing need not be written."""
    return bool(_bare(one) == _bare(other))


def put(text: str, keys: Sequence[str], value: Mapping[str, Any]) -> str:
    """The file with these values in a table: its own lines for them are replaced, or it comes last."""
    parts = list(_statements(text))
    newline = "\r\n" if "\r\n" in text else "\n"
    lines = "".join(f"{name} = {_dumped(each)}{newline}" for name, each in value.items())
    at = _begin(parts, keys)
    if at is None:
        ended = text if not text or text.endswith("\n") else text + newline
        gap = newline if ended else ""
        return f"{ended}{gap}[{'.'.join(keys)}]{newline}{lines}"
    head = parts[at].text
    head = head if head.endswith("\n") else head + newline
    body = parts[at + 1 : _end(parts, at)]
    kept = [part.text for part in body if not part.values.keys() & value.keys()]
    before, after = parts[:at], parts[_end(parts, at) :]
    return "".join([*_texts(before), head, lines, *kept, *_texts(after)])


def take(text: str, keys: Sequence[str]) -> str:
    """The file without a table and those below it."""
    parts = list(_statements(text))
    left: list[_Statement] = []
    at = 0
    while at < len(parts):
        if parts[at].opens and parts[at].table[: len(keys)] == tuple(keys):
            # What stands above the next table belongs to it: only our own assignments go.
            own = (place for place in range(at, _end(parts, at)) if parts[place].values)
            at = max(own) + 1
            if left and not left[-1].text.strip():
                left.pop()
        else:
            left.append(parts[at])
            at += 1
    return "".join(_texts(left))


def snippet(keys: Sequence[str], value: Mapping[str, Any]) -> str:
    """The table alone: what can be pasted."""
    return put("", keys, value).rstrip("\n")


def _bare(value: Any) -> Any:
    if not isinstance(value, Mapping):
        return value
    inner = {key: _bare(each) for key, each in value.items()}
    return {key: each for key, each in inner.items() if each != {}}


def _statements(text: str) -> Iterator[_Statement]:
    """The file cut where a cut changes no meaning: a text of many lines may hold what looks like a table."""
    lines = re.findall(r"[^\n]*\n|[^\n]+", text)
    begin = 0
    for end in range(1, len(lines) + 1):
        piece = "".join(lines[begin:end])
        try:
            values = tomllib.loads(piece)
        except tomllib.TOMLDecodeError:
            continue
        yield _Statement(piece, values)
        begin = end


def _begin(parts: Sequence[_Statement], keys: Sequence[str]) -> int | None:
    return next(
        (at for at, part in enumerate(parts) if part.opens and part.table == tuple(keys)), None
    )


def _end(parts: Sequence[_Statement], at: int) -> int:
    return next((end for end in range(at + 1, len(parts)) if parts[end].opens), len(parts))


def _texts(parts: Sequence[_Statement]) -> list[str]:
    return [part.text for part in parts]


def _dumped(value: Any) -> str:
    # A text or a list of texts is written in TOML as in JSON, but for this one sign.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
