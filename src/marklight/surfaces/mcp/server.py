"""The MCP server for all transports and protocol versions: tools, resources, prompts, completions."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from importlib import metadata
from typing import Any

import mcp_types as types
from mcp.server.caching import CacheableMethod, CacheHint
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel.server import NotificationOptions, Server
from mcp.server.models import InitializationOptions
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from marklight.surfaces.host import LibraryHost
from marklight.surfaces.mcp.introduction import Introduction
from marklight.surfaces.mcp.notifications import Notifications
from marklight.surfaces.mcp.prompts import CompletionHandler, PromptHandler
from marklight.surfaces.mcp.resources import ResourceHandler
from marklight.surfaces.mcp.tools import ToolHandler

NAME = "marklight"
CACHE: Mapping[CacheableMethod, CacheHint] = {
    "tools/list": CacheHint(ttl_ms=3_600_000),
    "prompts/list": CacheHint(ttl_ms=3_600_000),
    "resources/templates/list": CacheHint(ttl_ms=3_600_000),
}
"""Lists that do not change while the server runs."""


class LibraryServer(Server[Notifications]):
    """The SDK's server; declares on every transport that the list of resources can change."""

    def create_initialization_options(
        self,
        notification_options: NotificationOptions | None = None,
        experimental_capabilities: dict[str, dict[str, Any]] | None = None,
        extensions: dict[str, dict[str, Any]] | None = None,
    ) -> InitializationOptions:
        """Return the options; the SDK's own transports call this without arguments."""
        return super().create_initialization_options(
            notification_options or NotificationOptions(resources_changed=True),
            experimental_capabilities,
            extensions,
        )

    def get_capabilities(
        self,
        notification_options: NotificationOptions | None = None,
        experimental_capabilities: dict[str, dict[str, Any]] | None = None,
        extensions: dict[str, dict[str, Any]] | None = None,
        *,
        protocol_version: str | None = None,
    ) -> types.ServerCapabilities:
        """Return the capabilities; protocol versions without log levels get no log messages."""
        capabilities = super().get_capabilities(
            notification_options,
            experimental_capabilities,
            extensions,
            protocol_version=protocol_version,
        )
        if protocol_version in MODERN_PROTOCOL_VERSIONS:
            capabilities.logging = None
        return capabilities


def make_server(host: LibraryHost) -> LibraryServer:
    """Create the MCP server of a library."""
    introduction = Introduction(host)
    tools, resources = ToolHandler(host, introduction), ResourceHandler(host)
    prompts, completions = PromptHandler(host), CompletionHandler(host)

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
        on_completion=completions.complete,
    )
    server.add_notification_handler(
        "notifications/initialized", types.NotificationParams, _of_connection("initialized")
    )
    # Not an argument above: the SDK would warn that later protocol versions removed it.
    server.add_request_handler(
        "logging/setLevel", types.SetLevelRequestParams, _of_connection("set_level")
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
