"""Handle tools/list and tools/call: call operations of the library, some tools several, and render the results.

The tool `ask` lets the client's own model write an answer (MCP sampling), and every sentence is checked. It is offered to
clients that declare the capability `sampling` over a connection on which the server can send requests, which protocol
versions up to 2025-11-25 have.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import anyio
import anyio.from_thread
import mcp_types as types
from mcp.shared.exceptions import MCPError
from mcp.shared.message import ServerMessageMetadata
from pydantic import ValidationError

from marklight.answer import Answer
from marklight.errors import MarklightError, ModelServerError, NotFound, UsageError
from marklight.formatting import one_line, place_text
from marklight.library.configuration import Ask
from marklight.library.history import has_repository
from marklight.operations import OPERATIONS
from marklight.parameters import suggest
from marklight.ports import Progress, Prompt
from marklight.reference import escape_glob, has_wildcards
from marklight.report import DocumentList, Extract, Links, Outline, Related
from marklight.results import CitedAnswer, Commits, Listing
from marklight.surfaces import host as operations
from marklight.surfaces.host import LibraryHost, json_result
from marklight.surfaces.mcp import rendering
from marklight.surfaces.mcp.rendering import DEFAULT_TOKENS, Extracts
from marklight.surfaces.mcp.resources import report_progress
from marklight.surfaces.mcp.tool_definitions import MAX_TOKENS, Tool, declared, tools_for

if TYPE_CHECKING:
    from mcp.server.context import ServerRequestContext

    from marklight.library import Library
    from marklight.surfaces.mcp.server import Introduction


POLL_SECONDS = 0.2
"""Interval at which a wait for the client checks whether the call was cancelled."""
MIN_ANSWER_TOKENS = 16
SOURCE_TOKENS = 400
"""Part of the budget that is kept for the list of sources."""

ASK = Tool(
    "ask",
    "Answer with sources",
    "Let your own model write an answer from the passages found (sampling). Each sentence cites its passages and is"
    " checked against them. If nothing answers the question, no model is called.",
    "ask",
    (
        *declared("ask", "query", "path", "tag", "after", "before"),
        MAX_TOKENS,
    ),
)


def offers_sampling(ctx: ServerRequestContext[Any]) -> bool:
    """Return true if the client's model can be called during this request."""
    client = ctx.session.client_capabilities
    return client is not None and client.sampling is not None and ctx.session.can_send_request


class SamplingModel:
    """The model of an MCP client; implements `LanguageModel` for a worker thread of anyio."""

    name = "the client's model"

    def __init__(self, ctx: ServerRequestContext[Any], timeout_seconds: float) -> None:
        self._ctx, self._seconds = ctx, timeout_seconds

    def generate(
        self, prompt: Prompt, check_cancelled: Callable[[], None]
    ) -> Generator[str, None, None]:
        """Yield the response, which clients return as a whole."""
        result = anyio.from_thread.run(self._sample, prompt, check_cancelled)
        content = result.content
        if not isinstance(content, types.TextContent) or not content.text.strip():
            raise ModelServerError("The client's model returned no text")
        yield content.text
        if result.stop_reason == "maxTokens":
            raise ModelServerError("The client's model reached the token limit")

    async def _sample(
        self, prompt: Prompt, check_cancelled: Callable[[], None]
    ) -> types.CreateMessageResult:
        async def watch() -> None:
            while True:
                await anyio.sleep(POLL_SECONDS)
                check_cancelled()

        try:
            with anyio.fail_after(self._seconds):
                async with anyio.create_task_group() as group:
                    group.start_soon(watch)
                    result = await self._request(prompt)
                    group.cancel_scope.cancel()
            return result
        except TimeoutError:
            seconds = f"{self._seconds:.0f} s"
            raise ModelServerError(f"The client's model did not finish within {seconds}") from None
        except ExceptionGroup as raised:
            error = raised.exceptions[0]
            if not isinstance(error, MCPError | ValidationError):
                raise error from None
            reason = error.error.message if isinstance(error, MCPError) else "not valid"
            message = f"The client wrote no answer: {one_line(reason)[:200]}"
            raise ModelServerError(message) from None

    async def _request(self, prompt: Prompt) -> types.CreateMessageResult:
        # Not `session.create_message`, which warns that later protocol versions removed it.
        message = types.SamplingMessage(role="user", content=types.TextContent(text=prompt.text))
        params = types.CreateMessageRequestParams(
            messages=[message],
            system_prompt=prompt.instructions,
            max_tokens=prompt.max_tokens,
            temperature=0,
        )
        return await self._ctx.session.send_request(
            types.CreateMessageRequest(params=params),
            types.CreateMessageResult,
            metadata=ServerMessageMetadata(related_request_id=self._ctx.request_id),
        )


def answer_tokens(tokens: int, default: int) -> int:
    """Return the token limit of the answer within the budget of the whole text."""
    return max(MIN_ANSWER_TOKENS, min(default, tokens - min(SOURCE_TOKENS, tokens // 2)))


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
                if tool.operation != "commits" or has_repository(self.host.library)
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
            text, shown = self._rendered(tool, arguments, result, no_reranker)
        except MarklightError as error:
            return _error_result(rendering.error_text(error, self.host.watcher))
        except Exception as error:
            log.exception("Tool %s failed", tool.name)
            return _error_result(f"Unexpected {type(error).__name__}: this is a bug in Marklight")
        return types.CallToolResult(
            content=[types.TextContent(text=text)],
            structured_content=json_result(tool.operation, shown)
            if self._is_structured(ctx)
            else None,
        )

    async def _run(
        self,
        ctx: ServerRequestContext[Any],
        tool: Tool,
        arguments: Mapping[str, Any],
        progress: Progress,
    ) -> Any:
        """Run the operation of a tool; for `ask`, with the model of the client."""
        given = tool.operation_arguments(arguments)
        if tool is not ASK:
            work = partial(execute, operation=tool.operation, arguments=given)
            return await self.host.run(work, progress, in_worker=True)
        settings = self.host.library.settings
        tokens = arguments.get("max_tokens", DEFAULT_TOKENS)
        given["max_tokens"] = answer_tokens(tokens, Ask.answer_tokens)
        model = SamplingModel(ctx, settings["ask.timeout_seconds"])
        work = partial(operations.execute, name=tool.operation, arguments=given, model=model)
        return await self.host.answer(work, progress)

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
        self, tool: Tool, arguments: Mapping[str, Any], result: Any, no_reranker: bool
    ) -> tuple[str, Any]:
        """Return the text of a result, and the result, which is cut alike."""
        if no_reranker:
            result = replace(result, notices=(*result.notices, NO_RERANKER))
        watcher = self.host.watcher
        state = rendering.indexing_state(watcher)
        tokens = arguments.get("max_tokens", DEFAULT_TOKENS)
        match result:
            case Extract() | Extracts():
                return _read_text(result, tokens, bool(arguments.get("line_numbers")))
            case Commits():
                text = rendering.commits_text(result, tokens)
            case Answer():
                text = rendering.search_text(result, state, tokens, self.introduction.language)
            case CitedAnswer():
                text = rendering.answer_text(result, tokens)
            case Listing():
                text = rendering.listing_text(result, state, tokens)
            case Outline():
                names = ("depth", "section", "page")
                options = {name: arguments[name] for name in names if name in arguments}
                text = rendering.outline_text(result, tokens, **options)
            case Related():
                text = rendering.related_text(result)
            case _ if tool.operation == "status":
                text = rendering.status_text(result, state, watcher.watching)
            case _:
                text = rendering.tags_text(result["tags"], arguments.get("page", 1), tokens)
        return text, result


def _read_text(
    result: Extract | Extracts, tokens: int, line_numbers: bool
) -> tuple[str, Extract | Extracts]:
    """Return the text of one extract or several, and the result, cut alike if it is one."""
    extracts = result.documents if isinstance(result, Extracts) else (result,)
    shown = tuple(map(rendering.numbered, extracts)) if line_numbers else extracts
    if isinstance(result, Extracts) and (len(shown) > 1 or result.missing):
        return rendering.several_text(replace(result, documents=shown), tokens), result
    cut = rendering.limit_extract(shown[0], tokens)
    return rendering.extract_text(cut), cut


def _error_result(text: str) -> types.CallToolResult:
    return types.CallToolResult(content=[types.TextContent(text=text)], is_error=True)


Call = Callable[[str, Mapping[str, Any]], Any]
"""Executes an operation of the library, by its name and arguments."""

MAX_DOCUMENTS = 50
"""Documents that one call reads."""
MAX_LINKING = 500
"""Documents that a list by links contains; a filter has at most so many values."""


def execute(library: Library, operation: str, arguments: Mapping[str, Any], **hooks: Any) -> Any:
    """Execute the operation of a tool, or the several ones that its arguments mean."""

    def call(name: str, given: Mapping[str, Any]) -> Any:
        declared = {parameter.name for parameter in OPERATIONS[name].parameters}
        # Others change the text of the result only.
        values = {key: value for key, value in given.items() if key in declared}
        return operations.execute(library, name, values, **hooks)

    given = dict(arguments)
    if operation == "get" and isinstance(given["ref"], list):
        return _read(call, given)
    if given.pop("show", "documents") == "tags":
        return {"tags": call("tags", {})}
    links: dict[str, str] = {
        name: given.pop(name) for name in ("links_to", "links_from") if name in given
    }
    if links:
        return _linking(call, given, links)
    return call(operation, given)


def _read(call: Call, given: dict[str, Any]) -> Extracts:
    """Read several references; one with wildcards is every document that matches it."""
    extracts: list[Extract] = []
    missing: list[str] = []
    omitted: list[str] = []
    errors: list[MarklightError] = []
    for ref in dict.fromkeys(given["ref"]):
        try:
            found, others = _read_or_match(call, given, ref)
        except (NotFound, UsageError) as error:
            errors.append(error)
            missing.append(
                ". ".join(filter(None, [error.message, rendering.for_assistants(error.hint)]))
            )
            continue
        extracts += found
        for other in others:
            if len(extracts) < MAX_DOCUMENTS:
                extracts.append(call("get", {**given, "ref": other}))
            else:
                omitted.append(other)
    if not extracts:
        raise errors[0]
    return Extracts(tuple(extracts), tuple(missing), tuple(omitted))


def _read_or_match(
    call: Call, given: Mapping[str, Any], ref: str
) -> tuple[list[Extract], list[str]]:
    """Return the extract of a reference, or the references of the documents that match it as a glob."""
    try:
        return [call("get", {**given, "ref": ref})], []
    except NotFound:
        if not has_wildcards(ref):
            raise
    matching: DocumentList = call("resolve", {"ref": ref})
    several = matching.several_collections
    return [], [place_text(each.document, several) for each in matching.documents]


def _linking(call: Call, given: Mapping[str, Any], refs: Mapping[str, str]) -> Listing:
    """List the documents that link to a document, or those that it links to."""
    if "path" in given or len(refs) > 1:
        raise UsageError("links_to, links_from and path cannot be combined", "Use tags or a query")
    [(kind, ref)] = refs.items()
    links: Links = call("links", {"ref": ref, "limit": MAX_LINKING})
    several = links.several_collections
    if kind == "links_to":
        documents = [link.source for link in links.back]
    else:
        documents = [link.target for link in links.out if link.target]
    if not documents and links.document:
        place = place_text(links.document, several)
        raise NotFound(
            f"No document links to {place}"
            if kind == "links_to"
            else f"{place} links to no document"
        )
    paths = dict.fromkeys(escape_glob(place_text(document, several)) for document in documents)
    listing: Listing = call("list_documents", {**given, "path": list(paths)})
    return listing
