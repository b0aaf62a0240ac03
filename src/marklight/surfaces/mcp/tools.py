"""Handle tools/list and tools/call: call operations of the library, some tools several, and render the results."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import anyio
import mcp_types as types
from mcp.shared.exceptions import MCPError

from marklight.errors import MarklightError, NotFound, UsageError
from marklight.formatting import one_line, place_text
from marklight.library.configuration import Ask
from marklight.model import DocumentId
from marklight.parameters import suggest
from marklight.ports import Progress
from marklight.reference import escape_glob, has_wildcards
from marklight.surfaces import operations
from marklight.surfaces.host import LibraryHost
from marklight.surfaces.mcp import documents, rendering
from marklight.surfaces.mcp.introduction import Introduction
from marklight.surfaces.mcp.notifications import report_progress
from marklight.surfaces.mcp.rendering import DEFAULT_TOKENS
from marklight.surfaces.mcp.sampling import (
    ASK,
    SamplingModel,
    answer_text,
    answer_tokens,
    offers_sampling,
)
from marklight.surfaces.mcp.tool_definitions import Tool, tools_for

if TYPE_CHECKING:
    from mcp.server.context import ServerRequestContext

    from marklight.library import Library

log = logging.getLogger(__name__)

ANNOTATIONS = types.ToolAnnotations(read_only_hint=True, open_world_hint=False)
"""The other hints have a meaning only for tools that change something."""
STRUCTURED = "marklight/structured"
"""Capability (`experimental` or `extensions`) by which a client requests structured content."""

WAIT_STEP_SECONDS = 0.02
NO_RERANKER = "Not reranked: no cross-encoder is installed"


class ToolHandler:
    """Handles tools/list and tools/call for one library."""

    def __init__(self, host: LibraryHost, introduction: Introduction) -> None:
        self.host, self.introduction = host, introduction

    @property
    def tools(self) -> Mapping[str, Tool]:
        """Return the tools by name."""
        return tools_for(self.host.several_collections, self.has_reranker)

    @property
    def has_reranker(self) -> bool:
        """Return true if results can be reranked."""
        return self.host.library.models.has_reranker

    def tools_for_client(self, ctx: ServerRequestContext[Any]) -> Mapping[str, Tool]:
        """Return the tools that a client may list and call, by name; `ask` only if its own model can write."""
        return {**self.tools, ASK.name: ASK} if offers_sampling(ctx) else self.tools

    async def list(
        self, ctx: ServerRequestContext[Any], params: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        """Return all tools on one page; output schemas only for clients that get structured content."""
        structured = self._is_structured(ctx)
        return types.ListToolsResult(
            tools=[
                types.Tool(
                    name=tool.name,
                    title=tool.title,
                    description=tool.description,
                    input_schema=tool.input_schema,
                    output_schema=tool.output_schema if structured else None,
                    annotations=ANNOTATIONS,
                )
                for tool in self.tools_for_client(ctx).values()
            ]
        )

    def input_schema(self, name: str) -> Mapping[str, Any] | None:
        """Return the JSON Schema of a tool's arguments."""
        tool = {**self.tools, ASK.name: ASK}.get(name)
        return tool.input_schema if tool else None

    async def call(
        self, ctx: ServerRequestContext[Any], params: types.CallToolRequestParams
    ) -> types.CallToolResult:
        """Call a tool; errors are returned as text for the model."""
        tools = self.tools_for_client(ctx)
        tool = tools.get(params.name)
        if tool is None:
            raise MCPError(
                types.INVALID_PARAMS,
                f"No such tool: {params.name[:100]!r}. {suggest(params.name, tools)}",
            )
        try:
            arguments = tool.parse(params.arguments or {})
        except UsageError as error:
            return _error_result(one_line(str(error)))  # in the tool's own terms already
        no_reranker = bool(arguments.get("rerank")) and not self.has_reranker
        if no_reranker:
            del arguments["rerank"]
        try:
            async with report_progress(ctx, self.host.watcher) as progress:
                if tool.operation != "status":
                    await self._wait_for_text()
                result = await self._run(ctx, tool, arguments, progress)
            text, values = self._rendered(tool, arguments, result, no_reranker)
        except MarklightError as error:
            return _error_result(rendering.error_text(error, self.host.watcher))
        except Exception as error:
            log.exception("Tool %s failed", tool.name)
            return _error_result(f"Unexpected {type(error).__name__}: this is a bug in Marklight")
        return types.CallToolResult(
            content=[types.TextContent(text=text)],
            structured_content=values if self._is_structured(ctx) else None,
        )

    async def _run(
        self,
        ctx: ServerRequestContext[Any],
        tool: Tool,
        arguments: Mapping[str, Any],
        progress: Progress,
    ) -> dict[str, Any]:
        """Run the operation of a tool; for `ask`, with the model of the client."""
        given = tool.operation_arguments(arguments)
        if tool is not ASK:
            work = partial(execute, operation=tool.operation, arguments=given)
            return await self.host.run(work, progress, in_worker=True)
        settings = self.host.library.settings
        tokens = arguments.get("max_tokens", DEFAULT_TOKENS)
        given["max_tokens"] = answer_tokens(tokens, Ask.answer_tokens)
        model = SamplingModel(ctx, settings["ask.timeout_seconds"])
        return await self.host.call(tool.operation, given, progress, model=model)

    async def _wait_for_text(self) -> None:
        """Wait, within a time limit, while files are read for the first time: a part of them may lack the answer.

        A scan for changes of an index that exists is not awaited.
        """
        watcher, known = self.host.watcher, self.introduction.overview
        with anyio.move_on_after(self.host.library.settings["mcp.wait_seconds"]):
            while watcher.is_reading and not watcher.text_was_tried:
                if watcher.is_scanning and known is not None and known.documents:
                    return
                await anyio.sleep(WAIT_STEP_SECONDS)

    def _is_structured(self, ctx: ServerRequestContext[Any]) -> bool:
        """Return true if results have structured content, which most clients pass to the model in place of the text."""
        if self.host.library.settings["mcp.structured"]:
            return True
        client = ctx.session.client_capabilities
        return client is not None and any(
            STRUCTURED in (capabilities or {})
            for capabilities in (client.experimental, client.extensions)
        )

    def _rendered(
        self, tool: Tool, arguments: Mapping[str, Any], result: dict[str, Any], no_reranker: bool
    ) -> tuple[str, dict[str, Any]]:
        """Return the text of a result, and its values, which are cut alike."""
        if no_reranker:
            result["notices"] = [*result["notices"], NO_RERANKER]
        several, watcher = self.host.several_collections, self.host.watcher
        state = rendering.indexing_state(watcher)
        tokens = arguments.get("max_tokens", DEFAULT_TOKENS)
        if tool.operation == "search":
            limit = arguments.get("limit", rendering.DEFAULT_RESULTS)
            language = self.introduction.language
            text = rendering.search_text(result, several, state, tokens, limit, language)
        elif tool.operation == "ask":
            text = answer_text(result, several, tokens)
        elif "tags" in result:
            text = documents.tags_text(result["tags"], arguments.get("page", 1), tokens)
        elif tool.operation == "list_documents":
            text = documents.listing_text(result, several, state, tokens)
        elif tool.operation == "commits":
            text = rendering.commits_text(result, tokens)
        elif tool.operation == "get":
            text, result = _extracts(result, several, tokens, bool(arguments.get("line_numbers")))
        elif tool.operation == "outline":
            options = {
                key: arguments[key] for key in ("depth", "section", "page") if key in arguments
            }
            text = documents.outline_text(result, several, tokens, **options)
        elif tool.operation == "related":
            text = documents.related_text(result, several)
        else:
            text = rendering.status_text(result, state, watcher.watching)
        return text, result


def _extracts(
    result: dict[str, Any], several: bool, tokens: int, line_numbers: bool
) -> tuple[str, dict[str, Any]]:
    """Return the text of one extract or several, and the values."""
    shown = [
        documents.numbered(each) if line_numbers else each
        for each in result.get("documents", [result])
    ]
    if "documents" in result and (len(shown) > 1 or result["missing"]):
        return documents.several_text(shown, result, several, tokens), result
    cut = documents.limit_extract(shown[0], several, tokens)
    return documents.extract_text(cut, several), cut


def _error_result(text: str) -> types.CallToolResult:
    return types.CallToolResult(content=[types.TextContent(text=text)], is_error=True)


Values = dict[str, Any]
Call = Callable[[str, Mapping[str, Any]], Values]
"""Executes an operation of the library, by its name and arguments."""

MAX_DOCUMENTS = 50
"""Documents that one call reads."""
MAX_LINKING = 500
"""Documents that a list by links contains; a filter has at most so many values."""


def execute(library: Library, operation: str, arguments: Mapping[str, Any], **hooks: Any) -> Values:
    """Execute the operation of a tool, or the several ones that its arguments mean."""

    def call(name: str, given: Mapping[str, Any]) -> Values:
        return operations.call(library, name, given, **hooks)

    given = dict(arguments)
    if operation == "get" and isinstance(given["ref"], list):
        return _read(call, given)
    if given.pop("show", "documents") == "tags":
        return call("tags", {})
    if links_to := given.pop("links_to", None):
        return _linking(call, given, links_to, len(library.collections) > 1)
    return call(operation, given)


def _read(call: Call, given: Values) -> Values:
    """Read several references; one with wildcards is every document that matches it.

    Return the first extract with all of them as `documents`, and the references that are not read as `missing` (with
    the reason) and `omitted`.
    """
    extracts: list[Values] = []
    missing: list[str] = []
    omitted: list[str] = []
    errors: list[MarklightError] = []
    for ref in dict.fromkeys(given["ref"]):
        try:
            found, others = _read_or_match(call, given, ref)
        except (NotFound, UsageError) as error:
            errors.append(error)
            missing.append(f"{error.message}. {error.hint}" if error.hint else error.message)
            continue
        extracts += found
        for other in others:
            if len(extracts) < MAX_DOCUMENTS:
                extracts.append(call("get", {**given, "ref": other}))
            else:
                omitted.append(other)
    if not extracts:
        raise errors[0]
    return {**extracts[0], "documents": extracts, "missing": missing, "omitted": omitted}


def _read_or_match(call: Call, given: Values, ref: str) -> tuple[list[Values], list[str]]:
    """Return the extract of a reference, or the references of the documents that match it as a glob."""
    try:
        return [call("get", {**given, "ref": ref})], []
    except NotFound:
        if not has_wildcards(ref):
            raise
    return [], [each["ref"] for each in call("resolve", {"ref": ref})["documents"]]


def _linking(call: Call, given: Values, ref: str, several: bool) -> Values:
    """List the documents that link to a document."""
    if "path" in given:
        raise UsageError("links_to and path cannot be combined", "Use tags or a query")
    links = call("links", {"ref": ref, "limit": MAX_LINKING})
    ids = (DocumentId(link["collection"], link["path"]) for link in links["in"])
    sources = list(dict.fromkeys(place_text(id, several) for id in ids))
    if not sources:
        raise NotFound(f"No document links to {links['ref']}")
    return call("list_documents", {**given, "path": list(map(escape_glob, sources))})
