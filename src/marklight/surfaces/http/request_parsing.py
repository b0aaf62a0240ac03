"""Strict parsing of HTTP requests: JSON body, query string and path to plain values."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any
from urllib.parse import parse_qsl, unquote_to_bytes

from starlette.requests import Request

from marklight.errors import NotFound, UsageError
from marklight.parameters import Parameter, parse
from marklight.surfaces.http.errors import NO_ROUTE, SEE_OPENAPI, BadRequest

MAX_DEPTH = 10
"""Nesting of a body; settings have three levels."""
MAX_VALUES = 5000
"""Values in a query string, all lists together."""


async def parse_body(request: Request) -> dict[str, Any]:
    """Return the JSON object of the body; duplicate keys, NaN and deep nesting are rejected."""
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type != "application/json":
        raise BadRequest("The body must be JSON", "Send `Content-Type: application/json`")
    try:
        body = json.loads(
            (await request.body()).decode(),
            object_pairs_hook=_unique_keys,
            parse_float=_parse_number,
            parse_constant=_reject_constant,
        )
    except (ValueError, RecursionError) as error:
        raise BadRequest(f"The body is not valid JSON: {_reason(error)}") from None
    if not isinstance(body, dict):
        raise BadRequest(
            "The body must be a JSON object", 'For example {"query": "how tokens expire"}'
        )
    _check_depth(body)
    return body


def parse_query(request: Request, parameters: Sequence[Parameter]) -> dict[str, Any]:
    """Return the values of the query string; those of lists and objects may be repeated."""
    schemas = {parameter.name: parameter.schema for parameter in parameters}
    values: dict[str, Any] = {}
    for name, text in _pairs(request.scope["query_string"]):
        kind = schemas.get(name, {}).get("type")
        if kind in ("array", "object"):
            values.setdefault(name, []).append(text)
        elif name in values:
            raise UsageError(f"{name!r} is given twice", "It takes one value")
        else:
            values[name] = text
    return parse(parameters, values)


def parse_path(request: Request, prefix: str) -> str:
    """Return the document's path after a prefix of the URL, percent-decoded once."""
    raw: bytes = request.scope["raw_path"]
    if not raw.startswith(prefix.encode()):
        raise NotFound(NO_ROUTE, SEE_OPENAPI)
    try:
        path = unquote_to_bytes(raw[len(prefix) :]).decode()
    except UnicodeDecodeError:
        raise NotFound("The path is not valid UTF-8") from None
    if not path:
        raise NotFound(NO_ROUTE, f"Add the path of a document: {prefix}guide.md")
    return path


def _pairs(query: bytes) -> list[tuple[str, str]]:
    try:
        return parse_qsl(
            query.decode("ascii"),
            keep_blank_values=True,
            errors="strict",
            max_num_fields=MAX_VALUES,
        )
    except UnicodeDecodeError:
        raise BadRequest("The query string is not valid UTF-8") from None
    except ValueError:
        raise BadRequest(f"The query string has too many values: at most {MAX_VALUES:,}") from None


def _unique_keys(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for name, value in pairs:
        if name in values:
            raise ValueError(f"duplicate key {name[:60]!r}")
        values[name] = value
    return values


def _parse_number(text: str) -> float:
    """Return 5.0 as the integer 5: JSON does not distinguish them."""
    value = float(text)
    return int(value) if value.is_integer() else value


def _reject_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a JSON number")


def _reason(error: Exception) -> str:
    if isinstance(error, RecursionError):
        return "nested too deeply"
    if isinstance(error, UnicodeDecodeError):
        return "not encoded as UTF-8"
    return str(error)[:200]


def _check_depth(body: Any) -> None:
    level: list[Any] = [body]
    for _ in range(MAX_DEPTH):
        level = [
            value
            for container in level
            if isinstance(container, dict | list)
            for value in (container.values() if isinstance(container, dict) else container)
        ]
    if level:
        raise BadRequest(f"The body is nested too deeply: at most {MAX_DEPTH} levels")
