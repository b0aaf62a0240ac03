"""Errors as JSON responses with an HTTP status; unexpected errors are logged and reveal no details."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from marklight.errors import (
    MarklightError,
    ModelError,
    NotConfigured,
    NotFound,
    Overloaded,
    Stopped,
    StoreError,
    UsageError,
)
from marklight.surfaces.render import json_body

NO_ROUTE, SEE_OPENAPI = "No such URL", "GET /openapi.json lists the URLs"
RETRY_SECONDS = "1"
"""Value of Retry-After: many times the duration of a search."""
STATUS: Mapping[type[MarklightError], int] = {
    NotFound: 404,
    NotConfigured: 404,
    UsageError: 422,
    Overloaded: 503,
    Stopped: 503,
    StoreError: 503,
    ModelError: 503,
}
log = logging.getLogger(__name__)


class RequestError(MarklightError):
    """A request that is rejected before it reaches the library."""

    status = 400

    def __init__(
        self, message: str, hint: str = "", headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(message, hint)
        self.headers = dict(headers or {})


class BadRequest(RequestError):
    """The request is malformed."""


class Unauthorized(RequestError):
    """The bearer token is missing or wrong."""

    status = 401


class Forbidden(RequestError):
    """The Host, Origin or Sec-Fetch-Site header is foreign."""

    status = 403


class MethodNotAllowed(RequestError):
    """The URL does not support the method."""

    status = 405


class TooLarge(RequestError):
    """The body exceeds the size limit."""

    status = 413


def error_body(error: MarklightError) -> dict[str, dict[str, str]]:
    """Return the JSON body of an error."""
    kind = type(error).__name__
    return {"error": {"type": kind, "message": error.message, "hint": error.hint}}


def unexpected(error: Exception) -> MarklightError:
    """Log an unexpected error; return the one that the client sees."""
    log.error("Unexpected error while answering a request", exc_info=error)
    return MarklightError(
        "Unexpected error in Marklight", "Please report it with the request that caused it"
    )


def error_response(error: Exception) -> Response:
    """Return the response for an error."""
    if isinstance(error, HTTPException):
        error = _from_router(error)
    if not isinstance(error, MarklightError):
        error = unexpected(error)
    status, headers = status_of(error), {}
    if isinstance(error, RequestError):
        headers = error.headers
    elif status == 503:
        headers = {"retry-after": RETRY_SECONDS}
    return json_response(error_body(error), status, headers)


def status_of(error: MarklightError) -> int:
    """Return the HTTP status of an error: 4xx for the client's, 503 for temporary ones, else 500."""
    if isinstance(error, RequestError):
        return error.status
    return next((status for kind, status in STATUS.items() if isinstance(error, kind)), 500)


def json_response(
    value: object, status: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    """Return a response with the same bytes that the command line prints; bytes are a body that is encoded already."""
    body = value if isinstance(value, bytes) else json_body(value)
    return Response(body, status, headers, media_type="application/json")


def _from_router(error: HTTPException) -> MarklightError:
    """Convert an error of Starlette's router: unknown URL or method."""
    if error.status_code == 405:
        allowed = (error.headers or {}).get("Allow", "")
        return MethodNotAllowed(
            "Method not allowed for this URL",
            f"Use {allowed}" if allowed else "",
            headers={"allow": allowed},
        )
    if error.status_code == 404:
        return NotFound(NO_ROUTE, SEE_OPENAPI)
    return BadRequest(str(error.detail))


class ErrorResponses:
    """ASGI middleware: turns exceptions into error responses, unless a response has started."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        started = False

        async def send_and_note(message: Message) -> None:
            nonlocal started
            started = True
            await send(message)

        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        try:
            await self.app(scope, receive, send_and_note)
        except Exception as error:
            if started:
                # Only an aborted connection shows the client that the response is incomplete.
                log.error("Unexpected error after a response had started", exc_info=error)
                raise
            await error_response(error)(scope, receive, send)
