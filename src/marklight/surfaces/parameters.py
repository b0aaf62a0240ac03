"""What programs may ask with: names and JSON Schemas of values, and a reading that refuses anything else."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, NamedTuple

from marklight.errors import UsageError

MODES = ("hybrid", "semantic", "keyword", "code")
LONGEST_TEXT = 100_000
"""Signs in a question or any other text: what a person or an assistant asks is a thousandth of it."""


class Parameter(NamedTuple):
    """One value that a call may have."""

    name: str
    schema: Mapping[str, Any]
    required: bool = False


def text(name: str, description: str, *, required: bool = False, **more: Any) -> Parameter:
    """A string, not longer than anybody means it to be."""
    kind = {"type": "string", "maxLength": LONGEST_TEXT, "description": description}
    return Parameter(name, {**kind, **more}, required)


def texts(name: str, description: str) -> Parameter:
    """A list of strings."""
    item = {"type": "string", "maxLength": 1000}
    return Parameter(
        name, {"type": "array", "items": item, "maxItems": 500, "description": description}
    )


def whole(name: str, description: str, least: int, most: int, **more: Any) -> Parameter:
    """A whole number between two others."""
    bounds = {"minimum": least, "maximum": most}
    return Parameter(name, {"type": "integer", **bounds, "description": description, **more})


def number(name: str, description: str, least: float, most: float) -> Parameter:
    """A number between two others."""
    bounds = {"minimum": least, "maximum": most}
    return Parameter(name, {"type": "number", **bounds, "description": description})


def flag(name: str, description: str, default: bool | None = False) -> Parameter:
    """Yes or no."""
    told = {} if default is None else {"default": default}
    return Parameter(name, {"type": "boolean", "description": description, **told})


def table(name: str, description: str, values: Mapping[str, Any] | None = None) -> Parameter:
    """Names and values."""
    inner = {"additionalProperties": values} if values else {}
    kind = {"type": "object", **inner, "maxProperties": 500}
    return Parameter(name, {**kind, "description": description})


def schema_of(parameters: Sequence[Parameter]) -> dict[str, Any]:
    """The JSON Schema of all of them together."""
    return {
        "type": "object",
        "properties": {each.name: dict(each.schema) for each in parameters},
        "required": [each.name for each in parameters if each.required],
        "additionalProperties": False,
    }


def nearest(name: str, known: Iterable[str]) -> str:
    """What may have been meant by a name that is not known, and all that are."""
    names = list(known)
    near = get_close_matches(name[:100], names, 1)
    meant = f"Did you mean {near[0]!r}? " if near else ""
    return f"{meant}Known: {', '.join(names) or 'none'}"


def read(parameters: Sequence[Parameter], given: Mapping[str, Any]) -> dict[str, Any]:
    """The values, each of its kind; an unknown name is refused.

    Null is the same as not given, and so is a blank text where one may be left out: forms and some
    assistants send all that they could.
    One text may stand where several may, and a table of texts may be written as KEY=VALUE, as on the
    command line: nobody doubts what is meant.
    """
    known = {each.name: each for each in parameters}
    for name in given:
        if name not in known:
            raise UsageError(
                f"there is no parameter {str(name)[:100]!r}", nearest(str(name), known)
            )
    values = {
        name: _plain(value, known[name].schema)
        for name, value in given.items()
        if value is not None and not _left_out(value, known[name])
    }
    for each in parameters:
        if each.required and each.name not in values:
            raise UsageError(f"{each.name!r} is missing", str(each.schema["description"]))
    for name, value in values.items():
        _demand(name, value, known[name].schema)
    return values


def _left_out(value: Any, parameter: Parameter) -> bool:
    """Whether it is blank where any other text would do."""
    schema = parameter.schema
    free = schema["type"] in ("string", "array") and not schema.keys() & {"enum", "pattern"}
    return free and not parameter.required and _blank(value)


def _blank(value: Any) -> bool:
    return isinstance(value, str) and not value.strip()


def _plain(value: Any, schema: Mapping[str, Any]) -> Any:
    kind = schema["type"]
    if isinstance(value, str) and (kind == "array" or _holds_texts(schema)):
        return [value]
    if kind == "array" and isinstance(value, list):
        return [each for each in value if not _blank(each)]
    if kind == "integer" and isinstance(value, float) and value.is_integer():
        return int(value)  # JSON has numbers of one kind
    return value


def _holds_texts(schema: Mapping[str, Any]) -> bool:
    return schema["type"] == "object" and "additionalProperties" in schema


def _demand(name: str, value: Any, schema: Mapping[str, Any]) -> None:
    kind = schema["type"]
    if _holds_texts(schema) and isinstance(value, list):
        pair, most = schema["additionalProperties"], schema["maxProperties"]
        _demand(name, value, {"type": "array", "items": pair, "maxItems": most})
        return
    fits: bool = isinstance(value, _KINDS[kind])
    if not fits or (kind in _NUMBERS and isinstance(value, bool)):
        raise UsageError(f"{name!r} must be {_IN_WORDS[kind]}, not {_shown(value)}")
    if kind in _NUMBERS and not schema["minimum"] <= value <= schema["maximum"]:
        least, most = schema["minimum"], schema["maximum"]
        raise UsageError(f"{name!r} must be {least} to {most}, not {_shown(value)}")
    if "enum" in schema and value not in schema["enum"]:
        raise UsageError(
            f"{name!r} cannot be {_shown(value)}", f"Known: {', '.join(schema['enum'])}"
        )
    if kind == "string" and len(value) > schema["maxLength"]:
        raise UsageError(
            f"{name!r} has {len(value):,} signs, more than {schema['maxLength']:,}", "Ask for less"
        )
    if kind == "array":
        if len(value) > schema["maxItems"]:
            raise UsageError(f"{name!r} can have {schema['maxItems']} values, not {len(value):,}")
        for each in value:
            _demand(name, each, schema["items"])
    if kind == "object" and len(value) > schema["maxProperties"]:
        raise UsageError(f"{name!r} can have {schema['maxProperties']} names, not {len(value):,}")
    if kind == "object" and "additionalProperties" in schema:
        for key, each in value.items():
            _demand(f"{name}.{key}", each, schema["additionalProperties"])


def _shown(value: Any) -> str:
    said = repr(value)
    return said if len(said) <= 60 else f"{said[:60]}…"


_KINDS: Mapping[str, Any] = {
    "string": str,
    "integer": int,
    "number": (int, float),
    "boolean": bool,
    "array": list,
    "object": dict,
}
_NUMBERS = ("integer", "number")
_IN_WORDS = {
    "string": "a text",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "array": "a list",
    "object": "an object",
}
