"""MCP resources: documents listed a page at a time and read by their URI, subscriptions to changes, and the progress of calls."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager, suppress
from dataclasses import field
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote

import anyio
import anyio.from_thread
import mcp_types as types
from mcp.server.subscriptions import (
    InMemorySubscriptionBus,
    ListenHandler,
    ResourcesListChanged,
    ResourceUpdated,
)
from mcp.shared.exceptions import MCPError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from marklight.errors import MarklightError, NotFound, UsageError
from marklight.formatting import URI_ROOT, document_uri, one_line, visible
from marklight.lazy import dataclass
from marklight.library.progress import IndexingProgress
from marklight.library.watching import Watcher
from marklight.model import DocumentId
from marklight.ports import Progress, no_progress
from marklight.report import Report
from marklight.surfaces.host import LibraryHost
from marklight.surfaces.mcp.rendering import error_text
from marklight.surfaces.render import report_text

if TYPE_CHECKING:
    from mcp.server.context import ServerRequestContext
    from mcp.server.session import ServerSession


URI_TEMPLATE = f"{URI_ROOT}{{path}}"
MAX_URI_LENGTH = 20_000
"""A path has at most 4,096 bytes, each at most three characters when percent-encoded."""
MARKDOWN = "text/markdown"
PAGE_SIZE = 100
RESOURCE_NOT_FOUND = -32002
"""Error code up to protocol version 2025-11-25; later versions use INVALID_PARAMS."""


def fully_encoded_uri(id: DocumentId, several_collections: bool) -> str:
    """Return the URI as clients write it that expand the template by RFC 6570: with encoded slashes."""
    return URI_ROOT + quote(id.named(several_collections), safe="", errors="replace")


def parse_uri(uri: str, collections: Collection[str]) -> tuple[DocumentId, str]:
    """Return the document ID and the heading of a URI; the document need not exist."""
    if not uri.startswith(URI_ROOT) or len(uri) > MAX_URI_LENGTH:
        raise NotFound(f"Not a document URI: {uri[:100]!r}", f"URIs have the form {URI_TEMPLATE}")
    path, _, fragment = uri.removeprefix(URI_ROOT).partition("#")
    path, fragment = unquote(path), unquote(fragment)
    if len(collections) == 1:
        return DocumentId(next(iter(collections)), path), fragment
    for name in sorted(collections, key=len, reverse=True):
        if path.startswith(f"{name}/"):
            return DocumentId(name, path.removeprefix(f"{name}/")), fragment
    raise NotFound(
        f"No such collection: {path[:100]!r}", f"Begin with one of: {', '.join(collections)}"
    )


class ResourceHandler:
    """Handles resource requests for one library."""

    def __init__(self, host: LibraryHost) -> None:
        self.host = host

    async def list(
        self, ctx: ServerRequestContext[Any], params: types.PaginatedRequestParams | None
    ) -> types.ListResourcesResult:
        """Return a page of documents; the cursor is that of the library."""
        after = params.cursor if params and params.cursor else ""
        page = await self._call(ctx, "documents", {"after": after, "limit": PAGE_SIZE})
        resources = [
            types.Resource(
                uri=document_uri(
                    DocumentId(document["collection"], document["path"]),
                    self.host.several_collections,
                ),
                name=one_line(document["path"]),
                mime_type=MARKDOWN,
                size=document["size"],
                annotations=types.Annotations(last_modified=document["modified"]),
            )
            for document in page["documents"]
        ]
        return types.ListResourcesResult(resources=resources, next_cursor=page["next"])

    async def templates(
        self, ctx: ServerRequestContext[Any], params: types.PaginatedRequestParams | None
    ) -> types.ListResourceTemplatesResult:
        """Return the only URI template."""
        prefix = ", which begins with its collection" if self.host.several_collections else ""
        document = types.ResourceTemplate(
            name="document",
            title="A document",
            uri_template=URI_TEMPLATE,
            description=f"The text of a document, by its path{prefix}.",
            mime_type=MARKDOWN,
        )
        return types.ListResourceTemplatesResult(resource_templates=[document])

    async def read(
        self, ctx: ServerRequestContext[Any], params: types.ReadResourceRequestParams
    ) -> types.ReadResourceResult:
        """Return the whole document, or the section that the URI's fragment names.

        The text is not quoted, because the field contains nothing else; invisible characters are made visible.
        """
        id, fragment = self._parse_uri(ctx, str(params.uri))
        ref = f"{id.path}#{fragment}" if fragment else id.path
        extract = await self._call(ctx, "get", {"ref": ref, "collection": id.collection})
        contents = types.TextResourceContents(
            uri=str(params.uri), mime_type=MARKDOWN, text=visible(extract["content"])
        )
        return types.ReadResourceResult(contents=[contents])

    def _parse_uri(self, ctx: ServerRequestContext[Any], uri: str) -> tuple[DocumentId, str]:
        try:
            return parse_uri(uri, self.host.library.collections)
        except MarklightError as error:
            raise self._protocol_error(ctx, error) from error

    async def _call(
        self, ctx: ServerRequestContext[Any], operation: str, arguments: dict[str, Any]
    ) -> dict[str, Any]:
        try:
            return await self.host.call(operation, arguments)
        except MarklightError as error:
            raise self._protocol_error(ctx, error) from error

    def _protocol_error(self, ctx: ServerRequestContext[Any], error: MarklightError) -> MCPError:
        code = types.INTERNAL_ERROR
        if isinstance(error, UsageError):
            code = types.INVALID_PARAMS
        elif isinstance(error, NotFound):
            modern = ctx.protocol_version in MODERN_PROTOCOL_VERSIONS
            code = types.INVALID_PARAMS if modern else RESOURCE_NOT_FOUND
        return MCPError(code, error_text(error, self.host.watcher))


MAX_CLIENTS = 1000
"""Clients with subscriptions; beyond that the oldest are dropped."""
MAX_SUBSCRIPTIONS = 1000
"""Per client."""
SEND_SECONDS = 1.0
"""Time limit to notify a client: one that does not read must not delay the others."""
PROGRESS_SECONDS = 0.2
"""Interval of progress notifications; indexing reports a thousand times a second."""
LOGGED_LEVELS: tuple[types.LoggingLevel | None, ...] = ("debug", "info")
"""Log levels at which a client gets the reports of indexing."""


@dataclass(slots=True)
class Subscriber:
    """A client that began with a handshake, with its subscriptions."""

    session: ServerSession
    documents: dict[DocumentId, str] = field(default_factory=dict)
    """Subscribed documents, each with the URI as the client wrote it."""
    level: types.LoggingLevel | None = None
    """Log level; None sends no log messages."""


class Notifications:
    """Publishes the changes of one library to the clients of one transport."""

    def __init__(self, host: LibraryHost) -> None:
        self.host = host
        self.bus = InMemorySubscriptionBus()
        self.streams = ListenHandler(self.bus)
        self.clients: OrderedDict[str, Subscriber] = OrderedDict()

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Notifications]:
        """Publish reports of the indexing thread until the context ends."""
        send, receive = anyio.create_memory_object_stream[Report](100)

        async with anyio.from_thread.BlockingPortal() as portal, anyio.create_task_group() as group:

            def queue(report: Report) -> None:
                # A report may be dropped: the next one makes clients read again as well.
                with suppress(anyio.WouldBlock, anyio.ClosedResourceError):
                    send.send_nowait(report)

            def on_report(report: Report) -> None:
                with suppress(RuntimeError):  # the event loop has ended
                    portal.start_task_soon(queue, report)

            async def publish_all() -> None:
                async for report in receive:
                    await self.publish(report)

            group.start_soon(publish_all)
            self.host.watcher.listeners.append(on_report)
            try:
                yield self
            finally:
                self.host.watcher.listeners.remove(on_report)
                self.streams.close()
                group.cancel_scope.cancel()
                send.close()
                receive.close()

    async def publish(self, report: Report) -> None:
        """Notify every client of the changes it subscribed to."""
        several = self.host.several_collections
        moved = [id for pair in report.moved for id in pair]
        changed = [*report.changed, *report.removed, *moved]
        for id in changed:
            for uri in {document_uri(id, several), fully_encoded_uri(id, several)}:
                await self.bus.publish(ResourceUpdated(uri))
        list_changed = bool(report.added or report.removed or report.moved)
        if list_changed:
            await self.bus.publish(ResourcesListChanged())
        for client in list(self.clients.values()):
            with anyio.move_on_after(SEND_SECONDS):
                for id in changed:
                    if id in client.documents:
                        await client.session.send_resource_updated(client.documents[id])
                if list_changed:
                    await client.session.send_resource_list_changed()
                if client.level in LOGGED_LEVELS:
                    await client.session.send_notification(_log_message(report))

    async def initialized(
        self, ctx: ServerRequestContext[Notifications], params: types.NotificationParams | None
    ) -> None:
        """Register a client after its handshake."""
        self._client(ctx)

    async def subscribe(
        self, ctx: ServerRequestContext[Notifications], params: types.SubscribeRequestParams
    ) -> types.EmptyResult:
        """Subscribe the client to a document."""
        uri = str(params.uri)
        documents = self._client(ctx).documents
        if len(documents) >= MAX_SUBSCRIPTIONS:
            raise MCPError(
                types.INVALID_PARAMS, f"Too many subscriptions: at most {MAX_SUBSCRIPTIONS}"
            )
        documents[self._document(uri)] = uri
        return types.EmptyResult()

    async def unsubscribe(
        self, ctx: ServerRequestContext[Notifications], params: types.UnsubscribeRequestParams
    ) -> types.EmptyResult:
        """Remove a subscription of the client."""
        self._client(ctx).documents.pop(self._document(str(params.uri)), None)
        return types.EmptyResult()

    async def set_level(
        self, ctx: ServerRequestContext[Notifications], params: types.SetLevelRequestParams
    ) -> types.EmptyResult:
        """Set the log level of the client."""
        self._client(ctx).level = params.level
        return types.EmptyResult()

    def _client(self, ctx: ServerRequestContext[Any]) -> Subscriber:
        # Standard streams have one client; over HTTP each has a session ID.
        session_id = ctx.request.headers.get("mcp-session-id", "") if ctx.request else ""
        if session_id not in self.clients:
            self.clients[session_id] = Subscriber(ctx.session)
            while len(self.clients) > MAX_CLIENTS:
                self.clients.popitem(last=False)
        return self.clients[session_id]

    def _document(self, uri: str) -> DocumentId:
        try:
            return parse_uri(uri, self.host.library.collections)[0]
        except NotFound as error:
            raise MCPError(types.INVALID_PARAMS, str(error)) from error


def _log_message(report: Report) -> types.LoggingMessageNotification:
    summary = report_text(report).splitlines()[0]
    params = types.LoggingMessageNotificationParams(level="info", logger="index", data=summary)
    return types.LoggingMessageNotification(params=params)


class _Phases:
    """Adds consecutive phases up to one progress value that only grows, as the protocol requires."""

    def __init__(self) -> None:
        self.last: IndexingProgress | None = None
        self.finished = 0

    def add(self, at: IndexingProgress) -> tuple[int, int]:
        """Return the progress and the total of all phases so far."""
        if self.last and (at.phase != self.last.phase or at.done < self.last.done):
            self.finished += max(self.last.done, self.last.total)
        self.last = at
        return self.finished + at.done, self.finished + max(at.total, at.done)


@asynccontextmanager
async def report_progress(
    ctx: ServerRequestContext[Any], watcher: Watcher
) -> AsyncIterator[Progress]:
    """Yield a progress callback for any thread; notify the client at intervals if it sent a progress token.

    Until the call itself reports progress, that of indexing in the background is sent.
    """
    if (ctx.meta or {}).get("progress_token") is None:
        yield no_progress
        return
    latest: list[IndexingProgress] = []

    def on_progress(phase: str, done: int, total: int) -> None:
        latest[:] = [IndexingProgress(phase, done, total)]

    phases, sent = _Phases(), -1

    async def send() -> None:
        nonlocal sent
        at = latest[0] if latest else watcher.progress
        if at is None:
            return
        done, total = phases.add(at)
        if done > sent:
            sent = done
            await ctx.session.report_progress(done, total, str(at))

    async def send_at_intervals() -> None:
        while True:
            await send()
            await anyio.sleep(PROGRESS_SECONDS)

    async with anyio.create_task_group() as group:
        group.start_soon(send_at_intervals)
        failure: Exception | None = None
        try:
            yield on_progress
        except Exception as error:
            failure = error  # the task group would wrap it in an exception group
        group.cancel_scope.cancel()
    if failure:
        raise failure
    if latest:
        await send()  # the final progress, even of a fast call
