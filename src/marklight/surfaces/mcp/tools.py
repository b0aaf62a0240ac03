"""MCP tools: names, parameters and descriptions, and the calls of library operations behind them."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import mcp_types as types
from mcp.shared.exceptions import MCPError

from marklight.errors import MarklightError
from marklight.surfaces import schemas
from marklight.surfaces.host import LibraryHost
from marklight.surfaces.mcp import rendering
from marklight.surfaces.mcp.notifications import report_progress
from marklight.surfaces.mcp.rendering import DEFAULT_TOKENS, QUOTED
from marklight.surfaces.parameters import (
    MODES,
    Parameter,
    boolean,
    integer,
    json_schema,
    mapping,
    number,
    parse,
    string,
    strings,
    suggest,
)

if TYPE_CHECKING:
    from mcp.server.context import ServerRequestContext

log = logging.getLogger(__name__)

ANNOTATIONS = types.ToolAnnotations(
    read_only_hint=True, destructive_hint=False, idempotent_hint=True, open_world_hint=False
)
OPERATION_NAMES = {
    "top_n": "limit",
    "min_score": "min_confidence",
    "tags": "tag",
    "excluded_files": "exclude",
    "file_pattern": "files",
    "changed_since": "after",
}
"""Tool parameters whose operation parameter has another name."""
LIST_PAGE = 40
"""Documents on a page of a list: with lines of usual length they fit the default token budget."""
STAGE_SETTINGS = {
    "max_chunks_per_document": ("per_document", "max_passages"),
    "similarity_threshold": ("semantic_duplicates", "cosine"),
}
"""Tool parameters that set a search stage for one call."""

QUERY = string(
    "query", "What to search for, in plain language; put exact phrases in quotes.", required=True
)
HYPOTHESIS = string(
    "hypothesis",
    "A short passage, written as the documents might phrase the answer.",
    required=True,
)
TOP_N = integer("top_n", "Maximum number of passages.", 1, 100, default=5)
MIN_SCORE = number("min_score", "Minimum score; 0 returns all passages.", 0, 1)
FILTERS = (
    strings("path", "Only paths that match one of these globs: guide/** or *.md."),
    strings(
        "tags",
        "Only documents with one of these tags or a subtag, such as release/web for release.",
    ),
    mapping(
        "where",
        "Only documents with these frontmatter values.",
        {"type": "string", "maxLength": 1000},
    ),
    string("after", "Only on or after this date: 2026-01-31 or 2026-01.", maxLength=100),
    string("before", "Only on or before this date.", maxLength=100),
    strings("excluded_files", "Exclude these files or globs, such as files already read."),
)
COLLECTION = strings("collection", "Only documents in these collections.")
MAX_TOKENS = integer(
    "max_tokens", "Maximum size of the answer in tokens.", 1, 1_000_000, default=DEFAULT_TOKENS
)
REF = string(
    "ref",
    "A path or title, path#heading, path:10-40 or a passage ID.",
    required=True,
    maxLength=5000,
)
PATH = string("path", "Path of the document.", required=True, maxLength=5000)


@dataclass(frozen=True, slots=True)
class Tool:
    """An MCP tool, and the operation that it calls."""

    name: str
    title: str
    description: str
    operation: str
    parameters: Sequence[Parameter]
    output_schema: schemas.Schema

    @property
    def input_schema(self) -> dict[str, Any]:
        """Return the JSON Schema of the tool's arguments."""
        return json_schema(self.parameters)

    def parse(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Validate the arguments of a call."""
        return parse(self.parameters, arguments)

    def operation_arguments(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments of the operation for validated arguments of the tool."""
        translated: dict[str, Any] = {}
        stages: dict[str, dict[str, Any]] = {}
        for name, value in arguments.items():
            if name in STAGE_SETTINGS:
                stage, setting = STAGE_SETTINGS[name]
                stages[stage] = {setting: value}
            else:
                translated[OPERATION_NAMES.get(name, name)] = value
        if stages:
            translated["settings"] = {"search": stages}
        if self.operation == "list_documents":
            translated.pop("max_tokens", None)
            translated["limit"] = LIST_PAGE
            if "category" in translated:
                translated["where"] = {"category": translated.pop("category")}
        if self.operation == "search":
            translated.setdefault("query", translated.get("hypothesis"))
        if self.operation in ("search", "commits"):
            translated.setdefault("max_tokens", DEFAULT_TOKENS)
        if self.operation == "get":
            translated.pop("max_tokens", None)
        return translated


@cache
def tools_for(several_collections: bool) -> Mapping[str, Tool]:
    """Return the tools by name; with several collections, searches can be limited to some of them."""
    filters = (*FILTERS, COLLECTION) if several_collections else FILTERS
    tools = (
        Tool(
            "query_documents",
            "Search documents",
            "Search for passages that answer a query, by keywords and by meaning. Returns the best first, each with"
            " its location (path:lines § headings) and the probability that it answers the query (0 to 1)."
            f" Reports when nothing answers the query. {QUOTED}",
            "search",
            (
                QUERY,
                TOP_N,
                MIN_SCORE,
                string("mode", "Retrieval mode.", enum=list(MODES), default="hybrid"),
                *filters,
                integer(
                    "max_chunks_per_document",
                    "Maximum number of passages per document.",
                    1,
                    100,
                    default=2,
                ),
                number(
                    "similarity_threshold",
                    "Cosine similarity at which two passages count as duplicates.",
                    0.01,
                    1,
                ),
                boolean("rerank", "Rerank the best passages with a cross-encoder; slower.", None),
                boolean(
                    "parents",
                    "Return larger passages: each match with its neighbours, up to chunk.parent_chars characters.",
                ),
                MAX_TOKENS,
                boolean("explain", "Explain the score of each passage."),
            ),
            schemas.ANSWER,
        ),
        Tool(
            "list_documents",
            "List documents",
            "List all documents that contain every word of a query, or that match filters, with their number: one line"
            " each with the number of matching passages, the date and the score. Use it for questions such as"
            " everything about X, or what changed since March. get_document reads one.",
            "list_documents",
            (
                string(
                    "query",
                    "Words to search for; without it, all documents that match the filters.",
                ),
                *(each for each in filters if each.name in ("path", "tags", "collection")),
                string(
                    "category", "Only documents of this category (frontmatter).", maxLength=1000
                ),
                string(
                    "changed_since",
                    "Only documents dated on or after this date: 2026-01-31 or 2026-01.",
                    maxLength=100,
                ),
                string(
                    "sort",
                    "Order: relevance, date (newest first) or path.",
                    enum=["relevance", "date", "path"],
                ),
                integer(
                    "page", f"Page of {LIST_PAGE} documents, starting at 1.", 1, 100_000, default=1
                ),
                MAX_TOKENS,
            ),
            schemas.LISTING,
        ),
        Tool(
            "search_with_hypothesis",
            "Search with a hypothetical answer",
            "Search for passages similar to a hypothetical answer that you write. Use it when query_documents finds"
            f" too little. {QUOTED}",
            "search",
            (HYPOTHESIS, TOP_N, MIN_SCORE, *filters, MAX_TOKENS),
            schemas.ANSWER,
        ),
        Tool(
            "search_git_history",
            "Search commits",
            "Search the messages and diffs of git commits: when, by whom and why something changed. Returns the best"
            f" first, each with its hash, date, author and subject. {QUOTED}",
            "commits",
            (
                QUERY,
                integer("top_n", "Maximum number of commits.", 1, 100, default=5),
                MIN_SCORE,
                strings(
                    "file_pattern", "Only commits that changed a matching file: src/** or *.md."
                ),
                strings(
                    "author", "Only commits by these authors: part of a name or e-mail address."
                ),
                *(filter for filter in FILTERS if filter.name in ("after", "before")),
                MAX_TOKENS,
            ),
            schemas.COMMITS,
        ),
        Tool(
            "get_document",
            "Read a document",
            "Read a document, a section or a range of lines. A long text is truncated and ends with the ref to"
            f" continue from. {QUOTED}",
            "get",
            (REF, MAX_TOKENS),
            schemas.EXTRACT,
        ),
        Tool(
            "outline",
            "Outline of a document",
            "List the headings of a document with their lines and anchors, to choose a section to read.",
            "outline",
            (PATH,),
            schemas.OUTLINE,
        ),
        Tool(
            "related_documents",
            "Related documents",
            "List documents related to a document by links, shared tags or meaning, with the reasons.",
            "related",
            (PATH,),
            schemas.RELATED,
        ),
        Tool(
            "index_status",
            "Status of the index",
            "Show how much is indexed, what is still in progress and which files failed.",
            "status",
            (),
            schemas.STATUS,
        ),
    )
    return {tool.name: tool for tool in tools}


class ToolHandler:
    """Handles tools/list and tools/call for one library."""

    def __init__(self, host: LibraryHost) -> None:
        self.host = host

    @property
    def tools(self) -> Mapping[str, Tool]:
        """Return the tools by name."""
        return tools_for(self.host.several_collections)

    async def list(
        self, ctx: ServerRequestContext[Any], params: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        """Return all tools on one page."""
        return types.ListToolsResult(
            tools=[
                types.Tool(
                    name=tool.name,
                    title=tool.title,
                    description=tool.description,
                    input_schema=tool.input_schema,
                    output_schema=tool.output_schema,
                    annotations=ANNOTATIONS,
                )
                for tool in self.tools.values()
            ]
        )

    def input_schema(self, name: str) -> Mapping[str, Any] | None:
        """Return the JSON Schema of a tool's arguments."""
        tool = self.tools.get(name)
        return tool.input_schema if tool else None

    async def call(
        self, ctx: ServerRequestContext[Any], params: types.CallToolRequestParams
    ) -> types.CallToolResult:
        """Call a tool; errors are returned as text for the model."""
        tools = self.tools
        tool = tools.get(params.name)
        if tool is None:
            raise MCPError(
                types.INVALID_PARAMS,
                f"No such tool: {params.name[:100]!r}. {suggest(params.name, tools)}",
            )
        try:
            arguments = tool.parse(params.arguments or {})
            async with report_progress(ctx, self.host.watcher) as progress:
                result = await self.host.call(
                    tool.operation, tool.operation_arguments(arguments), progress
                )
        except MarklightError as error:
            return _error_result(rendering.error_text(error, self.host.watcher))
        except Exception as error:
            log.exception("Tool %s failed", tool.name)
            return _error_result(f"Unexpected {type(error).__name__}: this is a bug in Marklight")
        return self._result(tool, arguments, result)

    def _result(
        self, tool: Tool, arguments: Mapping[str, Any], result: dict[str, Any]
    ) -> types.CallToolResult:
        several, watcher = self.host.several_collections, self.host.watcher
        state = rendering.indexing_state(watcher)
        tokens = arguments.get("max_tokens", DEFAULT_TOKENS)
        if tool.operation == "search":
            limit = arguments.get("top_n", rendering.DEFAULT_RESULTS)
            text = rendering.search_text(result, several, state, tokens, limit)
        elif tool.operation == "list_documents":
            text = rendering.listing_text(result, several, state, tokens)
        elif tool.operation == "commits":
            text = rendering.commits_text(result, tokens)
        elif tool.operation == "get":
            result = rendering.limit_extract(result, several, tokens)
            text = rendering.extract_text(result, several)
        elif tool.operation == "outline":
            text = rendering.outline_text(result, several)
        elif tool.operation == "related":
            text = rendering.related_text(result, several)
        else:
            text = rendering.status_text(result, state, watcher.watching)
        content = [types.TextContent(text=text)]
        return types.CallToolResult(content=[*content], structured_content=result)


def _error_result(text: str) -> types.CallToolResult:
    return types.CallToolResult(content=[types.TextContent(text=text)], is_error=True)
