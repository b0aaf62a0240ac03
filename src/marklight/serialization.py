"""JSON of results and its JSON Schema, both derived from the result types.

A type declares its keys in `JSON`, in order: `"document title lines content=text history?"`. A key is the name of a field
or property, or is followed by it (`content=text`, `query=search.query`). One with a question mark is missing where the
value is empty, one with `|null` is null there.
`*commit` stands for the keys of another value; `document` and `document@lines` for those of a place: its path, its
collection, and a reference with or without lines. Descriptions are the docstrings of fields and properties.
"""

from __future__ import annotations

import ast
import inspect
import types
import typing
from collections.abc import Collection, Iterator, Mapping, Sequence
from enum import Enum
from functools import cache
from importlib import import_module
from itertools import pairwise
from operator import attrgetter
from typing import Any, NamedTuple, NotRequired, get_args, get_origin, get_type_hints, is_typeddict

from marklight.formatting import place_text
from marklight.model import DocumentId

Schema = dict[str, Any]

DIGITS = {"took_ms": 1, "ms": 3, "support": 3, "score": 4}
"""Decimal places of numbers by key."""
DEFAULT_DIGITS = 6
PLACE: Mapping[str, str] = {
    "path": "Path of the document, relative to its collection.",
    "collection": "Name of the collection.",
    "ref": "The place, as all operations accept it.",
}
_PLAIN: Mapping[Any, str] = {str: "string", int: "integer", float: "number", bool: "boolean"}


class _Key(NamedTuple):
    key: str
    name: str
    """Name of the field or property."""
    lines: str = ""
    """Name of the field with the lines of a place."""
    optional: bool = False
    nullable: bool = False

    @classmethod
    def of(cls, declared: str) -> _Key:
        key, _, name = declared.removesuffix("?").removesuffix("|null").partition("=")
        key, _, lines = key.partition("@")
        is_optional, is_nullable = declared.endswith("?"), declared.endswith("|null")
        return cls(key, name or key.lstrip("*"), lines, is_optional, is_nullable)


@cache
def _keys(kind: Any) -> tuple[_Key, ...]:
    return tuple(map(_Key.of, kind.JSON.split()))


def json_values(value: Any, several_collections: bool = False, digits: int = DEFAULT_DIGITS) -> Any:
    """Return a result as JSON values, the same on every surface."""
    if isinstance(value, Enum):
        return value.value
    if value is None or isinstance(value, (str, bool, int)):
        return value
    if isinstance(value, float):
        return round(value, digits)
    if isinstance(value, DocumentId):
        return _place(value, several_collections)
    if isinstance(value, Mapping):
        return {key: json_values(item, digits=digits) for key, item in value.items()}
    if not hasattr(value, "JSON"):
        return [json_values(item, several_collections, digits) for item in value]
    kind: Any = type(value)
    several = getattr(value, "several_collections", several_collections)
    result: dict[str, Any] = {}
    for key, name, lines, optional, nullable in _keys(kind):
        item = attrgetter(name)(value)
        if optional and (item is None or item == "" or item == {}):
            continue
        if nullable:
            item = item or None
        if key == "document":
            result |= _place(item, several, getattr(value, lines) if lines else ())
        elif key[0] == "*":
            result |= json_values(item, several)
        else:
            result[key] = json_values(item, several, DIGITS.get(key, DEFAULT_DIGITS))
    return result


def _place(document: DocumentId, several: bool, lines: Sequence[int] = ()) -> dict[str, str]:
    ref = place_text(document, several, lines)
    return {"path": document.path, "collection": document.collection, "ref": ref}


def schema_of(kind: Any, description: str = "") -> Schema:
    """Return the JSON Schema of a type; all keys of an object but the optional ones are required."""
    schema = _schema(kind)
    return {**schema, "description": description} if description else schema


def _schema(kind: Any) -> Schema:
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (types.UnionType, typing.Union):
        return _nullable(_schema(arguments[0]))
    if kind in _PLAIN:
        return {"type": _PLAIN[kind]}
    if kind is DocumentId:
        return object_schema(_place_schemas())
    if origin is tuple and arguments[-1] is not ...:
        size = len(arguments)
        return {"type": "array", "items": _schema(arguments[0]), "minItems": size, "maxItems": size}
    if origin is not None and issubclass(origin, Mapping):
        values = {"additionalProperties": _schema(arguments[1])} if arguments[1] is not Any else {}
        return {"type": "object", **values}
    if origin is not None:
        return {"type": "array", "items": _schema(arguments[0])}
    if issubclass(kind, Enum):
        return {"type": "string"}
    if is_typeddict(kind) or hasattr(kind, "JSON"):
        return {"title": kind.__name__, **_object(kind)}
    return {"type": "object"}


def _object(kind: Any) -> Schema:
    properties: dict[str, Schema] = {}
    if is_typeddict(kind):
        texts = _docstrings(kind)
        for name, hint in get_type_hints(kind).items():
            properties[name] = schema_of(hint, texts.get(name, ""))
        hints = get_type_hints(kind, include_extras=True)
        return object_schema(
            properties, {name for name in hints if get_origin(hints[name]) is NotRequired}
        )
    optional: set[str] = set()
    for key in _keys(kind):
        owner, hint, name = _field(kind, key.name)
        if key.key == "document":
            added = _place_schemas()
        elif key.key[0] == "*":
            nested = _schema(hint)
            added = nested["properties"]
            optional |= added.keys() - set(nested["required"])
        elif any(issubclass(kind, part) for part in get_args(hint) if isinstance(part, type)):
            added = {key.key: {"type": "object"}}
        else:
            schema = schema_of(hint, _docstrings(owner).get(name, ""))
            added = {key.key: _nullable(schema) if key.nullable else schema}
        properties |= added
        if key.optional:
            optional |= added.keys()
    return object_schema(properties, optional)


def object_schema(
    properties: Mapping[str, Schema], optional: Collection[str] = (), **keywords: str
) -> Schema:
    """Return the schema of an object; all properties but the optional ones are required, others are allowed."""
    required = [name for name in properties if name not in optional]
    return {**keywords, "type": "object", "properties": dict(properties), "required": required}


def _place_schemas() -> dict[str, Schema]:
    return {name: {"type": "string", "description": text} for name, text in PLACE.items()}


def _field(kind: type, path: str) -> tuple[type, Any, str]:
    """Return the owner, the type and the name of a field or property, which may be one of a field."""
    name, _, rest = path.partition(".")
    value = inspect.getattr_static(kind, name)
    is_property = isinstance(value, property)
    hint = get_type_hints(value.fget)["return"] if is_property else get_type_hints(kind)[name]
    return _field(hint, rest) if rest else (kind, hint, name)


def _nullable(schema: Schema) -> Schema:
    return {**schema, "type": [schema["type"], "null"]}


def _docstrings(kind: type) -> dict[str, str]:
    """Return the descriptions of fields and properties: the first lines of their docstrings."""
    descriptions: dict[str, str] = {}
    for base in reversed(kind.__mro__):
        if base.__module__.startswith("marklight."):
            descriptions |= _module_docstrings(base.__module__)[base.__name__]
    return descriptions


@cache
def _module_docstrings(module: str) -> dict[str, dict[str, str]]:
    """Return the docstrings of fields and properties in the source of a module, by class and name."""
    tree = ast.parse(inspect.getsource(import_module(module)))
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    return {definition.name: dict(_class_docstrings(definition.body)) for definition in classes}


def _class_docstrings(body: list[ast.stmt]) -> Iterator[tuple[str, str]]:
    for statement, following in pairwise([*body, ast.Pass()]):
        match statement, following:
            case ast.FunctionDef(name=name), _:
                text = (ast.get_docstring(statement) or "").removeprefix("Return ")
                yield name, f"{text[:1].upper()}{text[1:]}".partition("\n")[0]
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=text)):
                yield name, str(text)


def unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object of parsed JSON (`object_pairs_hook`); raise ValueError for a key that it has twice: programs differ in which they read."""
    values: dict[str, Any] = {}
    for name, value in pairs:
        if name in values:
            raise ValueError(f"duplicate key {name[:60]!r}")
        values[name] = value
    return values
