"""Operations of a library as programs call them: a name and JSON values in, the JSON of the command line out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from marklight.errors import NotFound
from marklight.surfaces.parameters import (
    MODES,
    Parameter,
    boolean,
    integer,
    mapping,
    number,
    parse,
    string,
    strings,
)

if TYPE_CHECKING:
    from marklight.library import Library

MAX_LISTED = 100
"""Documents on a page of a list, by default."""
AFTER = string("after", "Only on or after this date: 2026-01-31 or 2026-01.", maxLength=100)
BEFORE = string("before", "Only on or before this date.", maxLength=100)
MODE = string("mode", "Retrieval mode.", enum=list(MODES), default="hybrid")
MIN_CONFIDENCE = number("min_confidence", "Minimum score; 0 returns all results.", 0, 1)
MAX_TOKENS = integer("max_tokens", "Maximum size of the answer in tokens.", 1, 1_000_000)
RERANK = boolean("rerank", "Rerank the best results with a cross-encoder.", None)
EXPLAIN = boolean("explain", "Add the search stages with timings, and how each score was computed.")
SETTINGS = mapping("settings", "Settings of [search] for this call.")
FILTERS = (
    strings("path", "Only documents at these places, or that match these globs: guide/** or *.md."),
    strings(
        "tag", "Only documents with one of these tags or a subtag, such as release/web for release."
    ),
    mapping(
        "where",
        "Only documents with these frontmatter values.",
        {"type": "string", "maxLength": 1000},
    ),
    AFTER,
    BEFORE,
    strings("exclude", "Exclude these places or globs."),
    strings("collection", "Only documents in these collections."),
)
PARENTS = boolean(
    "parents",
    "Return larger passages: each match with its neighbours, up to 2,000 characters.",
)
CONTEXT = integer(
    "context", "Number of neighbouring passages to add on each side.", 0, 20, default=0
)
EXPAND_CONTEXT = boolean("expand_context", "Return the whole section that contains each result.")
HYPOTHESIS = string(
    "hypothesis", "A hypothetical answer; passages similar to it are found by embedding."
)
PREFIX = boolean("prefix", "The last word may be unfinished, as while somebody types.")
REFRESH = boolean("refresh", "Index changed files before searching.", True)
SEARCH = (
    string("query", "Query text.", required=True),
    integer("limit", "Maximum number of results.", 1, 100, default=5),
    MODE,
    MIN_CONFIDENCE,
    *FILTERS,
    MAX_TOKENS,
    RERANK,
    PARENTS,
    CONTEXT,
    EXPAND_CONTEXT,
    boolean("all", "Return duplicates as results of their own, in place of `similar`."),
    HYPOTHESIS,
    PREFIX,
    boolean("with_history", "Search commits too; they are returned separately."),
    EXPLAIN,
    REFRESH,
    SETTINGS,
)
ASK = (
    string("query", "Question.", required=True),
    integer("limit", "Maximum number of passages for the model; default: 8.", 1, 100),
    MODE,
    MIN_CONFIDENCE,
    *FILTERS,
    integer("max_tokens", "Maximum size of the answer; default: 800.", 16, 100_000),
    RERANK,
    PARENTS,
    CONTEXT,
    EXPAND_CONTEXT,
    HYPOTHESIS,
    REFRESH,
    SETTINGS,
)
LIST = (
    string("query", "Query text; without it, all documents that match the filters."),
    string(
        "sort",
        "Order: relevance, date (newest first) or path. Default: relevance, or path without a query.",
        enum=["relevance", "date", "path"],
    ),
    integer("limit", "Documents on a page.", 1, 1000, default=MAX_LISTED),
    integer("page", "Number of the page, starting at 1.", 1, 1_000_000, default=1),
    MODE,
    MIN_CONFIDENCE,
    *FILTERS,
    PREFIX,
    boolean("refresh", "Index changed files before listing.", True),
    SETTINGS,
)
COMMITS = (
    string("query", "Query text, or the beginning of a commit hash.", required=True),
    integer("limit", "Maximum number of commits.", 1, 100, default=5),
    strings("files", "Only commits that changed a matching file: src/** or *.md."),
    strings("author", "Only commits by these authors: part of a name or e-mail address."),
    AFTER,
    BEFORE,
    MODE,
    MIN_CONFIDENCE,
    MAX_TOKENS,
    RERANK,
    EXPLAIN,
    boolean("refresh", "Index new commits before searching.", True),
    SETTINGS,
)
MAX_REF = 20_000
"""Characters of a reference: a path has at most 4,096 bytes, each at most three characters when percent-encoded."""


def reference(description: str, *, required: bool = True) -> Parameter:
    """Return the parameter for a document or a place in it."""
    return string("ref", description, required=required, maxLength=MAX_REF, aliases=("path",))


DOCUMENT = reference(
    "The document: a path, title or place as printed, such as guide/auth.md:10-40."
)
GET = (
    reference("A path or title, path#heading, path:10-40, marklight:// URI or a passage ID."),
    string("level", "Context level: passage, neighbours, block, parent, section or document."),
    integer("context", "Number of passages to add before and after.", 0, 20),
    string("collection", "Collection of the path.", maxLength=1000),
)
OUTLINE = (DOCUMENT,)
PAGE = (
    DOCUMENT,
    integer("line", "In a very long document, the part around this line.", 1, 10**9, default=1),
)
LINKS = (
    reference("The document; without it, broken links and orphans of the library.", required=False),
    integer("limit", "Maximum number of links of each kind.", 1, 1000, default=100),
)
RELATED = (DOCUMENT, integer("limit", "Maximum number of documents.", 1, 100, default=10))
GRAPH = (
    reference("Document in the centre; without it, the most linked documents.", required=False),
    integer("depth", "Maximum number of links from the centre.", 1, 3, default=1),
    integer("limit", "Maximum number of documents.", 1, 500, default=100),
)
DOCUMENTS = (
    string("like", "Only paths that contain this text.", maxLength=5000),
    string("after", "Cursor: the `next` value of the previous page.", maxLength=10_000),
    integer("limit", "Maximum number of documents.", 1, 1000, default=100),
)
INDEX = (
    boolean("rebuild", "Read all files again; embeddings of unchanged text are kept."),
    boolean(
        "history", "Also index git commits; by default only if they are already indexed.", None
    ),
)


class Result(Protocol):
    """Any result of the library."""

    def to_dict(self) -> dict[str, Any]: ...


@dataclass(frozen=True, slots=True)
class Operation:
    """A method of the library that programs can call, with its parameters."""

    parameters: Sequence[Parameter]
    subject: str = ""
    """The parameter that the method takes as its positional argument."""
    context: tuple[str, ...] = ()
    """Arguments that the caller itself adds: progress, check_cancelled, near, part, assignments, emit, model."""
    convert: Callable[[Any], Result | dict[str, Any]] = lambda result: result


OPERATIONS: Mapping[str, Operation] = {
    "search": Operation(
        SEARCH, "query", ("progress", "check_cancelled", "near", "part", "assignments")
    ),
    "ask": Operation(
        ASK,
        "query",
        ("progress", "check_cancelled", "near", "part", "assignments", "emit", "model"),
    ),
    "list_documents": Operation(
        LIST, "query", ("progress", "check_cancelled", "near", "part", "assignments")
    ),
    "commits": Operation(COMMITS, "query", ("progress", "check_cancelled", "assignments")),
    "get": Operation(GET, "ref", ("progress", "near")),
    "outline": Operation(OUTLINE, "ref", ("progress", "near")),
    "page": Operation(PAGE, "ref", ("progress", "near")),
    "links": Operation(LINKS, "ref", ("progress", "near")),
    "related": Operation(RELATED, "ref", ("progress", "near")),
    "graph": Operation(GRAPH, "ref", ("progress", "near")),
    "resolve": Operation(OUTLINE, "ref", ("progress", "near")),
    "documents": Operation(DOCUMENTS),
    "tags": Operation((), convert=lambda tags: {"tags": tags}),
    "index": Operation(INDEX, context=("progress",)),
    "status": Operation(()),
}


def call(
    library: Library, name: str, arguments: Mapping[str, Any], **context: Any
) -> dict[str, Any]:
    """Parse the arguments, execute an operation and return its result as JSON values."""
    result = execute(library, name, parse(operation(name).parameters, arguments), **context)
    return result if isinstance(result, dict) else result.to_dict()


def execute(
    library: Library, name: str, arguments: Mapping[str, Any], **context: Any
) -> Result | dict[str, Any]:
    """Execute an operation with parsed arguments; context that it does not take is ignored."""
    called = operation(name)
    used = {
        key: value for key, value in context.items() if key in called.context and value is not None
    }
    for folder in ("near", "part"):
        if folder in used:
            used[folder] = Path(used[folder])
    rest = {key: value for key, value in arguments.items() if key != called.subject}
    subject = [arguments.get(called.subject)] if called.subject else []
    return called.convert(getattr(library, name)(*subject, **rest, **used))


def operation(name: str) -> Operation:
    """Return the operation of this name."""
    if name not in OPERATIONS:
        raise NotFound(f"No such operation: {name!r}", f"Operations: {', '.join(OPERATIONS)}")
    return OPERATIONS[name]
