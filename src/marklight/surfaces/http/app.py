"""The whole of what is served over HTTP: the guard outside, the routes inside."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response

from marklight.errors import ModelError
from marklight.library import Library
from marklight.surfaces.host import LibraryHost
from marklight.surfaces.http.address import Address
from marklight.surfaces.http.asked import in_address
from marklight.surfaces.http.errors import Errors, answer_to, json_response
from marklight.surfaces.http.guard import Guard
from marklight.surfaces.http.headers import Safe
from marklight.surfaces.http.limits import Limits
from marklight.surfaces.http.openapi import describe
from marklight.surfaces.http.page import page_routes
from marklight.surfaces.http.routes import Api, route
from marklight.surfaces.mcp.server import LibraryServer, make_server
from marklight.surfaces.mcp.streamable import make_streamable


def make_app(host: LibraryHost, address: Address, server: LibraryServer | None = None) -> Starlette:
    """An application for a host that whoever runs it has opened, for as long as its lifespan."""
    assistants, sessions = make_streamable(server or make_server(host))

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        async with sessions.run():
            yield

    app = Starlette(
        routes=[
            *Api(host).routes(),
            route("/openapi.json", _description(host, address), "GET"),
            route("/mcp", assistants, "POST", "GET", "DELETE"),
            *page_routes(),
        ],
        lifespan=lifespan,
        middleware=[
            Middleware(Safe),
            Middleware(Errors),
            Middleware(Guard, address=address),
            Middleware(Limits, timeout_seconds=host.library.serve.timeout_seconds),
        ],
        exception_handlers={HTTPException: _answer},
    )
    # An address with a stroke too many is another address, not one to be sent on from.
    app.router.redirect_slashes = False
    return app


def _description(host: LibraryHost, address: Address) -> Callable[[Request], Awaitable[Response]]:
    """What this server takes, told by itself."""

    def reranks(library: Library, **_: Any) -> bool:
        try:
            return library.models.any_reranker is not None
        except ModelError:
            return False

    async def describe_it(request: Request) -> Response:
        in_address(request, ())
        found = describe(host.library.collections, bool(address.token), await host.run(reranks))
        return json_response(found)

    return describe_it


async def _answer(_: Request, error: Exception) -> Response:
    return answer_to(error)
