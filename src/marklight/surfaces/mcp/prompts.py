"""Prompts that a person picks: research a question, summarise a section."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import mcp_types as types
from mcp.shared.exceptions import MCPError

from marklight.errors import MarklightError
from marklight.surfaces.host import LibraryHost
from marklight.surfaces.mcp import telling
from marklight.surfaces.mcp.wording import QUOTED, error_text
from marklight.surfaces.parameters import Parameter, parse, string, suggest

if TYPE_CHECKING:
    from mcp.server.context import ServerRequestContext

RESEARCH = (
    string("question", "What you want to know.", required=True, maxLength=10_000),
    string("path", "Only below this path, such as guide/**.", maxLength=1000),
    string("tag", "Only documents with this tag.", maxLength=1000),
)
SECTION = (
    string("path", "The document.", required=True, maxLength=5000),
    string(
        "heading", "The section's heading or its anchor; without one, all of it.", maxLength=1000
    ),
)
SECTION_TOKENS = 8000
"""Of a section that is handed over with the prompt: more would crowd out the talk around it."""

PROMPTS = {
    "research": (
        "Research a question",
        "Answer a question from the documents, with its sources.",
        RESEARCH,
    ),
    "summarize_section": ("Summarise a section", "Summarise a section of a document.", SECTION),
}


class Prompts:
    """The two prompts over one library."""

    def __init__(self, host: LibraryHost) -> None:
        self.host = host

    async def list(
        self, ctx: ServerRequestContext[Any], params: types.PaginatedRequestParams | None
    ) -> types.ListPromptsResult:
        """Both."""
        prompts = [
            types.Prompt(
                name=name,
                title=title,
                description=description,
                arguments=[_argument(each) for each in arguments],
            )
            for name, (title, description, arguments) in PROMPTS.items()
        ]
        return types.ListPromptsResult(prompts=prompts)

    async def get(
        self, ctx: ServerRequestContext[Any], params: types.GetPromptRequestParams
    ) -> types.GetPromptResult:
        """A prompt with its arguments filled in."""
        if params.name not in PROMPTS:
            known = suggest(params.name, PROMPTS)
            raise MCPError(
                types.INVALID_PARAMS, f"there is no prompt {params.name[:100]!r}. {known}"
            )
        _, description, arguments = PROMPTS[params.name]
        try:
            given = parse(arguments, params.arguments or {})
            said = _research(given) if params.name == "research" else await self._section(given)
        except MarklightError as error:
            raise MCPError(types.INVALID_PARAMS, error_text(error, self.host.watcher)) from error
        message = types.PromptMessage(role="user", content=types.TextContent(text=said))
        return types.GetPromptResult(description=description, messages=[message])

    async def _section(self, given: dict[str, str]) -> str:
        heading = given.get("heading", "").strip().lstrip("#").strip()
        ref = f"{given['path']}#{heading}" if heading else given["path"]
        found = await self.host.call("get", {"ref": ref})
        extract = telling.extract_of(found, self.host.several_collections, SECTION_TOKENS)
        return (
            "Summarise this part of a document in a few sentences for somebody who has not read it: what it"
            " is about, what it says, what one has to do or decide. Say nothing that does not stand in it, and"
            f" name its place, which follows 'document:'. {QUOTED}\n\n"
            f"{telling.extract_text(extract, self.host.several_collections)}"
        )


def _research(given: dict[str, str]) -> str:
    only = [f"path {given['path']!r}"] if given.get("path") else []
    only += [f"tags {given['tag']!r}"] if given.get("tag") else []
    within = f" Search with {' and '.join(only)}." if only else ""
    return (
        f"Answer this question from the documents: {given['question']}\n\n"
        f"1. Search with query_documents, in two or three ways of asking.{within} Where it finds little, write the"
        " answer as the documents might have it and use search_with_hypothesis.\n"
        "2. For the documents that matter look at outline, and read the sections around what was found with"
        " get_document. related_documents leads to what a search does not find.\n"
        "3. Answer in your own words from what you have read. After each statement name its place as"
        " path:lines. Where the documents disagree or say nothing, say so instead of guessing."
        f" {QUOTED}"
    )


def _argument(parameter: Parameter) -> types.PromptArgument:
    return types.PromptArgument(
        name=parameter.name,
        description=parameter.schema["description"],
        required=parameter.required,
    )
