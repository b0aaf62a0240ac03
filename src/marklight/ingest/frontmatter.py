"""Parse frontmatter: YAML or TOML at the top of a document, as values that JSON can represent."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import field
from datetime import date, datetime, time
from functools import cache
from typing import Any

from marklight import toml_values
from marklight.lazy import dataclass

MAX_CHARS = 100_000
"""Longer frontmatter is text; YAML of this size takes seconds to parse."""
_MAX_VALUES = 10_000
"""A few lines of YAML with aliases can expand to millions of values (billion laughs)."""
_MAX_DEPTH = 20
_SAFE_CHARS = 1000
"""A text this short cannot be nested deeply enough to overflow the C parser's stack."""
_CLOSING_FENCES = {"---": ("---", "..."), "+++": ("+++",)}


@dataclass(frozen=True, slots=True)
class Frontmatter:
    """The values, the number of lines that they take, and a remark."""

    values: Mapping[str, Any] = field(default_factory=dict)
    lines: int = 0
    remark: str = ""
    """Why the values could not be parsed; the lines are then text."""


def split(text: str) -> Frontmatter:
    """Return the frontmatter of a text; if it cannot be parsed, no values and a remark."""
    fence, end = text[:3], text.find("\n")
    if fence not in _CLOSING_FENCES or text[3 : end if end >= 0 else None].strip(" \t"):
        return Frontmatter()
    lines = text[: MAX_CHARS + 1].split("\n")
    for number, line in enumerate(lines[1:], 1):
        if line.rstrip() in _CLOSING_FENCES[fence]:
            return _load(fence, "\n".join(lines[1:number]), number + 1)
    if (len(lines) > 1 and ":" in lines[1]) or fence == "+++":
        problem = "is too long" if len(text) > MAX_CHARS else "is not closed"
        return Frontmatter(remark=f"frontmatter {problem}, so it is indexed as text")
    return Frontmatter()


def _load(fence: str, source: str, lines: int) -> Frontmatter:
    try:
        if fence == "+++":
            loaded: Any = toml_values.loads(source)
        else:  # tabs as indentation are the most frequent error in YAML
            blank = not source.strip()
            loaded = None if blank else _yaml_loader()(source.replace("\t", "    "))
        if loaded is None:
            return Frontmatter(lines=lines)
        if not isinstance(loaded, dict):
            raise ValueError(f"it is a {type(loaded).__name__}, not keys and values")
        budget = [_MAX_VALUES]
        values = {_key(key): _json_value(value, budget, 0) for key, value in loaded.items()}
    except Exception as error:
        # Whatever a parser raises, the document itself must be indexed.
        return Frontmatter(lines=lines, remark=f"frontmatter could not be parsed: {_reason(error)}")
    return Frontmatter(values, lines)


def _reason(error: Exception) -> str:
    """Return an error in one line; the YAML parser counts lines from 0 and starts after the fence."""
    mark = getattr(error, "problem_mark", None)
    if mark is not None:
        return f"line {mark.line + 2}: {getattr(error, 'problem', None) or 'not valid YAML'}"
    return " ".join(str(error).split())[:200] or type(error).__name__


@cache
def _yaml_loader() -> Callable[[str], Any]:
    import yaml

    class Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
        """The safe loader, but invalid dates and numbers stay strings."""

        def flatten_mapping(self, node: Any) -> None:
            """Do not merge: merging multiplies keys, so `<<` is an ordinary key."""

    def as_written(name: str) -> Callable[[Any, Any], Any]:
        tag = f"tag:yaml.org,2002:{name}"
        constructor = yaml.SafeLoader.yaml_constructors[tag]

        def construct(loader: Any, node: Any) -> Any:
            try:
                value = constructor(loader, node)
            except (ValueError, OverflowError):
                return node.value
            # `1.10` is a version and `12:30` a time: a number is kept only if it prints as it was written.
            return value if name == "timestamp" or str(value) == node.value else node.value

        return construct

    for name in ("int", "float", "timestamp"):
        Loader.add_constructor(f"tag:yaml.org,2002:{name}", as_written(name))
    Loader.add_constructor("tag:yaml.org,2002:merge", _untagged)
    Loader.add_multi_constructor("!", lambda loader, _, node: _untagged(loader, node))

    def load(source: str) -> Any:
        # The C parser recurses without a limit: deep nesting would crash the process.
        if len(source) > _SAFE_CHARS:
            depth = 0
            for event in yaml.parse(source, Loader):
                depth += isinstance(event, yaml.CollectionStartEvent)
                depth -= isinstance(event, yaml.CollectionEndEvent)
                if depth > _MAX_DEPTH:
                    raise ValueError("it is nested too deeply")
        return yaml.load(source, Loader)

    return load


def _untagged(loader: Any, node: Any) -> Any:
    kind = type(node).__name__
    if kind == "MappingNode":
        return loader.construct_mapping(node, deep=True)
    return loader.construct_sequence(node, deep=True) if kind == "SequenceNode" else node.value


def _key(key: object) -> str:
    return key.isoformat() if isinstance(key, date) else str(key)


_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\ud800-\udfff]")


def _json_value(value: object, budget: list[int], depth: int) -> Any:
    """Convert a value to one that JSON can represent, within a budget of values."""
    budget[0] -= 1
    if budget[0] < 0 or depth > _MAX_DEPTH:
        raise ValueError("it expands to too many values")
    if isinstance(value, str):
        return _CONTROL.sub("\ufffd", value)
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return value if abs(value) < 2**63 else str(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, dict):
        return {_key(key): _json_value(item, budget, depth + 1) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_json_value(item, budget, depth + 1) for item in value]
    return _CONTROL.sub("\ufffd", str(value))
