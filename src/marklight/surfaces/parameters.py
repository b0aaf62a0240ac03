"""Parameters of operations: their JSON Schemas, and strict parsing of argument values."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, NamedTuple

from marklight.errors import UsageError

MODES = ("hybrid", "semantic", "keyword", "code")
MAX_TEXT = 100_000
"""Default length limit of a string in characters: a thousand times a usual query."""


class Parameter(NamedTuple):
    """A named argument with its JSON Schema."""

    name: str
    schema: Mapping[str, Any]
    required: bool = False
    aliases: tuple[str, ...] = ()
    """Other names that are accepted for it."""


def string(
    name: str,
    description: str,
    *,
    required: bool = False,
    aliases: tuple[str, ...] = (),
    **keywords: Any,
) -> Parameter:
    """Return a parameter for a string of bounded length."""
    schema = {"type": "string", "maxLength": MAX_TEXT, "description": description}
    return Parameter(name, {**schema, **keywords}, required, aliases)


def strings(name: str, description: str) -> Parameter:
    """Return a parameter for a list of strings."""
    item = {"type": "string", "maxLength": 1000}
    return Parameter(
        name, {"type": "array", "items": item, "maxItems": 500, "description": description}
    )


def integer(name: str, description: str, minimum: int, maximum: int, **keywords: Any) -> Parameter:
    """Return a parameter for an integer within bounds."""
    bounds = {"minimum": minimum, "maximum": maximum}
    return Parameter(name, {"type": "integer", **bounds, "description": description, **keywords})


def number(name: str, description: str, minimum: float, maximum: float) -> Parameter:
    """Return a parameter for a number within bounds."""
    bounds = {"minimum": minimum, "maximum": maximum}
    return Parameter(name, {"type": "number", **bounds, "description": description})


def boolean(name: str, description: str, default: bool | None = False) -> Parameter:
    """Return a parameter for true or false."""
    keywords = {} if default is None else {"default": default}
    return Parameter(name, {"type": "boolean", "description": description, **keywords})


def mapping(name: str, description: str, values: Mapping[str, Any] | None = None) -> Parameter:
    """Return a parameter for a JSON object."""
    properties = {"additionalProperties": values} if values else {}
    schema = {"type": "object", **properties, "maxProperties": 500}
    return Parameter(name, {**schema, "description": description})


def json_schema(parameters: Sequence[Parameter]) -> dict[str, Any]:
    """Return the JSON Schema of an object with these parameters."""
    return {
        "type": "object",
        "properties": {parameter.name: dict(parameter.schema) for parameter in parameters},
        "required": [parameter.name for parameter in parameters if parameter.required],
        "additionalProperties": False,
    }


def suggest(name: str, known: Iterable[str]) -> str:
    """Return a hint for an unknown name: the closest known name, and all of them."""
    names = list(known)
    closest = get_close_matches(name[:100], names, 1)
    suggestion = f"Did you mean {closest[0]!r}? " if closest else ""
    return f"{suggestion}Known: {', '.join(names) or 'none'}"


def parse(parameters: Sequence[Parameter], arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the validated arguments; raise UsageError for an unknown name or an invalid value.

    Null and a blank optional string count as missing, because forms and some assistants send every field.
    A single string is accepted for a list, and KEY=VALUE strings for an object of strings, as on the command line;
    a number, a list or an object as a string of JSON, because query strings and some assistants send them so.
    """
    known = {parameter.name: parameter for parameter in parameters}
    spellings = known | {alias: each for each in parameters for alias in each.aliases}
    values: dict[str, Any] = {}
    for name, value in arguments.items():
        if name not in spellings:
            raise UsageError(f"No such parameter: {str(name)[:100]!r}", suggest(str(name), known))
        parameter = spellings[name]
        if value is None or _is_missing(value, parameter):
            continue
        if parameter.name in values:
            raise UsageError(
                f"{parameter.name!r} is given twice", f"{name!r} is another name of it"
            )
        values[parameter.name] = _normalized(value, parameter.schema)
    for parameter in parameters:
        if parameter.required and parameter.name not in values:
            raise UsageError(
                f"Missing parameter: {parameter.name!r}", str(parameter.schema["description"])
            )
    for name, value in values.items():
        _validate(name, value, known[name].schema)
    return values


def _is_missing(value: Any, parameter: Parameter) -> bool:
    """Return true for a blank optional string that may have any value."""
    schema = parameter.schema
    free = schema["type"] in ("string", "array") and not schema.keys() & {"enum", "pattern"}
    return free and not parameter.required and _is_blank(value)


def _is_blank(value: Any) -> bool:
    return isinstance(value, str) and not value.strip()


def _normalized(value: Any, schema: Mapping[str, Any]) -> Any:
    kind = schema["type"]
    if isinstance(value, str):
        return _converted(value.strip(), schema) if kind != "string" else value
    if kind == "array" and isinstance(value, list):
        items = (_items(item) if isinstance(item, str) else [item] for item in value)
        return [item for own in items for item in own if not _is_blank(item)]
    if kind == "integer" and isinstance(value, float) and value.is_integer():
        return int(value)  # JSON does not distinguish 5 and 5.0
    return value


def _converted(text: str, schema: Mapping[str, Any]) -> Any:
    """Convert a text to the type of a parameter if possible; the validation rejects what stays a text."""
    kind = schema["type"]
    if kind == "array":
        return [item for item in _items(text) if not _is_blank(item)]
    if kind == "integer" and _INTEGER.fullmatch(text):
        return int(text)
    if kind == "number" and _NUMBER.fullmatch(text):
        return float(text)
    if kind == "boolean":
        return _BOOLEANS.get(text.lower(), text)
    if kind == "object":
        parsed = _parsed_json(text) if text.startswith("{") else None
        if isinstance(parsed, dict):
            return parsed
        return [text] if _has_string_values(schema) else text
    return text


def _items(text: str) -> list[Any]:
    """Return the strings of a list in JSON; any other text is the only item: `[slug].md` is a path."""
    parsed = _parsed_json(text) if text.startswith("[") else None
    if isinstance(parsed, list) and all(isinstance(item, str) for item in parsed):
        return parsed
    return [text]


def _parsed_json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _has_string_values(schema: Mapping[str, Any]) -> bool:
    return schema["type"] == "object" and "additionalProperties" in schema


def _validate(name: str, value: Any, schema: Mapping[str, Any]) -> None:
    kind = schema["type"]
    if _has_string_values(schema) and isinstance(value, list):
        items, maximum = schema["additionalProperties"], schema["maxProperties"]
        _validate(name, value, {"type": "array", "items": items, "maxItems": maximum})
        return
    is_of_type: bool = isinstance(value, _PYTHON_TYPES[kind])
    if not is_of_type or (kind in _NUMERIC and isinstance(value, bool)):
        raise UsageError(f"{name!r} must be {_TYPE_NAMES[kind]}, not {_short_repr(value)}")
    if kind in _NUMERIC and not schema["minimum"] <= value <= schema["maximum"]:
        bounds = f"between {schema['minimum']} and {schema['maximum']}"
        raise UsageError(f"{name!r} must be {bounds}, not {_short_repr(value)}")
    if "enum" in schema and value not in schema["enum"]:
        allowed = ", ".join(schema["enum"])
        raise UsageError(f"{name!r} cannot be {_short_repr(value)}", f"Allowed: {allowed}")
    if kind == "string" and len(value) > schema["maxLength"]:
        raise UsageError(
            f"{name!r} is too long: {len(value):,} characters, at most {schema['maxLength']:,}"
        )
    if kind == "array":
        if len(value) > schema["maxItems"]:
            raise UsageError(
                f"{name!r} has too many values: {len(value):,}, at most {schema['maxItems']}"
            )
        for item in value:
            _validate(name, item, schema["items"])
    if kind == "object" and len(value) > schema["maxProperties"]:
        raise UsageError(
            f"{name!r} has too many keys: {len(value):,}, at most {schema['maxProperties']}"
        )
    if kind == "object" and "additionalProperties" in schema:
        for key, item in value.items():
            _validate(f"{name}.{key}", item, schema["additionalProperties"])


def _short_repr(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]}…"


_PYTHON_TYPES: Mapping[str, Any] = {
    "string": str,
    "integer": int,
    "number": (int, float),
    "boolean": bool,
    "array": list,
    "object": dict,
}
_NUMERIC = ("integer", "number")
_INTEGER = re.compile(r"-?[0-9]{1,15}")
_NUMBER = re.compile(r"-?[0-9]{1,15}(\.[0-9]{1,30})?([eE][+-]?[0-9]{1,3})?")
_BOOLEANS = {"true": True, "false": False, "1": True, "0": False}
_TYPE_NAMES = {
    "string": "a string",
    "integer": "an integer",
    "number": "a number",
    "boolean": "true or false",
    "array": "a list",
    "object": "an object",
}
