"""The ASGI application: middleware, API routes, MCP and the static files of the web page."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from hashlib import blake2b
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from marklight.errors import ModelError, NotFound
from marklight.library import Library
from marklight.surfaces.host import LibraryHost
from marklight.surfaces.http.address import Address
from marklight.surfaces.http.errors import ErrorResponses, error_response, json_response
from marklight.surfaces.http.openapi import Description
from marklight.surfaces.http.request_guard import RequestGuard, RequestLimits, SecurityHeaders
from marklight.surfaces.http.routes import Api, parse_query
from marklight.surfaces.mcp.server import LibraryServer, make_server
from marklight.surfaces.mcp.streamable_http import make_streamable

WEB_FOLDER = Path(__file__).parent.parent / "web"
INDEX_PAGE = "index.html"
MEDIA_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
PAGE_HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    # Revalidated with every request: after an update no browser mixes old and new files.
    "cache-control": "no-cache",
}


def make_app(
    host: LibraryHost,
    address: Address,
    server: LibraryServer | None = None,
) -> Starlette:
    """Create the application for a host that the caller has opened."""
    mcp, sessions = make_streamable(server or make_server(host))

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        async with sessions.run():
            yield

    app = Starlette(
        routes=[
            *Api(host).routes(),
            Route("/openapi.json", _openapi_endpoint(host, address)),
            Route("/mcp", mcp, methods=["POST", "GET", "DELETE"]),
            *page_routes(),
        ],
        lifespan=lifespan,
        middleware=[
            Middleware(SecurityHeaders, allow_origins=address.allow_origins),
            Middleware(ErrorResponses),
            Middleware(RequestGuard, address=address),
            Middleware(RequestLimits, timeout_seconds=host.library.serve.timeout_seconds),
        ],
        exception_handlers={HTTPException: _handle_http_exception},
    )
    # A URL with an additional slash is another URL.
    app.router.redirect_slashes = False
    return app


def _openapi_endpoint(
    host: LibraryHost, address: Address
) -> Callable[[Request], Awaitable[Response]]:
    def has_reranker(library: Library, **_: Any) -> bool:
        try:
            return library.models.any_reranker is not None
        except ModelError:
            return False

    async def openapi(request: Request) -> Response:
        parse_query(request, ())
        reranks = await host.run(has_reranker)
        description = Description(list(host.library.collections), bool(address.token), reranks)
        return json_response(description.document())

    return openapi


async def _handle_http_exception(_: Request, error: Exception) -> Response:
    return error_response(error)


def page_routes() -> list[BaseRoute]:
    """Return the routes of the web page, whose files are read once: no request names a file on the disk."""
    contents = {
        file.name: file.read_bytes() for file in WEB_FOLDER.iterdir() if file.suffix in MEDIA_TYPES
    }
    files = {name: (content, _etag(content)) for name, content in contents.items()}

    async def serve(request: Request) -> Response:
        name = request.path_params.get("name", INDEX_PAGE)
        if name not in files:
            raise NotFound(f"No such file of the web page: {name[:100]!r}")
        content, etag = files[name]
        headers = {**PAGE_HEADERS, "etag": etag}
        if etag in request.headers.get("if-none-match", ""):
            return Response(status_code=304, headers=headers)
        return Response(content, headers=headers, media_type=MEDIA_TYPES[Path(name).suffix])

    return [Route("/", serve), Route("/page/{name}", serve)]


def _etag(content: bytes) -> str:
    return f'"{blake2b(content, digest_size=8).hexdigest()}"'
