"""MCP prompts (research a question, summarize a section), and completion of paths, headings and tags."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

import mcp_types as types
from mcp.shared.exceptions import MCPError

from marklight.errors import MarklightError
from marklight.formatting import one_line
from marklight.parameters import Parameter, parse, suggest
from marklight.surfaces.host import LibraryHost, execute
from marklight.surfaces.mcp import rendering
from marklight.surfaces.mcp.rendering import QUOTED

if TYPE_CHECKING:
    from mcp.server.context import ServerRequestContext

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
    """Handles prompt requests for one library."""

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
                arguments=[_argument(parameter) for parameter in parameters],
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


class CompletionHandler:
    """Handles completion requests for arguments of prompts and of the URI template."""

    def __init__(self, host: LibraryHost) -> None:
        self.host = host

    async def complete(
        self, ctx: ServerRequestContext[Any], params: types.CompleteRequestParams
    ) -> types.CompleteResult:
        """Return values that start with the typed text, then values that contain it."""
        name, typed = params.argument.name, params.argument.value[:1000]
        arguments = (params.context.arguments if params.context else None) or {}
        try:
            if name == "path":
                values = await self._paths(typed)
            elif name == "tag":
                values = await self._tags(typed)
            elif name == "heading" and arguments.get("path"):
                values = await self._headings(arguments["path"], typed)
            else:
                values = []
        except MarklightError:
            values = []  # an error would interrupt typing
        # The client inserts a value as it is, so values with control characters are not offered.
        values = [value for value in values if value == one_line(value)]
        completion = types.Completion(
            values=values[:MAX_COMPLETIONS], has_more=len(values) > MAX_COMPLETIONS
        )
        return types.CompleteResult(completion=completion)

    async def _paths(self, typed: str) -> list[str]:
        arguments: dict[str, Any] = {"limit": MAX_COMPLETIONS + 1}
        if self.host.several_collections:
            # The typed text includes the collection, by which the library cannot filter.
            documents = (await self.host.call("documents", {"limit": 1000}))["documents"]
            return _matching(
                (f"{document['collection']}/{document['path']}" for document in documents), typed
            )
        if typed:
            arguments["like"] = typed
        documents = (await self.host.call("documents", arguments))["documents"]
        return [document["path"] for document in documents]

    async def _tags(self, typed: str) -> list[str]:
        return _matching((await self.host.call("tags", {}))["tags"], typed.lstrip("#"))

    async def _headings(self, path: str, typed: str) -> list[str]:
        headings = (await self.host.call("outline", {"ref": path}))["outline"]
        return _matching((heading["text"] for heading in headings), typed)


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


def _argument(parameter: Parameter) -> types.PromptArgument:
    return types.PromptArgument(
        name=parameter.name,
        description=parameter.schema["description"],
        required=parameter.required,
    )
