"""Routes of the HTTP API, each an operation of the library."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from marklight import __version__
from marklight.errors import NotFound, UsageError
from marklight.surfaces import operations
from marklight.surfaces.host import LibraryHost
from marklight.surfaces.http.answer_stream import AnswerStream, validate_question
from marklight.surfaces.http.errors import json_response
from marklight.surfaces.http.execution import cancel_on_disconnect, stream_search
from marklight.surfaces.http.request_parsing import parse_body, parse_path, parse_query
from marklight.surfaces.parameters import Parameter, string

DOCUMENTS = "/api/documents/"
OUTLINE = "/api/outline/"
PAGE = "/api/page/"
RELATED = "/api/related/"
LINKS = "/api/links/"
LINES = re.compile(r"[1-9][0-9]{0,8}(-[1-9][0-9]{0,8})?")
BLANK = "\\s\\u001c-\\u001f\\u0085"
NOT_BLANK = f"[^{BLANK}]"
"""Pattern: at least one character that is not blank, for Python and other regex dialects."""


def query_parameters(parameters: tuple[Parameter, ...]) -> tuple[Parameter, ...]:
    """Return the parameters for a query string: the query is `q`, texts are shorter, settings need a body."""
    return tuple(
        Parameter(
            "q" if parameter.name == "query" else parameter.name,
            _with_short_limits(parameter.schema),
            parameter.required,
        )
        for parameter in parameters
        if parameter.name != "settings"
    )


def _with_short_limits(schema: Mapping[str, Any]) -> dict[str, Any]:
    limits = {"maxLength": 4000, "maxItems": 50, "maxProperties": 50}
    return {
        **schema,
        **{name: min(schema[name], value) for name, value in limits.items() if name in schema},
        **({"items": {**schema["items"], "maxLength": 300}} if "items" in schema else {}),
    }


def without_path(parameters: tuple[Parameter, ...]) -> tuple[Parameter, ...]:
    """Return the parameters that remain where the document is part of the URL's path."""
    return tuple(parameter for parameter in parameters if parameter.name not in ("path", "ref"))


SEARCH = query_parameters(operations.SEARCH)
LIST = query_parameters(operations.LIST)
ASK = query_parameters(operations.ASK)
DOCUMENT_PATH = string(
    "path",
    "The document: its path, or a place as printed, for example guide/auth.md.",
    required=True,
    maxLength=operations.MAX_REF,
    pattern=NOT_BLANK,
)
EXTRACT = (
    string("heading", "Only the section with this heading or anchor.", maxLength=1000),
    string(
        "lines",
        "Only these lines, for example 10-40.",
        maxLength=20,
        pattern=f"^{LINES.pattern}$",
    ),
    *(parameter for parameter in without_path(operations.GET) if parameter.name != "context"),
)


@dataclass(frozen=True, slots=True)
class Api:
    """Endpoints of the API for one host."""

    host: LibraryHost

    def routes(self) -> list[BaseRoute]:
        """Return every route; HEAD is answered as GET, and the server omits the body."""
        return [
            Route("/health", self.health),
            Route("/api/search", self.search, methods=["GET", "POST"]),
            Route("/api/search/stream", self.stream),
            Route("/api/ask", self.ask, methods=["GET", "POST"]),
            Route("/api/ask/stream", self.ask_stream),
            Route("/api/list", self.matching_documents, methods=["GET", "POST"]),
            Route("/api/commits", self.commits, methods=["POST"]),
            Route("/api/documents", self.documents),
            Route(f"{DOCUMENTS}{{path:path}}", self.document),
            Route(f"{OUTLINE}{{path:path}}", self.outline),
            Route(f"{PAGE}{{path:path}}", self.page),
            Route(f"{RELATED}{{path:path}}", self.related),
            Route("/api/links", self.link_problems),
            Route(f"{LINKS}{{path:path}}", self.links),
            Route("/api/graph", self.graph),
            Route("/api/tags", self.tags),
            Route("/api/status", self.status),
        ]

    async def health(self, request: Request) -> Response:
        """Return version and indexing progress; needs no token and reveals nothing about documents."""
        parse_query(request, ())
        indexing = self.host.watcher.to_dict()["indexing"]
        return json_response({"ok": True, "version": __version__, "indexing": indexing})

    async def search(self, request: Request) -> Response:
        """Search passages."""
        if request.method == "POST":
            parse_query(request, ())
            return await self._call(request, "search", await parse_body(request))
        return await self._call(request, "search", search_arguments(request))

    async def stream(self, request: Request) -> Response:
        """Search passages; stream the results of each step."""
        return await stream_search(request, self.host, search_arguments(request))

    async def ask(self, request: Request) -> Response:
        """Return an answer of the configured language model, with sources."""
        if request.method == "POST":
            parse_query(request, ())
            return await self._call(request, "ask", await parse_body(request))
        arguments = search_arguments(request, ASK)
        if request.method == "HEAD":
            await validate_question(self.host, arguments)
            return json_response(None)
        return await self._call(request, "ask", arguments)

    async def ask_stream(self, request: Request) -> Response:
        """Stream an answer, sentence by sentence; HEAD does not call the model."""
        arguments = search_arguments(request, ASK)
        await validate_question(self.host, arguments)
        if request.method == "HEAD":
            return Response(media_type=AnswerStream.media_type)
        return AnswerStream(self.host, arguments)

    async def matching_documents(self, request: Request) -> Response:
        """List the documents that match a query."""
        if request.method == "POST":
            parse_query(request, ())
            return await self._call(request, "list_documents", await parse_body(request))
        return await self._call(request, "list_documents", search_arguments(request, LIST))

    async def commits(self, request: Request) -> Response:
        """Search commits."""
        parse_query(request, ())
        return await self._call(request, "commits", await parse_body(request))

    async def document(self, request: Request) -> Response:
        """Return a document or a part of it."""
        arguments = parse_query(request, EXTRACT)
        path = ref = parse_path(request, DOCUMENTS)
        heading, lines = arguments.pop("heading", None), arguments.pop("lines", None)
        if heading is not None:
            ref = f"{path}#{heading}"
        if lines is not None:
            first, last = _parse_lines(lines)
            if heading is not None:
                section = await cancel_on_disconnect(
                    request, self.host, "get", {**arguments, "ref": ref}
                )
                first, last = max(first, section["lines"][0]), min(last, section["lines"][1])
            if last < first:
                raise NotFound(f"No such lines: {lines}", "Write the first line first: 10-40")
            ref = f"{path}:{first}-{last}"
        return await self._call(request, "get", {**arguments, "ref": ref})

    async def documents(self, request: Request) -> Response:
        """List documents, one page at a time."""
        return await self._call(request, "documents", parse_query(request, operations.DOCUMENTS))

    async def tags(self, request: Request) -> Response:
        """List tags with their number of documents."""
        return await self._call(request, "tags", parse_query(request, ()))

    async def outline(self, request: Request) -> Response:
        """Return the headings of a document."""
        return await self._call_with_path(request, OUTLINE, "outline")

    async def page(self, request: Request) -> Response:
        """Return a document as sanitized HTML."""
        return await self._call_with_path(request, PAGE, "page")

    async def related(self, request: Request) -> Response:
        """Return documents related to a document."""
        return await self._call_with_path(request, RELATED, "related")

    async def links(self, request: Request) -> Response:
        """Return the links of a document and the links to it."""
        return await self._call_with_path(request, LINKS, "links")

    async def link_problems(self, request: Request) -> Response:
        """Return broken links and orphan documents of the library."""
        arguments = parse_query(request, without_path(operations.LINKS))
        return await self._call(request, "links", arguments)

    async def graph(self, request: Request) -> Response:
        """Return the link graph."""
        return await self._call(request, "graph", parse_query(request, operations.GRAPH))

    async def status(self, request: Request) -> Response:
        """Return the state of the index."""
        return await self._call(request, "status", parse_query(request, ()))

    async def _call_with_path(self, request: Request, prefix: str, operation: str) -> Response:
        parameters = tuple(operations.OPERATIONS[operation].parameters)
        arguments = parse_query(request, without_path(parameters))
        path = parse_path(request, prefix)
        return await self._call(request, operation, {"ref": path, **arguments})

    async def _call(
        self, request: Request, operation: str, arguments: Mapping[str, Any]
    ) -> Response:
        return json_response(await cancel_on_disconnect(request, self.host, operation, arguments))


def _parse_lines(text: str) -> tuple[int, int]:
    if not LINES.fullmatch(text):
        raise UsageError(f"Invalid lines: {text!r}", "Write them as 10-40")
    first, _, last = text.partition("-")
    return int(first), int(last or first)


def search_arguments(
    request: Request, parameters: tuple[Parameter, ...] = SEARCH
) -> dict[str, Any]:
    """Return the arguments of a search in the query string."""
    arguments = parse_query(request, parameters)
    return {"query": arguments.pop("q", None), **arguments}
