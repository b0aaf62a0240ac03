"""Parameters of operations: read from annotated signatures, described by JSON Schemas, converted and validated."""

from __future__ import annotations

import inspect
import json
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from datetime import date
from types import NoneType
from typing import Annotated, Any, Literal, NamedTuple, get_args, get_origin

from marklight.errors import UsageError
from marklight.lazy import dataclass

MAX_TEXT = 100_000
"""Default length limit of a string in characters: a thousand times a usual query."""
MAX_ITEMS = 500
"""Limit of the values of one filter: each is a condition on every document, and SQLite takes 1,000."""
SHORT_TEXT = {"type": "string", "maxLength": 1000}
STRINGS = {"type": "array", "items": SHORT_TEXT, "maxItems": MAX_ITEMS}
OBJECT = {"type": "object", "maxProperties": MAX_ITEMS}
STRING_VALUES = {**OBJECT, "additionalProperties": SHORT_TEXT}
_SCHEMAS: Mapping[Any, Mapping[str, Any]] = {
    str: {"type": "string", "maxLength": MAX_TEXT},
    int: {"type": "integer"},
    float: {"type": "number"},
    bool: {"type": "boolean"},
}


class About(NamedTuple):
    """Description and JSON Schema keywords that an annotation adds to a type."""

    description: str
    keywords: Mapping[str, Any]
    metavar: str = ""
    """Name of the value on the command line."""
    aliases: tuple[str, ...] = ()
    """Other names that are accepted for the parameter."""
    tool: str | None = None


def about(
    description: str,
    schema: Mapping[str, Any] | None = None,
    *,
    metavar: str = "",
    aliases: tuple[str, ...] = (),
    tool: str | None = None,
    **keywords: Any,
) -> About:
    """Describe a parameter in its annotation; `schema` is needed for lists and objects only."""
    return About(description, {**(schema or {}), **keywords}, metavar, aliases, tool)


@dataclass(frozen=True, slots=True)
class Parameter:
    """A named argument with its JSON Schema."""

    name: str
    schema: Mapping[str, Any]
    required: bool = False
    aliases: tuple[str, ...] = ()
    """Other names that are accepted for it."""
    metavar: str = ""
    default: Any = None
    tool: str | None = None
    """Short description for language models, may be empty; None if the tool of the operation does not have it."""

    @classmethod
    def of(
        cls, name: str, kind: str, description: str, *, required: bool = False, **keywords: Any
    ) -> Parameter:
        """Return a parameter that no operation has; a string has at most 1,000 characters by default."""
        schema = SHORT_TEXT if kind == "string" else {"type": kind}
        return cls(name, {**schema, "description": description, **keywords}, required)

    @property
    def description(self) -> str:
        """Return what the parameter means."""
        return str(self.schema["description"])


def read_parameter(parameter: inspect.Parameter) -> Parameter | None:
    """Return the parameter that an annotated argument declares; None if it is not described."""
    annotation = parameter.annotation
    if get_origin(annotation) is not Annotated:
        return None
    kind, note = get_args(annotation)
    required = parameter.default is parameter.empty
    schema = {**_type_schema(kind), **note.keywords}
    schema["description"] = note.description
    if isinstance(parameter.default, (bool, int, float, str)) and parameter.default != "":
        schema["default"] = parameter.default
    default = None if required else parameter.default
    return Parameter(
        parameter.name, schema, required, note.aliases, note.metavar, default, note.tool
    )


def _type_schema(kind: Any) -> Mapping[str, Any]:
    """Return the schema of a plain type, of a choice of texts, or of one that may be None."""
    if get_origin(kind) is Literal:
        return {**_SCHEMAS[str], "enum": list(get_args(kind))}
    members = [member for member in get_args(kind) if member is not NoneType]
    return _type_schema(members[0]) if len(members) == 1 else _SCHEMAS.get(kind, {})


@dataclass(frozen=True, slots=True)
class Operation:
    """A method of the library that all surfaces offer: its description and parameters."""

    name: str
    description: str
    parameters: tuple[Parameter, ...]
    hooks: Mapping[str, Any] = field(default_factory=dict)
    """Arguments that only callers in the same process have, such as `progress`, and their defaults."""
    positional: tuple[str, ...] = ()
    result: Any = None
    """Type of the result, or its name."""

    @classmethod
    def of(cls, method: Callable[..., Any]) -> Operation:
        """Read an operation from the signature of a method."""
        signature = inspect.signature(method)
        _, *arguments = signature.parameters.values()
        described = {argument.name: read_parameter(argument) for argument in arguments}
        return cls(
            method.__name__,
            (method.__doc__ or "").partition("\n")[0],
            tuple(filter(None, described.values())),
            {item.name: item.default for item in arguments if described[item.name] is None},
            tuple(item.name for item in arguments if item.kind is not item.KEYWORD_ONLY),
            signature.return_annotation,
        )

    def __getitem__(self, name: str) -> Parameter:
        """Return the parameter of this name."""
        return next(parameter for parameter in self.parameters if parameter.name == name)

    def bind(self, arguments: Sequence[Any], keywords: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments of a call in Python by name."""
        if len(arguments) > len(self.positional):
            raise UsageError(
                f"{self.name} takes {len(self.positional)} positional arguments, not {len(arguments)}"
            )
        bound = dict(zip(self.positional, arguments, strict=False))
        names = _spellings(self.parameters) | dict.fromkeys(self.hooks)
        for given, value in keywords.items():
            if given not in names:
                raise UsageError(f"{self.name} has no parameter {given!r}", suggest(given, names))
            parameter = names[given]
            name = parameter.name if parameter else given
            if name in bound:
                raise UsageError(f"{name!r} is given twice", f"{given!r} is another name of it")
            bound[name] = value
        return bound

    def check(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments of a call in Python, validated, with all defaults and hooks."""
        given = {name: value for name, value in arguments.items() if value is not None}
        values = {
            parameter.name: python_value(given[parameter.name], parameter.schema)
            for parameter in self.parameters
            if parameter.name in given
        }
        validate(self.parameters, values)
        hooks = {name: given.get(name, default) for name, default in self.hooks.items()}
        return self.complete(values) | hooks

    def complete(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return validated values with the defaults of the others."""
        unknown = values.keys() - {parameter.name for parameter in self.parameters}
        if unknown:
            raise TypeError(f"{self.name} has no parameters {sorted(unknown)}")
        return {item.name: values.get(item.name, item.default) for item in self.parameters}


def suggest(name: str, names: Iterable[str]) -> str:
    """Return a hint for an unknown name: the closest known name, and all of them."""
    from difflib import get_close_matches

    names = list(names)
    closest = get_close_matches(name[:100], names, 1)
    suggestion = f"Did you mean {closest[0]!r}? " if closest else ""
    return f"{suggestion}Known: {', '.join(names) or 'none'}"


def _spellings(parameters: Sequence[Parameter]) -> dict[str, Parameter | None]:
    """Return the parameters by all their names."""
    names: dict[str, Parameter | None] = {item.name: item for item in parameters}
    return names | {alias: item for item in parameters for alias in item.aliases}


def parse(parameters: Sequence[Parameter], arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return validated arguments of a program; raise UsageError for an unknown name or an invalid value.

    Null and a blank optional string count as missing, because forms and some assistants send every field.
    A single string is accepted for a list, and KEY=VALUE strings for an object of strings, as on the command line;
    a number, a list or an object as a string of JSON, because query strings and some assistants send them so.
    """
    spellings = _spellings(parameters)
    values: dict[str, Any] = {}
    for name, value in arguments.items():
        parameter = spellings.get(name)
        if parameter is None:
            names = [parameter.name for parameter in parameters]
            raise UsageError(f"No such parameter: {str(name)[:100]!r}", suggest(str(name), names))
        if value is None or _is_missing(value, parameter):
            continue
        if parameter.name in values:
            raise UsageError(
                f"{parameter.name!r} is given twice", f"{name!r} is another name of it"
            )
        values[parameter.name] = _converted(value, parameter.schema)
    validate(parameters, values)
    return values


def _is_missing(value: Any, parameter: Parameter) -> bool:
    """Return true for a blank optional string that may have any value."""
    schema = parameter.schema
    free = schema["type"] in ("string", "array") and not schema.keys() & {"enum", "pattern"}
    return free and not parameter.required and _is_blank(value)


def _is_blank(value: Any) -> bool:
    return isinstance(value, str) and not value.strip()


def python_value(value: Any, schema: Mapping[str, Any]) -> Any:
    """Return a value of Python as one of JSON: paths and dates as text, one text as a list, any iterable as a list."""
    if isinstance(value, os.PathLike):
        value = os.fspath(value)
    if isinstance(value, date):
        value = value.isoformat()
    if schema["type"] == "object" and isinstance(value, Mapping):
        if _has_string_values(schema):
            return {str(key): str(item) for key, item in value.items()}
        return dict(value)
    if schema["type"] == "array" or _has_string_values(schema):
        if isinstance(value, str):
            return [value]
        if isinstance(value, Iterable) and not isinstance(value, (bytes, Mapping)):
            return [os.fspath(item) if isinstance(item, os.PathLike) else item for item in value]
    return value


def _converted(value: Any, schema: Mapping[str, Any]) -> Any:
    """Convert a text to the type of a parameter if possible; the validation rejects what stays a text."""
    kind = schema["type"]
    if kind == "array":
        items = (
            value
            if isinstance(value, list)
            else [value.strip() if isinstance(value, str) else value]
        )
        parts = (_items(item) if isinstance(item, str) else [item] for item in items)
        return [item for part in parts for item in part if not _is_blank(item)]
    if kind == "integer" and isinstance(value, float) and value.is_integer():
        return int(value)  # JSON does not distinguish 5 and 5.0
    if kind == "string" or not isinstance(value, str):
        return value
    text = value.strip()
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
    """Return the items of a list in JSON; any other text is the only item: `[slug].md` is a path."""
    parsed = _parsed_json(text) if text.startswith("[") else None
    if isinstance(parsed, list) and all(isinstance(item, (str, dict)) for item in parsed):
        return parsed
    return [text]


def _parsed_json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _has_string_values(schema: Mapping[str, Any]) -> bool:
    return schema["type"] == "object" and "additionalProperties" in schema


def validate(parameters: Sequence[Parameter], values: Mapping[str, Any]) -> None:
    """Raise UsageError for a missing parameter or an invalid value."""
    for parameter in parameters:
        if parameter.name in values:
            _validate(parameter.name, values[parameter.name], parameter.schema)
        elif parameter.required:
            raise UsageError(f"Missing parameter: {parameter.name!r}", parameter.description)


def _validate(name: str, value: Any, schema: Mapping[str, Any]) -> None:
    kind = schema["type"]
    if isinstance(kind, list):  # one of two types; whoever reads the value checks the rest
        kind = "string" if isinstance(value, str) else "object"
        schema = {"type": kind, "maxLength": schema["maxLength"], "maxProperties": MAX_ITEMS}
    if _has_string_values(schema) and isinstance(value, list):
        items, maximum = schema["additionalProperties"], schema["maxProperties"]
        _validate(name, value, {"type": "array", "items": items, "maxItems": maximum})
        return
    expected, type_name = _TYPES[kind]
    if not isinstance(value, expected) or (kind in _NUMERIC and isinstance(value, bool)):
        raise UsageError(f"{name!r} must be {type_name}, not {_short_repr(value)}")
    if kind in _NUMERIC and not schema["minimum"] <= value <= schema["maximum"]:
        bounds = f"{schema['minimum']} to {schema['maximum']}"
        raise UsageError(f"{name!r} must be {bounds}, not {_short_repr(value)}")
    if "enum" in schema and value not in schema["enum"]:
        allowed = ", ".join(schema["enum"])
        raise UsageError(f"{name!r} cannot be {_short_repr(value)}", f"Allowed: {allowed}")
    if kind == "string" and len(value) > schema["maxLength"]:
        raise UsageError(
            f"{name!r} is too long: {len(value):,} characters, at most {schema['maxLength']:,}"
        )
    if kind == "string" and "pattern" in schema and not re.search(schema["pattern"], value):
        raise UsageError(f"{name!r} cannot be {_short_repr(value)}", schema.get("description", ""))
    if kind == "array":
        if len(value) > schema["maxItems"]:
            raise UsageError(
                f"{name!r} has too many values: {len(value):,}, at most {schema['maxItems']}",
                "A glob such as guide/** matches many files",
            )
        for item in value:
            _validate(name, item, schema["items"])
    if kind == "object":
        if len(value) > schema["maxProperties"]:
            raise UsageError(
                f"{name!r} has too many keys: {len(value):,}, at most {schema['maxProperties']}"
            )
        for key, item in value.items() if "additionalProperties" in schema else ():
            _validate(f"{name}.{key}", item, schema["additionalProperties"])


def _short_repr(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]}…"


_TYPES: Mapping[str, tuple[Any, str]] = {
    "string": (str, "a string"),
    "integer": (int, "an integer"),
    "number": ((int, float), "a number"),
    "boolean": (bool, "true or false"),
    "array": (list, "a list"),
    "object": (dict, "an object"),
}
"""Types of JSON in Python, and their names in messages."""
_NUMERIC = ("integer", "number")
_INTEGER = re.compile(r"-?[0-9]{1,15}")
_NUMBER = re.compile(r"-?[0-9]{1,15}(\.[0-9]{1,30})?([eE][+-]?[0-9]{1,3})?")
_BOOLEANS = {"true": True, "false": False, "1": True, "0": False}
