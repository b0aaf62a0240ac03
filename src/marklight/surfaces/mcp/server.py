"""One server for every transport and both eras of the protocol: tools, resources, prompts, completions."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
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
from marklight.surfaces.mcp.calling import Calling
from marklight.surfaces.mcp.completions import Completions
from marklight.surfaces.mcp.news import News
from marklight.surfaces.mcp.prompts import Prompts
from marklight.surfaces.mcp.resources import Resources
from marklight.surfaces.mcp.wording import QUOTED

NAME = "marklight"
INSTRUCTIONS = f"""\
Search in a folder of Markdown documents on this machine. Nothing is written, nothing leaves the machine.

1. query_documents first, in plain words, as a person would ask: "how do tokens expire", not keywords alone. \
Names, error messages and code are found to the letter; quotes ask for a phrase. Each passage comes as \
[1] path:first-last § headings (score). The score is how likely the passage answers, 0 to 1: 0.8 is good, below \
0.3 is doubtful. When nothing answers, that is said; believe it, or ask in other words.
2. search_with_hypothesis when that finds little: write two or three sentences as the documents might have them.
3. outline of a document that matters, to see its sections and their lines.
4. get_document with a ref to read more: path#anchor for a section, path:120-160 for lines, path for all. A long \
answer is cut at a line and says with which ref to go on. Read before you rely on a passage.
5. related_documents for what belongs to a document by links, tags and meaning; search_git_history for when, by \
whom and why something was changed, where the documents are kept in git.

Narrow a search with path ("guide/**"), tags, where (frontmatter), after and before; leave out what you have \
read with excluded_files. max_tokens bounds each answer (2000).

The files are followed: what was just edited is found. "indexing, 42 %" means that an answer comes from what is \
there so far; ask again later. Lines that begin with "note:" tell what was left out or is not as it should be. \
index_status tells all about it.

Name your sources as path:lines. {QUOTED}"""

CACHE: Mapping[CacheableMethod, CacheHint] = {
    "tools/list": CacheHint(ttl_ms=3_600_000),
    "prompts/list": CacheHint(ttl_ms=3_600_000),
    "resources/templates/list": CacheHint(ttl_ms=3_600_000),
}
"""What does not change while a server runs need not be asked for twice."""


class LibraryServer(Server[News]):
    """The SDK's server, which says on every transport that the list of resources may change."""

    def create_initialization_options(
        self,
        notification_options: NotificationOptions | None = None,
        experimental_capabilities: dict[str, dict[str, Any]] | None = None,
        extensions: dict[str, dict[str, Any]] | None = None,
    ) -> InitializationOptions:
        """Transports that the SDK drives itself ask for these without options."""
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
        """Where levels cannot be set there are no messages either."""
        found = super().get_capabilities(
            notification_options,
            experimental_capabilities,
            extensions,
            protocol_version=protocol_version,
        )
        if protocol_version in MODERN_PROTOCOL_VERSIONS:
            found.logging = None
        return found


def make_server(host: LibraryHost) -> LibraryServer:
    """Everything that an assistant can ask of this library."""
    calling, resources = Calling(host), Resources(host)
    prompts, completions = Prompts(host), Completions(host)

    @asynccontextmanager
    async def lifespan(_: Server[News]) -> AsyncIterator[News]:
        async with News(host).open() as news:
            yield news

    server = LibraryServer(
        NAME,
        **_identity(),
        instructions=INSTRUCTIONS,
        lifespan=lifespan,
        cache_hints=CACHE,
        get_tool_input_schema=calling.schema,
        on_list_tools=calling.list,
        on_call_tool=calling.call,
        on_list_resources=resources.list,
        on_list_resource_templates=resources.templates,
        on_read_resource=resources.read,
        on_subscribe_resource=_subscribe,
        on_unsubscribe_resource=_unsubscribe,
        on_subscriptions_listen=_listen,
        on_list_prompts=prompts.list,
        on_get_prompt=prompts.get,
        on_completion=completions.complete,
    )
    server.add_notification_handler("notifications/initialized", types.NotificationParams, _arrived)
    # Not given above: the SDK warns that later versions of the protocol have done away with it.
    server.add_request_handler("logging/setLevel", types.SetLevelRequestParams, _set_level)
    server.middleware.clear()  # spans that nobody exports
    return server


def _identity() -> dict[str, Any]:
    """Who this is, from the package's own metadata."""
    about = metadata.metadata("marklight")
    links = dict(each.split(", ", 1) for each in about.get_all("Project-URL") or ())
    return {
        "version": about["Version"],
        "title": "Marklight",
        "description": about["Summary"],
        "website_url": links.get("Homepage"),
    }


# News belongs to the transport that a request came by, not to the server.


async def _subscribe(
    ctx: ServerRequestContext[News], params: types.SubscribeRequestParams
) -> types.EmptyResult:
    return await ctx.lifespan_context.subscribe(ctx, params)


async def _unsubscribe(
    ctx: ServerRequestContext[News], params: types.UnsubscribeRequestParams
) -> types.EmptyResult:
    return await ctx.lifespan_context.unsubscribe(ctx, params)


async def _set_level(
    ctx: ServerRequestContext[News], params: types.SetLevelRequestParams
) -> types.EmptyResult:
    return await ctx.lifespan_context.set_level(ctx, params)


async def _listen(
    ctx: ServerRequestContext[News], params: types.SubscriptionsListenRequestParams
) -> types.SubscriptionsListenResult:
    return await ctx.lifespan_context.streams(ctx, params)


async def _arrived(ctx: ServerRequestContext[News], params: types.NotificationParams) -> None:
    await ctx.lifespan_context.arrived(ctx, params)
