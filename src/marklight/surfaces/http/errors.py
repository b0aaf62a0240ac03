"""Errors as JSON with the status that says whose fault they are; ours tell nothing of our insides."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from marklight.errors import (
    MarklightError,
    ModelError,
    NotFound,
    Overloaded,
    Stopped,
    StoreError,
    UsageError,
)
from marklight.surfaces.render import to_json

RETRY_SECONDS = "1"
"""When to ask again: a search takes a small part of it."""
STATUS: Mapping[type[MarklightError], int] = {
    NotFound: 404,
    UsageError: 422,
    Overloaded: 503,
    Stopped: 503,
    StoreError: 503,
    ModelError: 503,
}
log = logging.getLogger(__name__)


class Refusal(MarklightError):
    """A request that is turned away before anybody looks at what it asks for."""

    status = 400

    def __init__(
        self, message: str, hint: str = "", headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(message, hint)
        self.headers = dict(headers or {})


class BadRequest(Refusal):
    """It cannot be understood."""


class Unauthorized(Refusal):
    """It lacks the token."""

    status = 401


class Forbidden(Refusal):
    """It comes from somewhere else."""

    status = 403


class MethodNotAllowed(Refusal):
    """This cannot be done here."""

    status = 405


class TooLarge(Refusal):
    """It is larger than any question."""

    status = 413


def told(error: MarklightError) -> dict[str, dict[str, str]]:
    """An error as JSON holds it."""
    kind = type(error).__name__
    return {"error": {"type": kind, "message": error.message, "hint": error.hint}}


def unexpected(error: Exception) -> MarklightError:
    """What is said of a fault of ours; what it was is for whoever runs us."""
    log.error("a request could not be answered", exc_info=error)
    return MarklightError("this request met a fault in Marklight", "Tell us what you asked for")


def answer_to(error: Exception) -> Response:
    """The response that tells it."""
    if isinstance(error, HTTPException):
        error = _routed(error)
    if not isinstance(error, MarklightError):
        error = unexpected(error)
    status, headers = status_of(error), {}
    if isinstance(error, Refusal):
        headers = error.headers
    elif status == 503:
        headers = {"retry-after": RETRY_SECONDS}
    return json_response(told(error), status, headers)


def status_of(error: MarklightError) -> int:
    """Whose fault it is: below 500 the asker's, 503 that of the moment."""
    if isinstance(error, Refusal):
        return error.status
    return next((status for kind, status in STATUS.items() if isinstance(error, kind)), 500)


def json_response(
    value: object, status: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    """JSON as the command line prints it, to the byte."""
    body = f"{to_json(value)}\n".encode("utf-8", "replace")
    return Response(body, status, headers, media_type="application/json")


def _routed(error: HTTPException) -> MarklightError:
    """What the router found: no such address, or not with this method."""
    if error.status_code == 405:
        allowed = (error.headers or {}).get("Allow", "")
        return MethodNotAllowed(
            "this address does not take that method", headers={"allow": allowed}
        )
    if error.status_code == 404:
        return NotFound("there is nothing at this address", "GET /openapi.json tells what there is")
    return BadRequest(str(error.detail))


class Errors:
    """Turns whatever is raised below into a response, unless one has begun already."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        begun = False

        async def sent(message: Message) -> None:
            nonlocal begun
            begun = True
            await send(message)

        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        try:
            await self.app(scope, receive, sent)
        except Exception as error:
            if begun:
                # Half a response is out: only an end in its midst tells the reader so.
                log.error("a response broke off", exc_info=error)
                raise
            await answer_to(error)(scope, receive, send)
