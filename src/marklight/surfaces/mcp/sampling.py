"""The tool `ask`: the client's own model writes an answer from the passages found (MCP sampling), and every sentence is checked.

It is offered to clients that declare the capability `sampling` over a connection on which the server can send requests,
which protocol versions up to 2025-11-25 have.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from typing import TYPE_CHECKING, Any

import anyio
import anyio.from_thread
import mcp_types as types
from mcp.shared.exceptions import MCPError
from mcp.shared.message import ServerMessageMetadata
from pydantic import ValidationError

from marklight.errors import ModelServerError, Stopped
from marklight.formatting import one_line, place_text, quoted, visible
from marklight.model import DocumentId, trail
from marklight.ports import Prompt
from marklight.surfaces import schemas
from marklight.surfaces.mcp.token_budget import max_bytes, size, truncate
from marklight.surfaces.mcp.tool_definitions import FILTERS, MAX_TOKENS, QUERY, Tool, declared

if TYPE_CHECKING:
    from mcp.server.context import ServerRequestContext

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
        *declared(
            "ask",
            query=QUERY,
            **{name: FILTERS[name] for name in ("path", "tag", "after", "before")},
        ),
        MAX_TOKENS,
    ),
    schemas.CITED_ANSWER,
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
        results: list[types.CreateMessageResult | Exception] = []

        async def request() -> None:
            try:
                results.append(await self._request(prompt))
            except (MCPError, ValidationError) as error:
                results.append(error)
            group.cancel_scope.cancel()

        with anyio.move_on_after(self._seconds):
            async with anyio.create_task_group() as group:
                group.start_soon(request)
                while not results:
                    await anyio.sleep(POLL_SECONDS)
                    try:
                        check_cancelled()
                    except Stopped as stopped:
                        results.append(stopped)
                        group.cancel_scope.cancel()
        if not results:
            raise ModelServerError(
                f"The client's model did not finish within {self._seconds:.0f} s"
            )
        if isinstance(results[0], Stopped):
            raise results[0]
        if isinstance(results[0], Exception):
            reason = results[0].error.message if isinstance(results[0], MCPError) else "not valid"
            raise ModelServerError(f"The client wrote no answer: {one_line(reason)[:200]}")
        return results[0]

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


def answer_text(result: Mapping[str, Any], several_collections: bool, tokens: int) -> str:
    """Return the answer, one sentence a line, then the cited places; sentences that do not fit are left out."""
    notes = [f"note: {one_line(notice)}" for notice in result["notices"]]
    sentences = [_sentence_line(each) for each in result["sentences"]]
    if not sentences:
        return truncate("\n".join([one_line(result["abstained"] or "No answer"), *notes]), tokens)
    sources = [
        _source_line(each, several_collections) for each in result["sources"] if each["cited"]
    ]
    for count in range(len(sentences), 0, -1):
        cut = [] if count == len(sentences) else ["note: the rest does not fit max_tokens"]
        text = "\n".join([*sentences[:count], "", *sources, *cut, *notes])
        if size(text) <= max_bytes(tokens):
            return text
    return truncate("\n".join(sentences), tokens)


def _sentence_line(sentence: Mapping[str, Any]) -> str:
    marks = "".join(f"[{number}]" for number in sentence["citations"])
    doubt = "" if sentence["supported"] else f" (unsupported: {one_line(sentence['problem'])})"
    if "\n" in sentence["text"]:
        return f"{quoted(sentence['text'])}\n{marks}{doubt}".rstrip()
    lead = sentence["lead"].rpartition("\n")[2] if "\n" in sentence["lead"] else ""
    return visible(f"{lead}{sentence['text']} {marks}{doubt}").rstrip()


def _source_line(source: Mapping[str, Any], several_collections: bool) -> str:
    document = DocumentId(source["collection"], source["path"])
    place = place_text(document, several_collections, source["lines"])
    headings = one_line(trail(source["title"], source["headings"]))
    return f"[{source['rank']}] {place}{f' § {headings}' if headings else ''}"
