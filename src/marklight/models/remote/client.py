"""JSON to a server and back: tried again while there is hope, and a clear word when there is none."""

from __future__ import annotations

import json
import random
import re
import time
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from http.client import HTTPException
from typing import Any
from urllib.parse import urljoin, urlsplit

from marklight.errors import ModelServerError
from marklight.models.remote.exchange import Exchange, Reply, TooLarge
from marklight.models.remote.key import Key
from marklight.models.remote.server import Server

HOPE = frozenset({429, 500, 502, 503, 504, 529})
"""What a server says that may be otherwise in a moment; other refusals stay as they are."""
FIRST_PAUSE_SECONDS = 0.5
LONGEST_PAUSE_SECONDS = 30.0
REDIRECTS = 3
HINT = "Is the server running? Without it --mode keyword answers by words"

_TOO_LONG = re.compile(
    r"too (long|large|many)|exceed|maximum (context|sequence|input)|must have less than|batch[ _]size"
    r"|context (length|size|window)|\bNaN\b",
    re.IGNORECASE,
)
"""What servers say of a text, or of texts, that they cannot take; each says it its own way, one with status
500. Ollama cannot write a vector that is not a number, which with some texts comes to the same."""


@dataclass(frozen=True, slots=True)
class Patience:
    """How long one is ready to wait for an answer."""

    seconds: float
    """For one attempt."""
    retries: int
    total_seconds: float

    def hurried(self, seconds: float) -> Patience:
        """Less of it."""
        return Patience(min(self.seconds, seconds), min(self.retries, 1), seconds)


class Declined(ModelServerError):
    """The server answered, and said no."""

    def __init__(self, message: str, hint: str, status: int, said: str) -> None:
        super().__init__(message, hint)
        self.status, self.said = status, said

    @property
    def is_too_long(self) -> bool:
        """Whether less text may be taken."""
        return self.status in (400, 413, 422, 500) and bool(_TOO_LONG.search(self.said))


class Client:
    """One server, asked in JSON."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self._exchange = Exchange(server.base)

    def ask(
        self, path: str, given: object = None, *, patience: Patience, most: int = 1_000_000
    ) -> Any:
        """What the server says to this, read as JSON; without anything given it is a GET.

        A path is put behind the server's base, or, if it has two strokes, behind what is before `/v1` there.
        """
        body = None if given is None else json.dumps(given).encode()
        headers = {
            "User-Agent": "marklight",
            "Accept": "application/json",
            "Accept-Encoding": "identity",
            **({"Content-Type": "application/json"} if body is not None else {}),
            **self.server.key.header(),
        }
        base = self.server.base
        url = base.removesuffix("/v1") + path[1:] if path.startswith("//") else base + path
        reply = self._patiently("POST" if body else "GET", url, body, headers, patience, most)
        if reply.status != 200:
            raise self._declined(reply)
        try:
            return json.loads(reply.body)
        except (ValueError, RecursionError):
            raise ModelServerError(
                f"{self.server} answers with {_sort(reply)}, not with JSON",
                "Is the address right? It is that of the API, not of a web page",
            ) from None

    def _patiently(
        self,
        method: str,
        url: str,
        body: bytes | None,
        headers: dict[str, str],
        patience: Patience,
        most: int,
    ) -> Reply:
        until = time.monotonic() + patience.total_seconds
        for attempt in range(patience.retries + 1):
            left = until - time.monotonic()
            asked: float | None = None
            try:
                reply = self._follow(method, url, body, headers, min(patience.seconds, left), most)
                said = _said(reply, self.server.key) if reply.status in HOPE else ""
                if reply.status not in HOPE or _TOO_LONG.search(said):
                    return reply
                failure: ModelServerError = self._declined(reply)
                asked = _retry_after(reply)
            except (OSError, HTTPException, ValueError) as error:
                failure = self._broken(error)
                if (
                    isinstance(error, TooLarge)
                    or type(error).__name__ == "SSLCertVerificationError"
                ):
                    raise failure from None
            pause = min(LONGEST_PAUSE_SECONDS, FIRST_PAUSE_SECONDS * 2**attempt)
            # By chance, so that those who were turned away together do not come back together.
            pause = asked if asked is not None else pause * random.uniform(0.5, 1.0)
            if attempt == patience.retries or time.monotonic() + pause >= until:
                # From None: chained errors of sockets tell nothing more, and are long.
                raise failure from None
            time.sleep(pause)
        raise AssertionError("the last attempt returns or raises")

    def _follow(
        self,
        method: str,
        url: str,
        body: bytes | None,
        headers: dict[str, str],
        seconds: float,
        most: int,
    ) -> Reply:
        """The answer, where need be from another path of the same host: a key is for that one alone."""
        until = time.monotonic() + seconds
        for _ in range(REDIRECTS + 1):
            parts = urlsplit(url)
            path = parts.path + (f"?{parts.query}" if parts.query else "")
            left = until - time.monotonic()
            reply = self._exchange(method, path, body, headers, seconds=left, most=most)
            if reply.status not in (301, 302, 303, 307, 308):
                return reply
            target = urlsplit(urljoin(url, reply.headers.get("Location", "")))
            if (target.scheme, target.netloc) != (parts.scheme, parts.netloc):
                there = f"{target.scheme}://{target.hostname}"
                raise ModelServerError(
                    f"{self.server} sends us on to {there}, which is not followed",
                    "If that is the right one, write it as the address",
                )
            url = target.geturl()
        raise ModelServerError(
            f"{self.server} sends us on again and again", "Is the address right?"
        )

    def _declined(self, reply: Reply) -> Declined:
        said = _said(reply, self.server.key)
        told = f": {said}" if said else ""
        if reply.status in (401, 403):
            return Declined(
                f"{self.server} refuses our key or wants one (status {reply.status}){told}",
                "Name the variable that holds it in key_variable, or a command in key_command",
                reply.status,
                said,
            )
        hint = {
            404: f"Has the server this model? With Ollama: ollama pull {self.server.model}"
            if self.server.kind == "ollama"
            else "Has the server this model, and is the address right?",
            429: "It has too much to do, or the account's limit is reached; try again later",
        }.get(reply.status, "The server's own log may say more" if reply.status >= 500 else "")
        return Declined(
            f"{self.server} says no (status {reply.status}){told}", hint, reply.status, said
        )

    def _broken(self, error: Exception) -> ModelServerError:
        if isinstance(error, TooLarge):
            return ModelServerError(f"{self.server}: {error}", "Is the address right?")
        if isinstance(error, TimeoutError):
            return ModelServerError(f"{self.server} does not answer in time", HINT)
        why = getattr(error, "strerror", None) or str(error) or type(error).__name__
        return ModelServerError(
            f"{self.server} does not answer: {_line(why, self.server.key)}", HINT
        )


def _said(reply: Reply, key: Key) -> str:
    """What a refusal says in words, in one short line; every server puts it elsewhere."""
    try:
        found = json.loads(reply.body)
    except (ValueError, RecursionError):
        text = reply.body[:2000].decode("utf-8", "replace")
        return _sort(reply) if "<" in text else _line(text, key)
    for name in ("error", "message", "detail"):
        if isinstance(found, dict) and found.get(name):
            found = found[name]
    return _line(found if isinstance(found, str) else json.dumps(found), key)


def _line(text: str, key: Key) -> str:
    # Without the key before it is cut: half a key is one too.
    shown = "".join(sign if sign.isprintable() else " " for sign in key.scrubbed(text))
    return " ".join(shown.split())[:200]


def _sort(reply: Reply) -> str:
    start = reply.body[:200].lstrip().lower()
    if start.startswith((b"<!doctype html", b"<html")):
        return "a web page"
    return "nothing" if not start else "something else"


def _retry_after(reply: Reply) -> float | None:
    given = (reply.headers.get("Retry-After") or "").strip()
    if not given:
        return None
    try:
        return max(0.0, float(given))
    except ValueError:
        pass
    try:
        return max(0.0, parsedate_to_datetime(given).timestamp() - time.time())
    except (TypeError, ValueError):
        return None
