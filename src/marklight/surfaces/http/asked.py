"""What a request asks for: its body, its address and its path, read strictly into plain values."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from typing import Any
from urllib.parse import parse_qsl, unquote_to_bytes

from starlette.requests import Request

from marklight.errors import NotFound, UsageError
from marklight.surfaces.http.errors import BadRequest
from marklight.surfaces.parameters import Parameter, parse

DEEPEST = 10
"""Tables within tables: settings have three."""
MOST_VALUES = 5000
"""Values in one address, all lists together."""
WHOLE = re.compile(r"-?[0-9]{1,15}")
NUMBER = re.compile(r"-?[0-9]{1,15}(\.[0-9]{1,30})?([eE][+-]?[0-9]{1,3})?")
FLAGS = {"true": True, "false": False, "1": True, "0": False}


async def in_body(request: Request) -> dict[str, Any]:
    """A JSON object; anything that two readers could take for two things is refused."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise BadRequest("a body must be JSON", "Send it with `Content-Type: application/json`")
    try:
        given = json.loads(
            (await request.body()).decode(),
            object_pairs_hook=_each_once,
            parse_float=_number,
            parse_constant=_no_number,
        )
    except (ValueError, RecursionError) as error:
        # A sign that is no UTF-8, a number of too many digits and a wrong comma are all of this kind.
        raise BadRequest(f"the body is no JSON: {_reason(error)}") from None
    if not isinstance(given, dict):
        raise BadRequest("the body must be a JSON object", 'Such as {"query": "how tokens expire"}')
    _demand_shallow(given)
    return given


def in_address(request: Request, parameters: Sequence[Parameter]) -> dict[str, Any]:
    """The values after the question mark, each of the kind that its parameter has."""
    known = {each.name: each.schema for each in parameters}
    found: dict[str, Any] = {}
    for name, value in _pairs(request.scope["query_string"]):
        kind = known.get(name, {}).get("type")
        if kind in ("array", "object"):
            found.setdefault(name, []).append(value)
        elif name in found:
            raise UsageError(f"{name!r} is given twice", "It has one value")
        else:
            found[name] = _value(value, kind)
    return parse(parameters, found)


def in_path(request: Request, above: str) -> str:
    """What stands below an address, decoded once: a sign that was encoded twice stays encoded."""
    raw: bytes = request.scope["raw_path"]
    if not raw.startswith(above.encode()):
        raise NotFound("there is nothing at this address", "GET /openapi.json tells what there is")
    try:
        path = unquote_to_bytes(raw[len(above) :]).decode()
    except UnicodeDecodeError:
        raise NotFound("no document has a name that is no UTF-8") from None
    if not path:
        raise NotFound("there is nothing at this address", f"Name a document: {above}guide.md")
    return path


def _pairs(query: bytes) -> list[tuple[str, str]]:
    try:
        return parse_qsl(
            query.decode("ascii"),
            keep_blank_values=True,
            errors="strict",
            max_num_fields=MOST_VALUES,
        )
    except UnicodeDecodeError:
        raise BadRequest("the address holds signs that are no UTF-8") from None
    except ValueError:
        raise BadRequest(f"an address may have {MOST_VALUES:,} values") from None


def _value(text: str, kind: str | None) -> Any:
    """Of its kind if it can be read so; else as it is, for the reading to refuse."""
    if kind == "integer" and WHOLE.fullmatch(text):
        return int(text)
    if kind == "number" and NUMBER.fullmatch(text):
        return float(text)
    if kind == "boolean":
        return FLAGS.get(text.lower(), text)
    return text


def _each_once(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise ValueError(f"{name[:60]!r} is there twice")
        found[name] = value
    return found


def _number(text: str) -> float:
    """JSON has numbers of one kind: 5.0 is as whole as 5."""
    value = float(text)
    return int(value) if value.is_integer() else value


def _no_number(name: str) -> Any:
    raise ValueError(f"{name} is no number")


def _reason(error: Exception) -> str:
    if isinstance(error, RecursionError):
        return "it is too deep"
    if isinstance(error, UnicodeDecodeError):
        return "it is not in UTF-8"
    return str(error)[:200]


def _demand_shallow(given: Any) -> None:
    level: list[Any] = [given]
    for _ in range(DEEPEST):
        level = [
            inner
            for each in level
            if isinstance(each, dict | list)
            for inner in (each.values() if isinstance(each, dict) else each)
        ]
    if level:
        raise BadRequest(f"the body is more than {DEEPEST} levels deep")
