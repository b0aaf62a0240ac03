"""What changed on the disk, told to those who asked: by a subscription, or by a stream they listen to."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

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

from marklight.errors import NotFound
from marklight.model import DocumentId
from marklight.report import Report
from marklight.surfaces.host import LibraryHost
from marklight.surfaces.mcp.addresses import address, other_address, read_address
from marklight.surfaces.render import report_text

if TYPE_CHECKING:
    from mcp.server.context import ServerRequestContext
    from mcp.server.session import ServerSession

MOST_CLIENTS = 1000
"""Who are told of changes without a stream of their own; those who came first are forgotten first."""
MOST_SUBSCRIPTIONS = 1000
"""Of one client."""
SEND_SECONDS = 1.0
"""How long a client may take to hear; one that does not read must not keep the others waiting."""


TOLD: tuple[types.LoggingLevel | None, ...] = ("debug", "info")
"""Levels that what a run did is told at."""


@dataclass(slots=True)
class Client:
    """One that began with a handshake: notifications go to it without a request."""

    session: ServerSession
    documents: dict[DocumentId, str] = field(default_factory=dict)
    """What it subscribed to, each with the address as it wrote it."""
    level: types.LoggingLevel | None = None
    """From which level on it wants to be told what happens; None: nothing."""


class News:
    """Changes of one library, as long as one transport serves it."""

    def __init__(self, host: LibraryHost) -> None:
        self.host = host
        self.bus = InMemorySubscriptionBus()
        self.streams = ListenHandler(self.bus)
        self.clients: OrderedDict[str, Client] = OrderedDict()

    @asynccontextmanager
    async def open(self) -> AsyncIterator[News]:
        """Hear what the thread that follows the disk has to say."""
        send, receive = anyio.create_memory_object_stream[Report](100)

        async with anyio.from_thread.BlockingPortal() as portal, anyio.create_task_group() as group:

            def put(report: Report) -> None:
                # Whoever misses one of a hundred at once hears of the next: each says only "look again".
                with suppress(anyio.WouldBlock, anyio.ClosedResourceError):
                    send.send_nowait(report)

            def hear(report: Report) -> None:
                with suppress(RuntimeError):  # nobody is served any more
                    portal.start_task_soon(put, report)

            async def tell() -> None:
                async for report in receive:
                    await self.publish(report)

            group.start_soon(tell)
            self.host.watcher.listeners.append(hear)
            try:
                yield self
            finally:
                self.host.watcher.listeners.remove(hear)
                self.streams.close()
                group.cancel_scope.cancel()
                send.close()
                receive.close()

    async def publish(self, report: Report) -> None:
        """Tell everyone what concerns them."""
        moved = [id for pair in report.moved for id in pair]
        touched = [*report.changed, *report.removed, *moved]
        for id in touched:
            for uri in {
                address(id, self.host.several_collections),
                other_address(id, self.host.several_collections),
            }:
                await self.bus.publish(ResourceUpdated(uri))
        listed = bool(report.added or report.removed or report.moved)
        if listed:
            await self.bus.publish(ResourcesListChanged())
        for client in list(self.clients.values()):
            with anyio.move_on_after(SEND_SECONDS):
                for id in touched:
                    if id in client.documents:
                        await client.session.send_resource_updated(client.documents[id])
                if listed:
                    await client.session.send_resource_list_changed()
                if client.level in TOLD:
                    await client.session.send_notification(_said(report))

    # What the server calls

    async def arrived(
        self, ctx: ServerRequestContext[News], params: types.NotificationParams | None
    ) -> None:
        """A client has shaken hands."""
        self._client(ctx)

    async def subscribe(
        self, ctx: ServerRequestContext[News], params: types.SubscribeRequestParams
    ) -> types.EmptyResult:
        """Tell this client when this document changes."""
        uri = str(params.uri)
        documents = self._client(ctx).documents
        if len(documents) >= MOST_SUBSCRIPTIONS:
            raise MCPError(types.INVALID_PARAMS, f"more than {MOST_SUBSCRIPTIONS} subscriptions")
        documents[self._document(uri)] = uri
        return types.EmptyResult()

    async def unsubscribe(
        self, ctx: ServerRequestContext[News], params: types.UnsubscribeRequestParams
    ) -> types.EmptyResult:
        """No longer."""
        self._client(ctx).documents.pop(self._document(str(params.uri)), None)
        return types.EmptyResult()

    async def set_level(
        self, ctx: ServerRequestContext[News], params: types.SetLevelRequestParams
    ) -> types.EmptyResult:
        """Tell this client what a run did, from this level on."""
        self._client(ctx).level = params.level
        return types.EmptyResult()

    def _client(self, ctx: ServerRequestContext[Any]) -> Client:
        # One pipe is one client; over HTTP each names its session.
        name = ctx.request.headers.get("mcp-session-id", "") if ctx.request else ""
        if name not in self.clients:
            self.clients[name] = Client(ctx.session)
            while len(self.clients) > MOST_CLIENTS:
                self.clients.popitem(last=False)
        return self.clients[name]

    def _document(self, uri: str) -> DocumentId:
        try:
            return read_address(uri, self.host.library.collections)[0]
        except NotFound as error:
            raise MCPError(types.INVALID_PARAMS, str(error)) from error


def _said(report: Report) -> types.LoggingMessageNotification:
    did = report_text(report).splitlines()[0]
    params = types.LoggingMessageNotificationParams(level="info", logger="index", data=did)
    return types.LoggingMessageNotification(params=params)
