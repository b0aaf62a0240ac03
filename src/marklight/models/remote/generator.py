"""Language model on a server: streamed chat completions by OpenAI's API (server-sent events) or Ollama's (JSON lines).

Time, size of a line, size of the response and number of tokens are bounded, whatever the server sends.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import suppress
from http.client import HTTPException
from typing import Any

import msgspec
from msgspec import Struct

from marklight.errors import ModelServerError
from marklight.models.onnx import replace_surrogates
from marklight.models.remote import Server
from marklight.models.remote.client import (
    Client,
    RequestRejected,
    RetryPolicy,
    Stream,
    readable_reason,
)
from marklight.models.remote.embedder import estimate_tokens
from marklight.ports import Prompt

RETRIES = 2
MAX_LINE_BYTES = 1_000_000
"""Size limit of one event; a server that does not stream sends the whole response as one."""
MAX_RESPONSE_BYTES = 20_000_000
"""Size limit of all events together: each repeats some hundred bytes for a token."""
MAX_CHARACTERS_PER_TOKEN = 12
"""A response with more characters than this times the token limit is cut: the server ignores the limit."""
CONTEXT_STEP = 2048
"""Ollama loads a model again for another context size, so sizes are multiples of this."""
STREAMED_TYPES = ("text/event-stream", "application/x-ndjson", "application/json", "")
HINT = "Is the server running? `marklight search` works without it"
NOT_CHAT = "Check that it is a chat model, and ask.name and ask.address"

_THINKING = re.compile(r"\s*<think>.*?(</think>\s*|\Z)", re.DOTALL)
"""Reasoning that some models write before the response."""
_RENAMED = {"max_tokens": "max_completion_tokens", "temperature": ""}
"""Parameters that newer models of OpenAI reject, with the name to use instead; empty to leave it out."""


class _Message(Struct):
    content: str | None = None


class _Choice(Struct):
    delta: _Message | None = None
    message: _Message | None = None
    """The whole text, from a server that does not stream."""
    finish_reason: str | None = None


class _Error(Struct):
    message: str = ""


class _Event(Struct):
    """An event of either API: `choices` is OpenAI's, `message` and `done` are Ollama's."""

    error: str | _Error | None = None
    choices: list[_Choice] = []
    message: _Message | None = None
    done: bool = False
    done_reason: str | None = None


class RemoteLanguageModel:
    """A language model on a server; implements `LanguageModel`."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self._client = Client(server, HINT)

    def __repr__(self) -> str:
        return f"RemoteLanguageModel({str(self.server)!r})"

    @property
    def name(self) -> str:
        return self.server.name

    def generate(
        self, prompt: Prompt, check_cancelled: Callable[[], None]
    ) -> Generator[str, None, None]:
        """Yield the response piece by piece; raise ModelServerError if it is incomplete or there is none."""
        deadline = time.monotonic() + self.server.timeout_seconds
        stream, content_type = self._open(prompt, check_cancelled)
        length = 0
        try:
            for piece in _without_reasoning(self._pieces(stream, content_type)):
                check_cancelled()
                length += len(piece)
                yield piece
                if length > prompt.max_tokens * MAX_CHARACTERS_PER_TOKEN:
                    raise self._limit_reached()
        except TimeoutError:
            raise self._too_slow() from None
        except (OSError, HTTPException, ValueError) as error:
            if time.monotonic() >= deadline:
                raise self._too_slow() from None
            raise self._client.connection_failed(error) from None
        finally:
            stream.close()
        if not length:
            raise ModelServerError(f"{self.server} returned no text", NOT_CHAT)

    def _open(self, prompt: Prompt, check: Callable[[], None]) -> tuple[Stream, str]:
        """Send the prompt, again without a parameter that the model rejects."""
        seconds = self.server.timeout_seconds
        policy = RetryPolicy(seconds, RETRIES, seconds)
        path, payload = self._request(prompt)
        for _ in range(len(_RENAMED) + 1):
            try:
                stream, content_type = self._client.stream(
                    path, payload, policy=policy, check=check
                )
                break
            except RequestRejected as rejection:
                rejected = [
                    name for name in _RENAMED if name in payload and name in rejection.reason
                ]
                if rejection.status not in (400, 422) or not rejected:
                    raise
                value = payload.pop(rejected[0])
                if renamed := _RENAMED[rejected[0]]:
                    payload[renamed] = value
        if content_type not in STREAMED_TYPES:
            body = b""
            with suppress(OSError, HTTPException):
                body = stream.line(MAX_LINE_BYTES)
            stream.close()
            raise self._client.not_json(body)
        return stream, content_type

    def _request(self, prompt: Prompt) -> tuple[str, dict[str, Any]]:
        system, user = (replace_surrogates(text) for text in prompt[:2])
        payload: dict[str, Any] = {
            "model": self.server.model,
            "messages": [{"role": "system", "content": system}, {"role": "user", "content": user}],
            "stream": True,
        }
        if self.server.kind == "openai":
            return "/chat/completions", {
                **payload,
                "temperature": 0,
                "max_tokens": prompt.max_tokens,
            }
        needed = estimate_tokens(system) + estimate_tokens(user) + prompt.max_tokens
        options = {
            "temperature": 0,
            "num_predict": prompt.max_tokens,
            # Ollama's default would silently drop the beginning of the prompt.
            "num_ctx": -(-needed // CONTEXT_STEP) * CONTEXT_STEP,
        }
        return "/api/chat", {**payload, "options": options}

    def _pieces(self, stream: Stream, content_type: str) -> Iterator[str]:
        """Yield the text of each event; raise if the stream ends before the model has finished."""
        size = 0
        reason = ""
        if content_type == "application/json" and self.server.kind == "openai":  # does not stream
            piece, reason = self._parse(stream.read(MAX_LINE_BYTES), "stop")
            yield piece
        while line := stream.line(MAX_LINE_BYTES):
            size += len(line)
            if size > MAX_RESPONSE_BYTES:
                raise ModelServerError(
                    f"{self.server} sent more than {MAX_RESPONSE_BYTES:,} bytes", NOT_CHAT
                )
            text = line.strip()
            if text.startswith(b"data:"):
                text = text[5:].strip()
            elif not text.startswith(b"{"):
                continue  # an empty line, a comment, or the name of an event
            if text == b"[DONE]":
                reason = reason or "stop"
                break
            piece, reason = self._parse(text, reason)
            yield piece
            if self.server.kind == "ollama" and reason:
                break
        if reason == "length":
            raise self._limit_reached()
        if not reason:
            raise ModelServerError(f"{self.server} ended the response early", HINT)

    def _parse(self, text: bytes, reason: str) -> tuple[str, str]:
        """Return the text of an event, and why the response ends with it; empty if it does not."""
        try:
            event = msgspec.json.decode(text, type=_Event)
        except (ValueError, RecursionError) as error:
            raise self._client.other_api(error) from None
        if event.error:
            message = event.error if isinstance(event.error, str) else event.error.message
            line = readable_reason(message, self.server.key)
            raise ModelServerError(f"{self.server} failed: {line}", HINT)
        if self.server.kind == "ollama":
            return _content(event.message), (event.done_reason or "stop") if event.done else ""
        choice = event.choices[0] if event.choices else _Choice()
        return _content(choice.delta or choice.message), choice.finish_reason or reason

    def _limit_reached(self) -> ModelServerError:
        return ModelServerError(
            f"{self.server} reached the token limit", "Set --max-tokens to a higher value"
        )

    def _too_slow(self) -> ModelServerError:
        return ModelServerError(
            f"{self.server} did not finish within {self.server.timeout_seconds:.0f} s",
            "Set ask.timeout_seconds to a higher value",
        )


def _content(message: _Message | None) -> str:
    return (message and message.content) or ""


def _without_reasoning(pieces: Iterator[str]) -> Iterator[str]:
    """Drop a block `<think>…</think>` at the beginning of a response."""
    begun = ""
    for piece in pieces:
        begun += piece
        start = begun.lstrip()
        if "<think>".startswith(start[:7]) and "</think>" not in start:
            continue
        yield _THINKING.sub("", begun, count=1)
        break
    else:
        # The response ended within its reasoning, or is a part of the mark.
        rest = _THINKING.sub("", begun, count=1)
        if rest.strip():
            yield rest
        return
    yield from pieces
