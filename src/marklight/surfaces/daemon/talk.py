"""An assistant's session as far as another server must hear of it to go on: its beginning, what stands, what is open."""

from __future__ import annotations

import json
import time
from typing import Any, NamedTuple

OWN = "marklight:again:"
"""Before the ids of what we ask a second time ourselves: whoever answers them answers us."""
MOST_SENT = 2
"""Servers that may end over one request; it is not put to a third."""
INTERNAL_ERROR = -32_603

Message = dict[str, Any]


class Asked(NamedTuple):
    """A request that nobody has answered yet."""

    since: float
    line: bytes
    sent: int = 1


class Talk:
    """What the assistant has said, and which of it was answered."""

    def __init__(self) -> None:
        self.open: dict[str, Asked] = {}
        self.begun: bytes | None = None
        """What the assistant says after the handshake."""
        self._begin: Message | None = None
        """The handshake, where there was one."""
        self._standing: dict[str, Message] = {}
        """What still counts after it was answered: subscriptions, how much is logged."""

    def said(self, line: bytes) -> None:
        """A line of the assistant's."""
        for message in messages(line):
            self._note(message, line)

    def answered(self, line: bytes) -> None:
        """A line of the server's."""
        for message in messages(line):
            if "method" not in message:
                self.open.pop(_key(message.get("id")), None)

    def refused(self) -> list[bytes]:
        """Answers to what nobody can answer, or what ends whoever tries; it is no longer open."""
        hopeless = [key for key, asked in self.open.items() if asked.sent >= MOST_SENT]
        for key in hopeless:
            del self.open[key]
        return [_refusal(json.loads(key)) for key in hopeless]

    def put_again(self) -> None:
        """What is open is put to one more server."""
        self.open = {key: each._replace(sent=each.sent + 1) for key, each in self.open.items()}

    @property
    def oldest(self) -> float | None:
        """Since when the assistant waits."""
        return min((asked.since for asked in self.open.values()), default=None)

    @property
    def handshake(self) -> Message | None:
        """The beginning, once more and for us; None where there was none, or it is still open."""
        return self._again(self._begin) if self._begin else None

    @property
    def standing(self) -> list[Message]:
        """What was answered and still counts, once more and for us."""
        return [again for each in self._standing.values() if (again := self._again(each))]

    def _again(self, message: Message) -> Message | None:
        if "id" not in message or _key(message["id"]) in self.open:
            return None
        return {**message, "id": f"{OWN}{message['id']}"}

    def _note(self, message: Message, line: bytes) -> None:
        method, id = message.get("method"), message.get("id")
        params = message.get("params") or {}
        if method == "initialize":
            self._begin = message
        elif method == "notifications/initialized":
            self.begun = line
        elif method == "notifications/cancelled":
            self.open.pop(_key(params.get("requestId")), None)
        elif method in ("resources/subscribe", "logging/setLevel"):
            self._standing[f"{method}{params.get('uri', '')}"] = message
        elif method == "resources/unsubscribe":
            self._standing.pop(f"resources/subscribe{params.get('uri', '')}", None)
        if method is not None and id is not None:
            self.open[_key(id)] = Asked(time.monotonic(), as_line(message))


def messages(line: bytes) -> list[Message]:
    """What a line holds; nothing, if it is no JSON, which is for the server to tell."""
    try:
        told = json.loads(line)
    except (ValueError, RecursionError):
        return []
    return [each for each in (told if isinstance(told, list) else [told]) if isinstance(each, dict)]


def as_line(message: Message) -> bytes:
    """A message as it is sent."""
    return json.dumps(message).encode() + b"\n"


def is_own(line: bytes) -> bool:
    """Whether it answers what we asked ourselves."""
    return OWN.encode() in line and any(
        str(each.get("id", "")).startswith(OWN) for each in messages(line)
    )


def _refusal(id: Any) -> bytes:
    said = "every server that tried to answer this ended; `marklight doctor` may tell why"
    return as_line({"jsonrpc": "2.0", "id": id, "error": {"code": INTERNAL_ERROR, "message": said}})


def _key(id: Any) -> str:
    """1 and "1" are two ids."""
    return json.dumps(id)
