"""The verbs as programs call them: a name and plain values in, the JSON of the command line out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from marklight.errors import NotFound
from marklight.surfaces.parameters import (
    MODES,
    Parameter,
    flag,
    number,
    read,
    table,
    text,
    texts,
    whole,
)

if TYPE_CHECKING:
    from marklight.library import Library

FILTERS = (
    texts("path", "Only these paths, as guide/** or *.md."),
    texts("tag", "Only documents with one of these tags, or one nested below."),
    table("where", "Only documents with this frontmatter.", {"type": "string", "maxLength": 1000}),
    text("after", "Only of this day or later: 2026-01-31, 2026-01.", maxLength=100),
    text("before", "Only of this day or earlier.", maxLength=100),
    texts("exclude", "Not in these files or globs."),
    texts("collection", "Only in these collections."),
)
SEARCH = (
    text("query", "What is looked for, in words.", required=True),
    whole("limit", "How many results.", 1, 100, default=5),
    text("mode", "Which retrievers answer.", enum=list(MODES), default="hybrid"),
    number("min_confidence", "Leave out lower scores; 0 shows all.", 0, 1),
    *FILTERS,
    whole("max_tokens", "Keep the answer within this size.", 1, 1_000_000),
    flag("rerank", "Whether a cross-encoder looks at the best results.", None),
    flag("parents", "Whole sections in place of passages."),
    whole("context", "Neighbours shown on each side of a passage.", 0, 20, default=0),
    flag("expand_context", "Show the whole section around a passage."),
    text("hypothesis", "An answer as you imagine it; searched by its meaning."),
    flag("with_history", "Commits too, ranked and told apart."),
    flag("explain", "Tell stages, times and each hit's score in parts."),
    flag("refresh", "Compare with the disk first.", True),
    table("settings", "Settings of [search] for this call."),
)
COMMITS = (
    text("query", "What is looked for, in words, or the beginning of a hash.", required=True),
    whole("limit", "How many commits.", 1, 100, default=5),
    texts("files", "Only commits that changed such a file: src/** or *.md."),
    texts("author", "Only by these authors: a part of a name or an e-mail address."),
    text("after", "Only of this day or later: 2026-01-31, 2026-01.", maxLength=100),
    text("before", "Only of this day or earlier.", maxLength=100),
    text("mode", "Which retrievers answer.", enum=list(MODES), default="hybrid"),
    number("min_confidence", "Leave out lower scores; 0 shows all.", 0, 1),
    whole("max_tokens", "Keep the answer within this size.", 1, 1_000_000),
    flag("rerank", "Whether a cross-encoder looks at the best results.", None),
    flag("explain", "Tell stages, times and each hit's score in parts."),
    flag("refresh", "Look for new commits first.", True),
    table("settings", "Settings of [search] for this call."),
)
DOCUMENT = text("path", "The document's path.", required=True, maxLength=5000)
GET = (
    text(
        "ref",
        "A path or title, path#heading, path:10-40 or a passage's id.",
        required=True,
        maxLength=5000,
    ),
    text("level", "More of it: passage, neighbours, block, parent, section or document."),
    whole("context", "With so many passages before it and after it.", 0, 20),
    text("collection", "A path is exactly one of this collection.", maxLength=1000),
)
OUTLINE = (DOCUMENT,)
PAGE = (
    DOCUMENT,
    whole("line", "Of a very long document, the part around this line.", 1, 10**9, default=1),
)
LINKS = (
    text("path", "The document's path; without one, loose ends of the library.", maxLength=5000),
    whole("limit", "How many of each kind.", 1, 1000, default=100),
)
RELATED = (DOCUMENT, whole("limit", "How many documents.", 1, 100, default=10))
GRAPH = (
    text("path", "The document in the middle; without one, the best linked.", maxLength=5000),
    whole("depth", "So many links away from it.", 1, 3, default=1),
    whole("limit", "How many documents.", 1, 500, default=100),
)
DOCUMENTS = (
    text("like", "Only paths that hold this text.", maxLength=5000),
    text("after", "What the part before called `next`.", maxLength=10_000),
    whole("limit", "How many documents.", 1, 1000, default=100),
)
INDEX = (
    flag("rebuild", "Read every file again; vectors are kept."),
    flag("history", "Commits too; else only where they were searched before.", None),
)


class Told(Protocol):
    """Whatever the library answers with."""

    def to_dict(self) -> dict[str, Any]: ...


@dataclass(frozen=True, slots=True)
class Verb:
    """Something a library does, under the same name, and what it needs to be told."""

    parameters: Sequence[Parameter]
    subject: str = ""
    """The parameter that the library takes first and without a name."""
    by: tuple[str, ...] = ()
    """Which of the caller's own matters it takes: progress, going_on, near, part, assignments."""
    told: Callable[[Any], Told | dict[str, Any]] = lambda found: found


VERBS: Mapping[str, Verb] = {
    "search": Verb(SEARCH, "query", ("progress", "going_on", "near", "part", "assignments")),
    "commits": Verb(COMMITS, "query", ("progress", "going_on", "assignments")),
    "get": Verb(GET, "ref", ("progress", "near")),
    "outline": Verb(OUTLINE, "path", ("progress", "near")),
    "page": Verb(PAGE, "path", ("progress", "near")),
    "links": Verb(LINKS, "path", ("progress", "near")),
    "related": Verb(RELATED, "path", ("progress", "near")),
    "graph": Verb(GRAPH, "path", ("progress", "near")),
    "documents": Verb(DOCUMENTS),
    "tags": Verb((), told=lambda found: {"tags": found}),
    "index": Verb(INDEX, by=("progress",)),
    "status": Verb(()),
}


def call(library: Library, name: str, given: Mapping[str, Any], **own: Any) -> dict[str, Any]:
    """Do it; `own` are the caller's own matters, of which a verb takes those that it knows."""
    found = do(library, name, read(known(name).parameters, given), **own)
    return found if isinstance(found, dict) else found.to_dict()


def do(library: Library, name: str, values: Mapping[str, Any], **own: Any) -> Told | dict[str, Any]:
    """The same for values that were read already, and what the library itself answers with."""
    verb = known(name)
    taken = {key: value for key, value in own.items() if key in verb.by and value is not None}
    for folder in ("near", "part"):
        if folder in taken:
            taken[folder] = Path(taken[folder])
    rest = {key: value for key, value in values.items() if key != verb.subject}
    subject = [values.get(verb.subject)] if verb.subject else []
    return verb.told(getattr(library, name)(*subject, **rest, **taken))


def known(name: str) -> Verb:
    """The verb of this name."""
    if name not in VERBS:
        raise NotFound(f"there is no verb {name!r}", f"Known: {', '.join(VERBS)}")
    return VERBS[name]
