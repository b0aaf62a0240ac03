"""Instructions of the MCP server, built from the library: what it contains, in which language, and how to use the tools."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import anyio
import anyio.to_thread

from marklight.errors import MarklightError
from marklight.formatting import one_line
from marklight.library.indexing import Overview, overview
from marklight.surfaces.host import LibraryHost
from marklight.surfaces.mcp.rendering import QUOTED
from marklight.surfaces.mcp.token_budget import size
from marklight.text.languages import language_name

if TYPE_CHECKING:
    from mcp.server.context import CallNext, HandlerResult, ServerRequestContext

OVERVIEW_SECONDS = 0.5
"""Time limit of the handshake for reading the facts of a library; without them it is answered all the same."""
MAX_NAME = 40
"""Length of a folder's or collection's name; a longer one could be a sentence, and is left out."""
MAX_NAMES_BYTES = 220
"""Size of the list of folders or collections."""
GREETINGS = ("initialize", "server/discover")
"""Requests whose answer has the instructions."""
USAGE = f"""\
Start with query_documents and a full question; put exact phrases in quotes. Scores are probabilities: 0.8 is good, \
below 0.3 doubtful. If nothing answers, believe it or rephrase, then try search_with_hypothesis. get_document reads \
path, path#heading or path:10-40; outline lists headings; list_documents all documents on a subject; \
related_documents neighbours; search_git_history commits; index_status what is indexed. Narrow with path, tag, where, \
after, before; skip what you have read with exclude. Every answer keeps to max_tokens; "note:" reports \
omissions. Edits are found at once. Cite path:lines. {QUOTED}"""


class Introduction:
    """Keeps the facts of one library that its server reports, and writes the instructions."""

    def __init__(self, host: LibraryHost) -> None:
        self.host = host
        self.overview: Overview | None = None
        """As of the last handshake; None if it could not be read in time."""

    async def refresh(self) -> None:
        """Read the facts in a thread, within a time limit."""
        with anyio.move_on_after(OVERVIEW_SECONDS):
            try:
                self.overview = await anyio.to_thread.run_sync(
                    overview, self.host.library, abandon_on_cancel=True
                )
            except MarklightError:
                self.overview = None  # the tools report why the index cannot be read

    async def middleware(
        self, ctx: ServerRequestContext[Any, Any], call_next: CallNext
    ) -> HandlerResult:
        """Put current instructions into the answer to a handshake."""
        result = await call_next(ctx)
        if ctx.method in GREETINGS and isinstance(result, dict):
            await self.refresh()
            result["instructions"] = self.text()
        return result

    def text(self) -> str:
        """Return the instructions."""
        name = _plain(self.host.library.place.folder.name)
        return f"{_facts(name, self.overview, self.host.watcher.is_reading)}\n{USAGE}"

    @property
    def language(self) -> str:
        """Return the English name of the main language of the documents; empty if it is unknown."""
        languages = self.overview.languages if self.overview else ()
        return language_name(languages[0]) if languages else ""


def _facts(name: str, facts: Overview | None, is_reading: bool) -> str:
    """Return what the library contains, in two or three sentences."""
    what = f"the folder {name!r}" if name else "a folder"
    if facts is None:
        return f"Search {what} of Markdown documents on this machine; nothing is changed."
    if not facts.documents:
        state = "are being read for the first time" if is_reading else "are missing so far"
        return f"Search {what} on this machine; nothing is changed. Its documents {state}."
    languages = " and ".join(map(language_name, facts.languages))
    sentences = [
        f"Search {what} on this machine, {facts.documents:,} Markdown documents"
        f"{f' in {languages}; ask in that language' if languages else ''}. Nothing is changed."
    ]
    if len(facts.collections) > 1:
        sentences.append(f"Collections, with which paths begin: {_listed(facts.collections, '')}.")
    elif facts.folders:
        sentences.append(f"Folders: {_listed(facts.folders, '/')}.")
    if is_reading:
        sentences.append("Files are still being read.")
    if facts.pending:
        sentences.append(
            f"{facts.pending:,} of {facts.passages:,} passages are still to be embedded and are found by keywords only."
        )
    if facts.reranker:
        sentences.append("rerank=true makes the order more precise.")
    return " ".join(sentences)


def _listed(counts: Mapping[str, int], suffix: str) -> str:
    """Return names with their number of documents, most first, as many as fit."""
    ordered = sorted(counts.items(), key=lambda item: -item[1])
    shown: list[str] = []
    for name, count in ordered:
        if not _plain(name):
            continue
        entry = f"{name}{suffix} ({count:,})"
        if size(", ".join([*shown, entry])) > MAX_NAMES_BYTES:
            break
        shown.append(entry)
    more = len(counts) - len(shown)
    return ", ".join([*shown, *([f"and {more} more"] if more else [])])


def _plain(name: str) -> str:
    """Return a name that can stand in instructions; empty for one with control characters or the length of a sentence."""
    return name if len(name) <= MAX_NAME and one_line(name) == name else ""
