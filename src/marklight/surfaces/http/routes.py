"""The addresses of the API, each a verb of the library."""

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
from marklight.surfaces.http.asked import in_address, in_body, in_path
from marklight.surfaces.http.errors import json_response
from marklight.surfaces.http.precise import WORDS
from marklight.surfaces.http.stream import streamed
from marklight.surfaces.http.waiting import waited_for
from marklight.surfaces.parameters import Parameter, string

DOCUMENTS = "/api/documents/"
OUTLINE = "/api/outline/"
PAGE = "/api/page/"
RELATED = "/api/related/"
LINKS = "/api/links/"
LINES = re.compile(r"[1-9][0-9]{0,8}(-[1-9][0-9]{0,8})?")


def in_addresses(parameters: tuple[Parameter, ...]) -> tuple[Parameter, ...]:
    """What fits into an address: the question is `q` there, long texts and settings need a body."""
    return tuple(
        Parameter("q" if each.name == "query" else each.name, _short(each.schema), each.required)
        for each in parameters
        if each.name != "settings"
    )


def _short(schema: Mapping[str, Any]) -> dict[str, Any]:
    most = {"maxLength": 4000, "maxItems": 50, "maxProperties": 50}
    return {
        **schema,
        **{name: min(schema[name], value) for name, value in most.items() if name in schema},
        **({"items": {**schema["items"], "maxLength": 300}} if "items" in schema else {}),
    }


def below(parameters: tuple[Parameter, ...]) -> tuple[Parameter, ...]:
    """What is left where the document stands in the path."""
    return tuple(each for each in parameters if each.name not in ("path", "ref"))


SEARCH = in_addresses(operations.SEARCH)
NAMED = string(
    "path", "The document, as guide/auth.md.", required=True, maxLength=5000, pattern=WORDS
)
PART = (
    string("heading", "Only what stands under this heading, or its anchor.", maxLength=1000),
    string("lines", "Only these lines, as 10-40.", maxLength=20, pattern=f"^{LINES.pattern}$"),
    *(each for each in below(operations.GET) if each.name != "context"),
)


@dataclass(frozen=True, slots=True)
class Api:
    """The verbs of one host, as requests ask for them."""

    host: LibraryHost

    def routes(self) -> list[BaseRoute]:
        """Every address with the methods that it takes."""
        return [
            route("/health", self.health, "GET"),
            route("/api/search", self.search, "GET", "POST"),
            route("/api/search/stream", self.stream, "GET"),
            route("/api/commits", self.commits, "POST"),
            route("/api/documents", self.documents, "GET"),
            route(f"{DOCUMENTS}{{path:path}}", self.document, "GET"),
            route(f"{OUTLINE}{{path:path}}", self.outline, "GET"),
            route(f"{PAGE}{{path:path}}", self.page, "GET"),
            route(f"{RELATED}{{path:path}}", self.related, "GET"),
            route("/api/links", self.loose_ends, "GET"),
            route(f"{LINKS}{{path:path}}", self.links, "GET"),
            route("/api/graph", self.graph, "GET"),
            route("/api/tags", self.tags, "GET"),
            route("/api/status", self.status, "GET"),
        ]

    async def health(self, request: Request) -> Response:
        """That we live, and what we are busy with; says nothing about the documents."""
        in_address(request, ())
        doing = self.host.following.to_dict()["indexing"]
        return json_response({"ok": True, "version": __version__, "indexing": doing})

    async def search(self, request: Request) -> Response:
        """Passages that answer."""
        if request.method == "POST":
            in_address(request, ())
            return await self._call(request, "search", await in_body(request))
        return await self._call(request, "search", asked(request))

    async def stream(self, request: Request) -> Response:
        """The same, one step after the other as each is done."""
        return await streamed(request, self.host, asked(request))

    async def commits(self, request: Request) -> Response:
        """Commits that answer."""
        in_address(request, ())
        return await self._call(request, "commits", await in_body(request))

    async def document(self, request: Request) -> Response:
        """A document or a part of it, by whatever `get` takes."""
        given = in_address(request, PART)
        path = ref = in_path(request, DOCUMENTS)
        heading, lines = given.pop("heading", None), given.pop("lines", None)
        if heading is not None:
            ref = f"{path}#{heading}"
        if lines is not None:
            first, last = _lines(lines)
            if heading is not None:
                part = await waited_for(request, self.host, "get", {**given, "ref": ref})
                first, last = max(first, part["lines"][0]), min(last, part["lines"][1])
            if last < first:
                raise NotFound(f"there are no lines {lines} in it", "The first comes first")
            ref = f"{path}:{first}-{last}"
        return await self._call(request, "get", {**given, "ref": ref})

    async def documents(self, request: Request) -> Response:
        """Which documents there are, a part at a time."""
        return await self._call(request, "documents", in_address(request, operations.DOCUMENTS))

    async def tags(self, request: Request) -> Response:
        """Every tag with the number of its documents."""
        return await self._call(request, "tags", in_address(request, ()))

    async def outline(self, request: Request) -> Response:
        """A document's headings."""
        return await self._below(request, OUTLINE, "outline")

    async def page(self, request: Request) -> Response:
        """A document as safe HTML."""
        return await self._below(request, PAGE, "page")

    async def related(self, request: Request) -> Response:
        """Documents that belong to one."""
        return await self._below(request, RELATED, "related")

    async def links(self, request: Request) -> Response:
        """Links of a document, both ways."""
        return await self._below(request, LINKS, "links")

    async def loose_ends(self, request: Request) -> Response:
        """What in the library leads nowhere, or stands alone."""
        return await self._call(request, "links", in_address(request, below(operations.LINKS)))

    async def graph(self, request: Request) -> Response:
        """Documents and the links between them."""
        return await self._call(request, "graph", in_address(request, operations.GRAPH))

    async def status(self, request: Request) -> Response:
        """What is indexed, and what is still to do."""
        return await self._call(request, "status", in_address(request, ()))

    async def _below(self, request: Request, above: str, operation: str) -> Response:
        given = in_address(request, below(tuple(operations.OPERATIONS[operation].parameters)))
        return await self._call(request, operation, {"path": in_path(request, above), **given})

    async def _call(self, request: Request, operation: str, given: Mapping[str, Any]) -> Response:
        return json_response(await waited_for(request, self.host, operation, given))


def _lines(text: str) -> tuple[int, int]:
    if not LINES.fullmatch(text):
        raise UsageError(f"{text!r} are no lines", "Write them as 10-40")
    first, _, last = text.partition("-")
    return int(first), int(last or first)


def asked(request: Request) -> dict[str, Any]:
    """The question that an address holds."""
    given = in_address(request, SEARCH)
    return {"query": given.pop("q"), **given}


def route(path: str, endpoint: Any, *methods: str) -> Route:
    """An address that takes these methods and no others; HEAD would do all the work for nothing."""
    made = Route(path, endpoint, methods=list(methods))
    made.methods = set(methods)
    return made
