"""Routes of the HTTP API: strict parsing of requests, and a table of endpoints, each an operation of the library."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from hashlib import blake2b
from typing import Any
from urllib.parse import parse_qsl, unquote_to_bytes

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from marklight import __version__
from marklight.errors import NotFound, UsageError
from marklight.lazy import dataclass
from marklight.operations import MAX_REF, OPERATIONS
from marklight.parameters import Parameter, parse
from marklight.serialization import unique_keys
from marklight.surfaces.host import LibraryHost, call_encoded
from marklight.surfaces.http.errors import NO_ROUTE, SEE_OPENAPI, BadRequest, json_response
from marklight.surfaces.http.execution import (
    EVENTS,
    answer_events,
    cancel_on_disconnect,
    event_stream,
    stream_search,
    validate_question,
)

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
            object_pairs_hook=unique_keys,
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


QUERY_LIMITS = {"maxLength": 4000, "maxItems": 50, "maxProperties": 50}
"""Limits of values in a query string, where those of a body are larger."""
ITEM_LENGTH = 300
LISTED, MAX_LISTED = 100, 1000
"""Documents on a page of `/api/list`, by default and at most: a response has a bounded size."""
BLANK = "\\s\\u001c-\\u001f\\u0085"
NOT_BLANK = f"[^{BLANK}]"
"""Pattern: at least one character that is not blank, for Python and other regex dialects."""
DOCUMENT_PATH = Parameter.of(
    "path",
    "string",
    "The document: its path, or a place as printed, for example guide/auth.md.",
    required=True,
    maxLength=MAX_REF,
    pattern=NOT_BLANK,
)
HEADING = Parameter.of("heading", "string", "Only the section with this heading or anchor.")
LINE_RANGE = Parameter.of(
    "lines",
    "string",
    "Only these lines, for example 10-40.",
    maxLength=20,
    pattern="^[1-9][0-9]{0,8}(-[1-9][0-9]{0,8})?$",
)


@dataclass(frozen=True)
class Endpoint:
    """A URL with the operation that it calls."""

    path: str
    operation: str
    summary: str
    has_query: bool = True
    """True if the arguments may be in the query string."""
    has_body: bool = False
    """True if the arguments may be a JSON object."""
    streams: bool = False
    """True if the response is a stream of events."""
    extra: tuple[Parameter, ...] = ()
    """Parameters of the query string that the operation does not have."""
    omit: tuple[str, ...] = ()

    @property
    def prefix(self) -> str:
        """Return the part of the path before that of a document; empty if there is none."""
        return self.path.removesuffix("{path}") if self.path.endswith("{path}") else ""

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """Return the parameters of the body."""
        declared = OPERATIONS[self.operation].parameters
        return tuple(map(_bounded, declared)) if self.operation == "list_documents" else declared

    @cached_property
    def query_parameters(self) -> tuple[Parameter, ...]:
        """Return the parameters of the query string: the query is `q`, texts are shorter, settings need a body."""
        omitted = {"settings", *self.omit, *(("ref",) if self.prefix else ())}
        names = (each for each in self.parameters if each.name not in omitted)
        return (*self.extra, *map(_shortened, names))

    def parse_query(self, request: Request) -> dict[str, Any]:
        """Return the validated arguments in the query string and the path."""
        arguments = parse_query(request, self.query_parameters)
        if "q" in arguments:
            arguments["query"] = arguments.pop("q")
        return {"ref": parse_path(request, self.prefix), **arguments} if self.prefix else arguments


def _bounded(parameter: Parameter) -> Parameter:
    """Return the parameters of a list with a limit on the size of a page."""
    if parameter.name != "limit":
        return parameter
    schema = {**parameter.schema, "maximum": MAX_LISTED, "default": LISTED}
    return replace(parameter, schema=schema, default=LISTED)


def _shortened(parameter: Parameter) -> Parameter:
    schema = dict(parameter.schema)
    schema |= {
        name: min(schema[name], limit) for name, limit in QUERY_LIMITS.items() if name in schema
    }
    if "items" in schema:
        schema["items"] = {**schema["items"], "maxLength": ITEM_LENGTH}
    name = "q" if parameter.name == "query" else parameter.name
    aliases = () if parameter.required else parameter.aliases
    return replace(parameter, name=name, schema=schema, aliases=aliases)


ENDPOINTS = (
    Endpoint("/api/search", "search", "Search", has_body=True),
    Endpoint("/api/search/stream", "search", "Search step by step", streams=True),
    Endpoint("/api/ask", "ask", "Answer with sources", has_body=True),
    Endpoint("/api/ask/stream", "ask", "Answer sentence by sentence", streams=True),
    Endpoint("/api/list", "list_documents", "Matching documents", has_body=True),
    Endpoint("/api/commits", "commits", "Commits", has_query=False, has_body=True),
    Endpoint(
        "/api/documents/{path}",
        "get",
        "Read a document",
        extra=(HEADING, LINE_RANGE),
        omit=("context",),
    ),
    Endpoint("/api/outline/{path}", "outline", "Outline"),
    Endpoint("/api/page/{path}", "page", "Read as HTML"),
    Endpoint("/api/related/{path}", "related", "Related documents"),
    Endpoint("/api/links", "links", "Broken links and orphan documents", omit=("ref",)),
    Endpoint("/api/links/{path}", "links", "Links"),
    Endpoint("/api/graph", "graph", "Link graph"),
    Endpoint("/api/tags", "tags", "Tags"),
    Endpoint("/api/status", "status", "Status"),
)


@dataclass(frozen=True, slots=True)
class Api:
    """Handlers of the API for one host."""

    host: LibraryHost

    def routes(self) -> list[BaseRoute]:
        """Return every route; HEAD is answered as GET, and the server omits the body."""
        return [Route("/health", self.health), *map(self._route, ENDPOINTS)]

    def _route(self, endpoint: Endpoint) -> Route:
        special = {
            "/api/search/stream": self.stream,
            "/api/ask": self.ask,
            "/api/ask/stream": self.ask_stream,
            "/api/documents/{path}": self.document,
            "/api/page/{path}": self.page,
        }
        handler = partial(special.get(endpoint.path, self.call), endpoint=endpoint)
        methods = ["GET"] * endpoint.has_query + ["POST"] * endpoint.has_body
        return Route(endpoint.path.replace("{path}", "{path:path}"), handler, methods=methods)

    async def health(self, request: Request) -> Response:
        """Return version and indexing progress; needs no token and reveals nothing about documents."""
        parse_query(request, ())
        indexing = self.host.watcher.to_dict()["indexing"]
        return json_response({"ok": True, "version": __version__, "indexing": indexing})

    async def call(self, request: Request, endpoint: Endpoint) -> Response:
        """Call the operation of an endpoint with the arguments in the body, or in the path and the query string."""
        if request.method == "POST":
            parse_query(request, ())
            arguments = parse(endpoint.parameters, await parse_body(request))
        else:
            arguments = endpoint.parse_query(request)
        if endpoint.operation == "list_documents":
            arguments.setdefault("limit", LISTED)
        return await self._respond(request, endpoint.operation, arguments)

    async def stream(self, request: Request, endpoint: Endpoint) -> Response:
        """Search passages; stream the results of each step. A client that reconnects gets 204 and stops."""
        arguments = endpoint.parse_query(request)
        if "last-event-id" in request.headers:
            return Response(status_code=204)
        return await stream_search(request, self.host, arguments)

    async def ask(self, request: Request, endpoint: Endpoint) -> Response:
        """Return an answer of the configured language model, with sources; HEAD does not call the model."""
        if request.method == "HEAD":
            await validate_question(self.host, endpoint.parse_query(request))
            return json_response(None)
        return await self.call(request, endpoint)

    async def ask_stream(self, request: Request, endpoint: Endpoint) -> Response:
        """Stream an answer, sentence by sentence; neither HEAD nor a client that reconnects calls the model."""
        arguments = endpoint.parse_query(request)
        if "last-event-id" in request.headers:
            return Response(status_code=204)
        await validate_question(self.host, arguments)
        if request.method == "HEAD":
            return Response(media_type=EVENTS)
        return event_stream(answer_events(self.host, arguments))

    async def document(self, request: Request, endpoint: Endpoint) -> Response:
        """Return a document or a part of it: a section, lines, or both."""
        arguments = endpoint.parse_query(request)
        path = arguments["ref"]
        heading, lines = arguments.pop("heading", None), arguments.pop("lines", None)
        if heading is not None:
            arguments["ref"] = f"{path}#{heading}"
        if lines is not None:
            start, _, end = lines.partition("-")
            first, last = int(start), int(end or start)
            if heading is not None:
                section = await cancel_on_disconnect(
                    request, self.host.call("get", arguments), arguments
                )
                first, last = max(first, section["lines"][0]), min(last, section["lines"][1])
            if last < first:
                raise NotFound(f"No such lines: {lines}", "Write the first line first: 10-40")
            arguments["ref"] = f"{path}:{first}-{last}"
        return await self._respond(request, "get", arguments)

    async def page(self, request: Request, endpoint: Endpoint) -> Response:
        """Return a document as HTML; without a body if the client has this version."""
        arguments = endpoint.parse_query(request)
        response = await self._respond(request, endpoint.operation, arguments)
        etag = f'W/"{blake2b(bytes(response.body), digest_size=8).hexdigest()}"'
        response.headers["etag"] = etag
        response.headers["cache-control"] = "no-cache"
        if etag in request.headers.get("if-none-match", ""):
            return Response(status_code=304, headers={"etag": etag, "cache-control": "no-cache"})
        return response

    async def _respond(
        self, request: Request, operation: str, arguments: Mapping[str, Any]
    ) -> Response:
        """Execute an operation; its result is encoded where it is computed, so that the event loop is free."""
        call = self.host.call(operation, arguments, function=call_encoded)
        return json_response(await cancel_on_disconnect(request, call, arguments))
