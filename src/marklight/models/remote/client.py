"""JSON client of a model server: retries with exponential backoff and jitter, same-host redirects, readable errors."""

from __future__ import annotations

import json
import random
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from http.client import HTTPException
from typing import Any
from urllib.parse import urljoin, urlsplit

from marklight.errors import ModelServerError
from marklight.models.remote.connection import (
    Check,
    ConnectionPool,
    Response,
    ResponseTooLarge,
    Stream,
)
from marklight.models.remote.server import Key, Server

RETRIED_STATUSES = frozenset({429, 500, 502, 503, 504, 529})
"""Statuses of failures that may be temporary."""
FIRST_PAUSE_SECONDS = 0.5
LONGEST_PAUSE_SECONDS = 30.0
MAX_REDIRECTS = 3
PAUSE_STEP_SECONDS = 0.1
MAX_ERROR_BYTES = 1_000_000
HINT = "Is the server running? Without it, --mode keyword still works"

_TOO_LONG = re.compile(
    r"too (long|large|many)|exceed|maximum (context|sequence|input)|must have less than|batch[ _]size"
    r"|context (length|size|window)|\bNaN\b",
    re.IGNORECASE,
)
"""Error messages of servers about input that is too long; each server has its own, one with status
500. Ollama cannot serialise a vector with NaN, which for some texts has the same cause."""


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Time limits and number of retries of a request."""

    seconds: float
    """Time limit of one attempt."""
    retries: int
    total_seconds: float

    def limited(self, seconds: float) -> RetryPolicy:
        """Return a policy with at most this many seconds in total and one retry."""
        return RetryPolicy(min(self.seconds, seconds), min(self.retries, 1), seconds)


class RequestRejected(ModelServerError):
    """The server returned an error status."""

    def __init__(self, message: str, hint: str, status: int, reason: str) -> None:
        super().__init__(message, hint)
        self.status, self.reason = status, reason

    @property
    def is_too_long(self) -> bool:
        """Return whether a shorter input may be accepted."""
        return self.status in (400, 413, 422, 500) and bool(_TOO_LONG.search(self.reason))


class Client:
    """Sends JSON requests to one server."""

    def __init__(self, server: Server, hint: str = HINT) -> None:
        self.server = server
        self.hint = hint
        """Hint for a server that cannot be reached."""
        self._connections = ConnectionPool(server.base)

    def request(
        self,
        path: str,
        payload: object = None,
        *,
        policy: RetryPolicy,
        max_bytes: int = 1_000_000,
    ) -> Any:
        """Send a request and return the parsed JSON; GET without a payload, else POST.

        The path is appended to the server's base URL; one with two slashes, to the part before `/v1`.
        """
        url, body, headers = self._prepared(path, payload)
        method = "POST" if body else "GET"
        response = self._with_retries(
            lambda seconds: self._send(method, url, body, headers, seconds, max_bytes), policy
        )
        if response.status != 200:
            raise self._rejected(response)
        try:
            return json.loads(response.body)
        except (ValueError, RecursionError):
            raise self.not_json(response) from None

    def stream(
        self, path: str, payload: object, *, policy: RetryPolicy, check: Check
    ) -> tuple[Stream, str]:
        """Send a request; return the unread body and its content type.

        The time limit of the policy includes reading the body. `check` is called several times a second.
        """
        url, body, headers = self._prepared(path, payload)
        headers["Accept"] = "text/event-stream, application/x-ndjson, application/json"
        response = self._with_retries(
            lambda seconds: self._send("POST", url, body, headers, seconds, MAX_ERROR_BYTES, check),
            policy,
            check,
        )
        if response.stream is None:
            raise self._rejected(response)
        content_type = response.headers.get("Content-Type") or ""
        return response.stream, content_type.partition(";")[0].strip().lower()

    def not_json(self, response: Response) -> ModelServerError:
        """Return the error for a response that is not of this API."""
        return ModelServerError(
            f"{self.server} returned {_content_kind(response)} instead of JSON",
            "Check the address: it must be that of the API, not of a web page",
        )

    def _prepared(self, path: str, payload: object) -> tuple[str, bytes | None, dict[str, str]]:
        """Return URL, body and headers of a request."""
        body = None if payload is None else json.dumps(payload).encode()
        headers = {
            "User-Agent": "marklight",
            "Accept": "application/json",
            "Accept-Encoding": "identity",
            **({"Content-Type": "application/json"} if body is not None else {}),
            **self.server.key.header(),
        }
        base = self.server.base
        url = base.removesuffix("/v1") + path[1:] if path.startswith("//") else base + path
        return url, body, headers

    def _with_retries(
        self,
        send: Callable[[float], Response],
        policy: RetryPolicy,
        check: Check | None = None,
    ) -> Response:
        deadline = time.monotonic() + policy.total_seconds
        for attempt in range(policy.retries + 1):
            seconds = min(policy.seconds, deadline - time.monotonic())
            retry_after: float | None = None
            try:
                response = send(seconds)
                if response.status not in RETRIED_STATUSES or _TOO_LONG.search(
                    _error_message(response, self.server.key)
                ):
                    return response
                failure: ModelServerError = self._rejected(response)
                retry_after = _retry_after(response)
            except (OSError, HTTPException, ValueError) as error:
                failure = self.connection_failed(error)
                if (
                    isinstance(error, ResponseTooLarge)
                    or type(error).__name__ == "SSLCertVerificationError"
                ):
                    raise failure from None
            pause = min(LONGEST_PAUSE_SECONDS, FIRST_PAUSE_SECONDS * 2**attempt)
            # Jitter, so that clients that were rejected together do not return together.
            pause = retry_after if retry_after is not None else pause * random.uniform(0.5, 1.0)
            if attempt == policy.retries or time.monotonic() + pause >= deadline:
                # From None: chained socket errors are long and add nothing.
                raise failure from None
            _sleep(pause, check)
        raise AssertionError("the last attempt returns or raises")

    def _send(
        self,
        method: str,
        url: str,
        body: bytes | None,
        headers: dict[str, str],
        seconds: float,
        max_bytes: int,
        check: Check | None = None,
    ) -> Response:
        """Send a request and follow redirects within the same host; the key is for that host only."""
        deadline = time.monotonic() + seconds
        for _ in range(MAX_REDIRECTS + 1):
            parts = urlsplit(url)
            path = parts.path + (f"?{parts.query}" if parts.query else "")
            left = deadline - time.monotonic()
            response = self._connections.request(
                method, path, body, headers, seconds=left, max_bytes=max_bytes, check=check
            )
            if response.status not in (301, 302, 303, 307, 308):
                return response
            target = urlsplit(urljoin(url, response.headers.get("Location", "")))
            if (target.scheme, target.netloc) != (parts.scheme, parts.netloc):
                other = f"{target.scheme}://{target.hostname}"
                raise ModelServerError(
                    f"{self.server} redirects to {other}, which is not followed",
                    "If that is the right server, use it as the address",
                )
            url = target.geturl()
        raise ModelServerError(
            f"{self.server} redirects more than {MAX_REDIRECTS} times", "Check the address"
        )

    def _rejected(self, response: Response) -> RequestRejected:
        reason = _error_message(response, self.server.key)
        suffix = f": {reason}" if reason else ""
        if response.status in (401, 403):
            return RequestRejected(
                f"{self.server} requires a valid API key (status {response.status}){suffix}",
                "Set key_variable to the name of the environment variable that contains it, or"
                " key_command to a command that prints it",
                response.status,
                reason,
            )
        hint = {
            404: f"Check that the server has this model. With Ollama: ollama pull {self.server.model}"
            if self.server.kind == "ollama"
            else "Check that the server has this model, and the address",
            429: "It is overloaded, or the account's limit is reached; try again later",
        }.get(response.status, "See the server's log" if response.status >= 500 else "")
        return RequestRejected(
            f"{self.server} rejected the request (status {response.status}){suffix}",
            hint,
            response.status,
            reason,
        )

    def connection_failed(self, error: Exception) -> ModelServerError:
        """Return the error for a request that got no complete response."""
        if isinstance(error, ResponseTooLarge):
            return ModelServerError(f"{self.server}: {error}", "Check the address")
        if isinstance(error, TimeoutError):
            return ModelServerError(f"{self.server} does not respond in time", self.hint)
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        line = readable_reason(reason, self.server.key)
        return ModelServerError(f"{self.server} cannot be reached: {line}", self.hint)


def _sleep(seconds: float, check: Check | None) -> None:
    """Sleep; `check` may raise to end it early."""
    if check is None:
        time.sleep(seconds)
        return
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        check()
        time.sleep(min(left, PAUSE_STEP_SECONDS))


def _error_message(response: Response, key: Key) -> str:
    """Return the error message of a response as one short line; every server puts it elsewhere."""
    try:
        content = json.loads(response.body)
    except (ValueError, RecursionError):
        text = response.body[:2000].decode("utf-8", "replace")
        return _content_kind(response) if "<" in text else readable_reason(text, key)
    for name in ("error", "message", "detail"):
        if isinstance(content, dict) and content.get(name):
            content = content[name]
    return readable_reason(content if isinstance(content, str) else json.dumps(content), key)


def readable_reason(text: str, key: Key) -> str:
    """Return a text of the server as one short line without the key."""
    # The key is removed before truncation: half a key is a leak too.
    printable = "".join(char if char.isprintable() else " " for char in key.redact(text))
    return " ".join(printable.split())[:200]


def _content_kind(response: Response) -> str:
    start = response.body[:200].lstrip().lower()
    if start.startswith((b"<!doctype html", b"<html")):
        return "a web page"
    return "something else" if start else "nothing"


def _retry_after(response: Response) -> float | None:
    """Return the Retry-After header in seconds, given as a number or a date."""
    value = (response.headers.get("Retry-After") or "").strip()
    if not value:
        return None
    try:
        return max(0.0, float(value))
    except ValueError:
        pass
    try:
        return max(0.0, parsedate_to_datetime(value).timestamp() - time.time())
    except (TypeError, ValueError):
        return None
