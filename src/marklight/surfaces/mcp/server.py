"""The MCP server for all transports and protocol versions, and the transport over standard input and output or an IPC connection.

Its instructions are built from the library: what it contains, in which language, and how to use the tools.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from importlib import metadata
from threading import Timer
from typing import TYPE_CHECKING, Any

import anyio
import anyio.to_thread
import mcp_types as types
from mcp.server.caching import CacheableMethod, CacheHint
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel.server import NotificationOptions, Server
from mcp.server.models import InitializationOptions
from mcp.server.stdio import stdio_server
from mcp.shared.message import SessionMessage
from pydantic import ValidationError

from marklight.errors import MarklightError
from marklight.formatting import escape_json, one_line
from marklight.library.history import has_repository
from marklight.library.indexing import Overview, overview
from marklight.platforms import on_termination
from marklight.surfaces.host import LibraryHost
from marklight.surfaces.mcp.resources import (
    Notifications,
    PromptHandler,
    ResourceHandler,
)
from marklight.surfaces.mcp.tools import ToolHandler
from marklight.text.languages import language_name
from marklight.text.tokens import fits

if TYPE_CHECKING:
    from mcp.server.context import CallNext, HandlerResult, ServerRequestContext

    from marklight.library import Library


OVERVIEW_SECONDS = 3.0
"""Time limit of the handshake for reading the facts of a library; after it, those read before are used."""
MAX_NAME = 40
"""Length of a folder's or collection's name; a longer one could be a sentence, and is left out."""
MAX_NAMES_TOKENS = 75
"""Size of the list of folders or collections."""
GREETINGS = ("initialize", "server/discover")
"""Requests whose answer has the instructions."""
USAGE = """\
Start with query_documents: one question per call, in full and with its rare names; an exact phrase in quotes. Scores \
are probabilities: 0.8 is good, below 0.3 doubtful. Without an answer, rephrase it or try search_with_hypothesis, and \
read the closest page before you conclude that something is not there. get_document reads path, path#heading or \
path:10-40; outline lists headings; list_documents everything on a subject; related_documents neighbours;{history} \
index_status what is indexed. Narrow with path, tag, where, after, before; exclude what you have read. "note:" reports \
omissions. Edits are found at once. Cite path:lines."""
HISTORY = " search_git_history commits;"
"""Part of the instructions where there is a repository."""


class Introduction:
    """Keeps the facts of one library that its server reports, and writes the instructions."""

    def __init__(self, host: LibraryHost) -> None:
        self.host = host
        self.overview: Overview | None = None
        """As of the last handshake; None if it could not be read yet."""

    async def refresh(self) -> None:
        """Read the facts in a thread; wait for them within a time limit."""

        def read() -> None:
            try:
                self.overview = overview(self.host.library)
            except MarklightError:
                self.overview = None  # the tools report why the index cannot be read

        with anyio.move_on_after(OVERVIEW_SECONDS):
            await anyio.to_thread.run_sync(read, abandon_on_cancel=True)

    async def middleware(
        self, ctx: ServerRequestContext[Any, Any], call_next: CallNext
    ) -> HandlerResult:
        """Put current instructions into the answer to a handshake."""
        result = await call_next(ctx)
        if ctx.method in GREETINGS and isinstance(result, dict):
            await self.refresh()
            result["instructions"] = self.text()
        return result

    def text(self) -> str:
        """Return the instructions."""
        name = _plain(self.host.library.place.folder.name)
        watcher, facts = self.host.watcher, self.overview
        # A scan for changes of an index that exists is no reading.
        is_reading = watcher.is_reading and not (watcher.is_scanning and facts and facts.documents)
        usage = USAGE.format(history=HISTORY if has_repository(self.host.library) else "")
        return f"{_facts(name, facts, is_reading)}\n{usage}"

    @property
    def language(self) -> str:
        """Return the English name of the main language of the documents; empty if it is unknown."""
        languages = self.overview.languages if self.overview else ()
        return language_name(languages[0]) if languages else ""


def _facts(name: str, facts: Overview | None, is_reading: bool) -> str:
    """Return what the library contains, in two or three sentences."""
    what = f"the folder {name!r}" if name else "a folder"
    if facts is None:
        return f"Search {what} of Markdown documents on this machine; nothing is changed."
    if not facts.documents:
        state = "are being read for the first time" if is_reading else "are missing so far"
        return f"Search {what} on this machine; nothing is changed. Its documents {state}."
    languages = " and ".join(map(language_name, facts.languages))
    sentences = [
        f"Search {what} on this machine, {facts.documents:,} Markdown documents"
        f"{f' in {languages}; ask in that language' if languages else ''}. Nothing is changed."
    ]
    if len(facts.collections) > 1:
        sentences.append(f"Collections, with which paths begin: {_listed(facts.collections, '')}.")
    elif facts.folders:
        sentences.append(f"Folders: {_listed(facts.folders, '/')}.")
    if is_reading:
        sentences.append("Files are still being read.")
    if facts.pending:
        sentences.append(
            f"{facts.pending:,} of {facts.passages:,} passages are still to be embedded and are found by keywords only."
        )
    if facts.reranker:
        sentences.append("rerank=true makes the order more precise.")
    return " ".join(sentences)


def _listed(counts: Mapping[str, int], suffix: str) -> str:
    """Return names with their number of documents, most first, as many as fit."""
    ordered = sorted(counts.items(), key=lambda item: -item[1])
    shown: list[str] = []
    for name, count in ordered:
        if not _plain(name):
            continue
        entry = f"{name}{suffix} ({count:,})"
        if not fits(", ".join([*shown, entry]), MAX_NAMES_TOKENS):
            break
        shown.append(entry)
    more = len(counts) - len(shown)
    return ", ".join([*shown, *([f"and {more} more"] if more else [])])


def _plain(name: str) -> str:
    """Return a name that can stand in instructions; empty for one with control characters or the length of a sentence."""
    return name if len(name) <= MAX_NAME and one_line(name) == name else ""


NAME = "marklight"
CACHE: Mapping[CacheableMethod, CacheHint] = {
    "tools/list": CacheHint(ttl_ms=3_600_000),
    "prompts/list": CacheHint(ttl_ms=3_600_000),
    "resources/templates/list": CacheHint(ttl_ms=3_600_000),
}
"""Lists that do not change while the server runs."""


class LibraryServer(Server[Notifications]):
    """The SDK's server; declares on every transport that the list of resources can change."""

    def create_initialization_options(self, *_: Any, **__: Any) -> InitializationOptions:
        """Return the options; the SDK's own transports call this without arguments."""
        return super().create_initialization_options(NotificationOptions(resources_changed=True))


def make_server(host: LibraryHost) -> LibraryServer:
    """Create the MCP server of a library."""
    introduction = Introduction(host)
    tools, resources, prompts = (
        ToolHandler(host, introduction),
        ResourceHandler(host),
        PromptHandler(host),
    )

    @asynccontextmanager
    async def lifespan(_: Server[Notifications]) -> AsyncIterator[Notifications]:
        async with Notifications(host).open() as notifications:
            yield notifications

    server = LibraryServer(
        NAME,
        **_identity(),
        instructions=introduction.text(),
        lifespan=lifespan,
        cache_hints=CACHE,
        get_tool_input_schema=tools.input_schema,
        on_list_tools=tools.list,
        on_call_tool=tools.call,
        on_list_resources=resources.list,
        on_list_resource_templates=resources.templates,
        on_read_resource=resources.read,
        on_subscribe_resource=_of_connection("subscribe"),
        on_unsubscribe_resource=_of_connection("unsubscribe"),
        on_subscriptions_listen=_of_connection("streams"),
        on_list_prompts=prompts.list,
        on_get_prompt=prompts.get,
        on_completion=prompts.complete,
    )
    server.add_notification_handler(
        "notifications/initialized", types.NotificationParams, _of_connection("initialized")
    )
    # In place of tracing spans, which are not exported.
    server.middleware[:] = [introduction.middleware]
    return server


def _identity() -> dict[str, Any]:
    """Return name, version and website from the package's metadata."""
    about = metadata.metadata("marklight")
    links = dict(link.split(", ", 1) for link in about.get_all("Project-URL") or ())
    return {
        "version": about["Version"],
        "title": "Marklight",
        "description": about["Summary"],
        "website_url": links.get("Homepage"),
    }


def _of_connection(method: str) -> Callable[..., Awaitable[Any]]:
    """Return a handler that calls a method of `Notifications`, which belongs to the transport of a request."""

    async def handle(ctx: ServerRequestContext[Notifications], params: Any) -> Any:
        return await getattr(ctx.lifespan_context, method)(ctx, params)

    return handle


EXIT_SECONDS = 2.0
"""Time limit for indexing to stop; committed work is kept in any case."""


def serve_stdio(library: Library) -> int:
    """Serve until the client closes standard input or a signal arrives."""
    # Critical messages only: many clients show every line of standard error as an error.
    logging.basicConfig(level=logging.CRITICAL, stream=sys.stderr)
    on_termination(_exit)
    anyio.run(_serve, library)
    return 0


async def _serve(library: Library) -> None:
    host = LibraryHost(library)
    async with host.open():
        async with stdio_server() as (read, write):
            try:
                await serve_streams(make_server(host), read, write)
            except anyio.get_cancelled_exc_class():
                # The client is gone; the thread that reads standard input cannot be woken.
                os._exit(0)
        # An abandoned search or an indexing batch must not keep the process alive.
        _exit_soon()


async def serve_streams(server: LibraryServer, read: Any, write: Any) -> None:
    """Serve one client on a pair of message streams, in the protocol version of its first request."""
    valid, incoming = anyio.create_memory_object_stream[SessionMessage](0)

    async def answer_invalid() -> None:
        # The SDK drops invalid messages, and their sender would wait for an answer forever.
        async with valid:
            async for message in read:
                if isinstance(message, SessionMessage):
                    await valid.send(message)
                elif error := invalid_message_error(message):
                    await write.send(SessionMessage(error))

    async with anyio.create_task_group() as group:
        group.start_soon(answer_invalid)
        outgoing: Any = EscapedMessages(write)
        await server.run(incoming, outgoing, server.create_initialization_options())
        group.cancel_scope.cancel()


class EscapedMessages:
    """A stream of messages whose JSON contains no terminal control characters.

    The SDK encodes a message with its method `model_dump_json`, which is replaced here.
    """

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    async def send(self, item: SessionMessage) -> None:
        """Send a message."""
        message: Any = _Escaped(item.message)
        await self._stream.send(replace(item, message=message))

    async def aclose(self) -> None:
        """Close the wrapped stream."""
        await self._stream.aclose()

    async def __aenter__(self) -> EscapedMessages:
        await self._stream.__aenter__()
        return self

    async def __aexit__(self, *raised: Any) -> None:
        await self._stream.__aexit__(*raised)


class _Escaped:
    def __init__(self, message: types.JSONRPCMessage) -> None:
        self._message = message

    def model_dump_json(self, **options: Any) -> str:
        return escape_json(self._message.model_dump_json(**options))


def invalid_message_error(error: Exception) -> types.JSONRPCError | None:
    """Return the answer to a line that is not a valid message; None for a notification."""
    details = error.errors(include_url=False) if isinstance(error, ValidationError) else []
    code, text, id = types.PARSE_ERROR, "Not valid JSON", None
    message: object = next((detail["input"] for detail in details), None)
    # A string is the whole line: Python parses some that the SDK rejects, such as a lone surrogate.
    with suppress(ValueError, RecursionError):
        message = json.loads(message) if isinstance(message, str) else message
        code, text = types.INVALID_REQUEST, "Not a valid JSON-RPC message"
        if isinstance(message, dict):
            if "id" not in message:
                return None
            id = message["id"] if _is_id(message["id"]) else None
    return types.JSONRPCError(jsonrpc="2.0", id=id, error=types.ErrorData(code=code, message=text))


def _is_id(value: object) -> bool:
    """Return true for an id that can be sent back; a lone surrogate cannot be encoded."""
    if isinstance(value, str):
        with suppress(UnicodeEncodeError):
            value.encode()
            return True
    return isinstance(value, int)


def _exit(number: int, _: Any) -> None:
    # The thread that reads standard input cannot be woken, so there is nothing to wait for.
    os._exit(128 + number)


def _exit_soon() -> None:
    timer = Timer(EXIT_SECONDS, os._exit, [0])
    timer.daemon = True
    timer.start()
