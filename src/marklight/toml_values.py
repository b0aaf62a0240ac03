"""TOML values: parse files with bounded nesting of keys, and convert values to the types of settings.

For a dotted key of n parts `tomllib` keeps n prefixes of up to n parts: 40 kB of `a.a.a` take 1.7 GB.
"""

from __future__ import annotations

import re
import tomllib
import types
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Any

MAX_KEY_PARTS = 20
"""Maximum number of parts of a key or table name; our own have at most four."""
MAX_BYTES = 1_000_000
"""Maximum size of a file; the largest `pyproject.toml` of well-known projects have a tenth of it."""

# Strings end where tomllib ends them, or else a quotation mark could hide a key from the check.
_STRING_OR_COMMENT = re.compile(
    r'"""(?:[^\\]|\\.)*?"""(?:"{0,2})'
    r"|'''.*?'''(?:'{0,2})"
    r'|"(?:[^"\\\n]|\\.)*"'
    r"|'[^'\n]*'"
    r"|\#[^\n]*",
    re.DOTALL,
)
_LONG_KEY = re.compile(rf"(?<![\w-])(?:[\w-]++[ \t]*+\.[ \t]*+){{{MAX_KEY_PARTS}}}")
"""From the beginning of a word and without backtracking: linear in the length of the text."""


class TooDeep(ValueError):
    """A key has too many parts."""


def loads(source: str) -> dict[str, Any]:
    """Parse TOML; raise TooDeep for a key of too many parts, before memory is allocated for it."""
    bare = _STRING_OR_COMMENT.sub(_blank, source)
    if long_key := _LONG_KEY.search(bare):
        line = bare.count("\n", 0, long_key.start()) + 1
        raise TooDeep(f"line {line}: a key has more than {MAX_KEY_PARTS} parts")
    return tomllib.loads(source)


def load(path: Path) -> dict[str, Any]:
    """Parse a file; raise OSError, or ValueError if it is too large, too deep or not TOML."""
    with path.open("rb") as file:
        return parse(file.read(MAX_BYTES + 1))


def parse(data: bytes) -> dict[str, Any]:
    """Parse the content of a file; raise ValueError if it is too large, too deep or not TOML."""
    if len(data) > MAX_BYTES:
        raise ValueError(f"it has more than {MAX_BYTES:,} bytes")
    return loads(data.decode("utf-8-sig").replace("\r\n", "\n").replace("\r", "\n"))


def _blank(match: re.Match[str]) -> str:
    """Return a part of a key for a string, nothing for a comment; lines keep their numbers."""
    text = match[0]
    return "" if text[0] == "#" else "x" + "\n" * text.count("\n")


def nested(key: str, value: Any) -> dict[str, Any]:
    """Return a dotted key and its value as nested tables."""
    for name in reversed(key.split(".")):
        value = {name: value}
    return typing.cast(dict[str, Any], value)


def merged(under: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Merge two nested tables; on conflict the second wins."""
    result = dict(under)
    for name, value in over.items():
        below = result.get(name)
        both = isinstance(below, Mapping) and isinstance(value, Mapping)
        result[name] = merged(below, value) if both else value  # type: ignore[arg-type]
    return result


def tables(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings as nested tables, where some keys may be dotted as in `--set`."""
    result: dict[str, Any] = {}
    for key, value in values.items():
        result = merged(result, nested(str(key), value))
    return result


class Written(str):
    """A value written outside TOML, whose type is that of its setting."""


def convert(value: Any, kind: Any) -> Any:
    """Return a value as the type of a setting; raise TypeError or ValueError if it is of another type."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (types.UnionType, typing.Union):
        if value is None or (isinstance(value, Written) and value in ("", "none")):
            return None
        return convert(value, next(type_ for type_ in arguments if type_ is not type(None)))
    if origin is typing.Literal:
        if (chosen := convert(value, str)) not in arguments:
            raise ValueError
        return chosen
    if isinstance(value, Written) and kind is not str:
        value = _parse(value)
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if origin is tuple:
        items = ([value] if value else []) if isinstance(value, str) else value
        if not isinstance(items, (list, tuple)):
            raise TypeError
        return tuple(convert(item, arguments[0]) for item in items)
    if origin is not None and issubclass(origin, Mapping):
        if not isinstance(value, Mapping):
            raise TypeError
        return {str(name): convert(item, arguments[1]) for name, item in value.items()}
    if kind is str:
        if not isinstance(value, str):
            raise TypeError
        quoted = isinstance(value, Written) and len(value) > 1 and value[0] == value[-1] in "\"'"
        return str(value)[1:-1] if quoted else str(value)
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise TypeError
    if value != value:  # NaN: no comparison with a bound would find it
        raise ValueError
    return value


def _parse(written: str) -> Any:
    try:
        return tomllib.loads(f"value = {written}")["value"]
    except tomllib.TOMLDecodeError:
        return [part.strip() for part in written.split(",")] if "," in written else str(written)


def type_name(kind: Any) -> str:
    """Return the name of a setting's type for error messages."""
    origin = typing.get_origin(kind)
    if origin in (types.UnionType, typing.Union):
        return type_name(typing.get_args(kind)[0])
    if origin is typing.Literal:
        return " or ".join(typing.get_args(kind))
    if origin is tuple:
        return "a list of texts"
    if origin is not None:
        return f"a table in which every value is {type_name(typing.get_args(kind)[1])}"
    return {bool: "true or false", int: "a whole number", float: "a number", str: "a text"}[kind]
