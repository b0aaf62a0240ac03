"""MCP resources (documents by their URI, subscriptions to changes), prompts, completion of their arguments, and the progress of calls."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import AsyncIterator, Collection, Iterable
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple
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
from marklight.library.progress import IndexingProgress
from marklight.library.watching import Watcher
from marklight.model import DocumentId
from marklight.parameters import Parameter, parse, suggest
from marklight.ports import Progress, no_progress
from marklight.report import Report
from marklight.surfaces.host import LibraryHost, execute
from marklight.surfaces.mcp import rendering
from marklight.surfaces.mcp.rendering import QUOTED, error_text

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
        try:
            id, fragment = parse_uri(str(params.uri), self.host.library.collections)
        except NotFound as error:
            raise self._protocol_error(ctx, error) from error
        ref = f"{id.path}#{fragment}" if fragment else id.path
        extract = await self._call(ctx, "get", {"ref": ref, "collection": id.collection})
        contents = types.TextResourceContents(
            uri=str(params.uri), mime_type=MARKDOWN, text=visible(extract["content"])
        )
        return types.ReadResourceResult(contents=[contents])

    async def _call(
        self, ctx: ServerRequestContext[Any], operation: str, arguments: dict[str, Any]
    ) -> Any:
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


class Subscriber(NamedTuple):
    """A client that began with a handshake, with its subscriptions."""

    session: ServerSession
    documents: dict[DocumentId, str]
    """Subscribed documents, each with the URI as the client wrote it."""


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

    def _client(self, ctx: ServerRequestContext[Any]) -> Subscriber:
        # Standard streams have one client; over HTTP each has a session ID.
        session_id = ctx.request.headers.get("mcp-session-id", "") if ctx.request else ""
        if session_id not in self.clients:
            self.clients[session_id] = Subscriber(ctx.session, {})
            while len(self.clients) > MAX_CLIENTS:
                self.clients.popitem(last=False)
        return self.clients[session_id]

    def _document(self, uri: str) -> DocumentId:
        try:
            return parse_uri(uri, self.host.library.collections)[0]
        except NotFound as error:
            raise MCPError(types.INVALID_PARAMS, str(error)) from error


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

    try:
        async with anyio.create_task_group() as group:
            group.start_soon(send_at_intervals)
            yield on_progress
            group.cancel_scope.cancel()
    except ExceptionGroup as raised:
        raise raised.exceptions[0] from None
    if latest:
        await send()  # the final progress, even of a fast call


RESEARCH = (
    Parameter.of("question", "string", "The question to answer.", required=True, maxLength=10_000),
    Parameter.of(
        "path", "string", "Only documents that match this glob, such as guide/**.", maxLength=1000
    ),
    Parameter.of("tag", "string", "Only documents with this tag.", maxLength=1000),
)
SECTION = (
    Parameter.of("path", "string", "Path of the document.", required=True, maxLength=5000),
    Parameter.of(
        "heading",
        "string",
        "Heading or anchor of the section; without it, the whole document.",
        maxLength=1000,
    ),
)
SECTION_TOKENS = 8000
"""Size limit of a section inside a prompt: more would crowd out the conversation."""
MAX_COMPLETIONS = 100
"""Limit of the protocol."""

PROMPTS = {
    "research": (
        "Research a question",
        "Answer a question from the documents and cite sources.",
        RESEARCH,
    ),
    "summarize_section": ("Summarize a section", "Summarize a section of a document.", SECTION),
}


class PromptHandler:
    """Handles prompt requests for one library, and completion of their arguments and of those of the URI template."""

    def __init__(self, host: LibraryHost) -> None:
        self.host = host

    async def list(
        self, ctx: ServerRequestContext[Any], params: types.PaginatedRequestParams | None
    ) -> types.ListPromptsResult:
        """Return all prompts on one page."""
        prompts = [
            types.Prompt(
                name=name,
                title=title,
                description=description,
                arguments=[
                    types.PromptArgument(
                        name=each.name, description=each.description, required=each.required
                    )
                    for each in parameters
                ],
            )
            for name, (title, description, parameters) in PROMPTS.items()
        ]
        return types.ListPromptsResult(prompts=prompts)

    async def get(
        self, ctx: ServerRequestContext[Any], params: types.GetPromptRequestParams
    ) -> types.GetPromptResult:
        """Return a prompt with its arguments filled in."""
        if params.name not in PROMPTS:
            hint = suggest(params.name, PROMPTS)
            raise MCPError(types.INVALID_PARAMS, f"No such prompt: {params.name[:100]!r}. {hint}")
        _, description, parameters = PROMPTS[params.name]
        try:
            arguments = parse(parameters, params.arguments or {})
            if params.name == "research":
                text = _research(arguments)
            else:
                text = await self._summarize_section(arguments)
        except MarklightError as error:
            raise MCPError(
                types.INVALID_PARAMS, rendering.error_text(error, self.host.watcher)
            ) from error
        message = types.PromptMessage(role="user", content=types.TextContent(text=text))
        return types.GetPromptResult(description=description, messages=[message])

    async def _summarize_section(self, arguments: dict[str, str]) -> str:
        heading = arguments.get("heading", "").strip().lstrip("#").strip()
        ref = f"{arguments['path']}#{heading}" if heading else arguments["path"]
        work = partial(execute, name="get", arguments={"ref": ref})
        extract = await self.host.run(work, in_worker=True)
        extract = rendering.limit_extract(extract, SECTION_TOKENS)
        return (
            "Summarize this part of a document in a few sentences for a reader who has not seen it: what it is"
            " about, what it states, and what one has to do or decide. Use nothing but this text, and cite its"
            f" location, which follows 'document:'. {QUOTED}\n\n"
            f"{rendering.extract_text(extract)}"
        )

    async def complete(
        self, ctx: ServerRequestContext[Any], params: types.CompleteRequestParams
    ) -> types.CompleteResult:
        """Return values that start with the typed text, then values that contain it."""
        name, typed = params.argument.name, params.argument.value[:1000]
        arguments = (params.context.arguments if params.context else None) or {}
        values: list[str] = []
        with suppress(MarklightError):  # an error would interrupt typing
            if name == "path":
                like = {"like": typed} if typed else {}
                page = await self.host.call("documents", {"limit": MAX_COMPLETIONS + 1, **like})
                several = self.host.several_collections
                ids = (DocumentId(each["collection"], each["path"]) for each in page["documents"])
                values = [id.named(several) for id in ids]
            elif name == "tag":
                tags = (await self.host.call("tags", {}))["tags"]
                values = _matching(tags, typed.lstrip("#"))
            elif name == "heading" and arguments.get("path"):
                outline = (await self.host.call("outline", {"ref": arguments["path"]}))["outline"]
                values = _matching((heading["text"] for heading in outline), typed)
        # The client inserts a value as it is, so values with control characters are not offered.
        values = [value for value in values if value == one_line(value)]
        completion = types.Completion(
            values=values[:MAX_COMPLETIONS], has_more=len(values) > MAX_COMPLETIONS
        )
        return types.CompleteResult(completion=completion)


def _matching(values: Iterable[str], typed: str) -> list[str]:
    text = typed.lower()
    matching = [value for value in dict.fromkeys(values) if text in value.lower()]
    return sorted(matching, key=lambda value: not value.lower().startswith(text))


def _research(arguments: dict[str, str]) -> str:
    filters = [f"path {arguments['path']!r}"] if arguments.get("path") else []
    filters += [f"tags {arguments['tag']!r}"] if arguments.get("tag") else []
    filtered = f" Search with {' and '.join(filters)}." if filters else ""
    return (
        f"Answer this question from the documents: {arguments['question']}\n\n"
        f"1. Search with query_documents and phrase the question in two or three ways.{filtered} If that finds little,"
        " write the answer as the documents might phrase it and use search_with_hypothesis.\n"
        "2. Look at the outline of the relevant documents and read the sections around the passages with"
        " get_document. related_documents finds documents that a search misses.\n"
        "3. Answer in your own words from what you have read. Cite the location of each statement as path:lines."
        " If the documents disagree or do not contain the answer, say so instead of guessing."
        f" {QUOTED}"
    )
