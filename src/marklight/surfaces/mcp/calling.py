"""Calls of tools: strict in what they take, told as text and as values, errors as text that helps."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import mcp_types as types
from mcp.shared.exceptions import MCPError

from marklight.errors import MarklightError
from marklight.surfaces.host import LibraryHost
from marklight.surfaces.mcp import telling
from marklight.surfaces.mcp.progress import reported
from marklight.surfaces.mcp.tools import Tool, tools_for
from marklight.surfaces.mcp.wording import error_text, state
from marklight.surfaces.parameters import suggest

if TYPE_CHECKING:
    from mcp.server.context import ServerRequestContext

log = logging.getLogger(__name__)

ANNOTATIONS = types.ToolAnnotations(
    read_only_hint=True, destructive_hint=False, idempotent_hint=True, open_world_hint=False
)


class Calling:
    """The tools of one library, listed and called."""

    def __init__(self, host: LibraryHost) -> None:
        self.host = host

    @property
    def tools(self) -> Mapping[str, Tool]:
        """By name."""
        return tools_for(self.host.several_collections)

    async def list(
        self, ctx: ServerRequestContext[Any], params: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        """All on one page: they are few."""
        return types.ListToolsResult(tools=[_described(tool) for tool in self.tools.values()])

    def schema(self, name: str) -> Mapping[str, Any] | None:
        """Of what a tool is called with."""
        tool = self.tools.get(name)
        return tool.schema if tool else None

    async def call(
        self, ctx: ServerRequestContext[Any], params: types.CallToolRequestParams
    ) -> types.CallToolResult:
        """One call; whatever goes wrong within it is told to the model."""
        tools = self.tools
        tool = tools.get(params.name)
        if tool is None:
            raise MCPError(
                types.INVALID_PARAMS,
                f"there is no tool {params.name[:100]!r}. {suggest(params.name, tools)}",
            )
        try:
            values = tool.read(params.arguments or {})
            async with reported(ctx, self.host.watcher) as progress:
                found = await self.host.call(tool.operation, tool.asked(values), progress)
        except MarklightError as error:
            return _failed(error_text(error, self.host.watcher))
        except Exception as error:
            log.exception("the tool %s failed", tool.name)
            return _failed(f"unexpected {type(error).__name__}: this is a fault in Marklight")
        return self._told(tool, values, found)

    def _told(
        self, tool: Tool, values: Mapping[str, Any], found: dict[str, Any]
    ) -> types.CallToolResult:
        several = self.host.several_collections
        now, tokens = state(self.host.watcher), values.get("max_tokens", telling.MOST_TOKENS)
        if tool.operation == "search":
            text = telling.search_text(
                found, several, now, tokens, values.get("top_n", telling.MOST_PASSAGES)
            )
        elif tool.operation == "commits":
            text = telling.commits_text(found, tokens)
        elif tool.operation == "get":
            found = telling.extract_of(found, several, tokens)
            text = telling.extract_text(found, several)
        elif tool.operation == "outline":
            text = telling.outline_text(found, several)
        elif tool.operation == "related":
            text = telling.related_text(found, several)
        else:
            text = telling.status_text(found, now, self.host.watcher.watching)
        content = [types.TextContent(text=text)]
        return types.CallToolResult(content=[*content], structured_content=found)


def _described(tool: Tool) -> types.Tool:
    return types.Tool(
        name=tool.name,
        title=tool.title,
        description=tool.description,
        input_schema=tool.schema,
        output_schema=tool.answer,
        annotations=ANNOTATIONS,
    )


def _failed(text: str) -> types.CallToolResult:
    return types.CallToolResult(content=[types.TextContent(text=text)], is_error=True)
