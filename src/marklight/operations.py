"""Declare the operations of a library once: names, parameters with types, bounds, defaults and descriptions, results.

Python signatures, validation, command-line options, HTTP parameters, OpenAPI, MCP tools and the reference page are
derived from the annotated methods of `Operations`. `Library` executes them; `RemoteLibrary` sends them to a daemon.
"""

# mypy: disable-error-code="empty-body"

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, ParamSpec, TypeVar, cast

from marklight.errors import NotFound
from marklight.parameters import MAX_TEXT, OBJECT, STRING_VALUES, STRINGS, Operation, about

if TYPE_CHECKING:
    from marklight.answer import Answer
    from marklight.ports import LanguageModel
    from marklight.report import (
        DocumentList,
        Extract,
        Graph,
        Links,
        Outline,
        Page,
        Related,
        Report,
        Status,
    )
    from marklight.results import CitedAnswer, Commits, Listing, Sentence

Given = ParamSpec("Given")
Result = TypeVar("Result")
Texts = str | os.PathLike[str] | Iterable[str | os.PathLike[str]] | None
"""One text or several."""
ModeName = Literal["hybrid", "semantic", "keyword", "code"]
SortName = Literal["relevance", "date", "path"]
LevelName = Literal["passage", "neighbours", "block", "parent", "section", "document"]
MAX_REF = 20_000
"""Characters of a reference: a path has at most 4,096 bytes, each at most three characters when percent-encoded."""

PHRASING = {
    "type": ["string", "object"],
    "maxLength": MAX_TEXT,
    "pattern": r"\S",
    "properties": {
        "type": {"type": "string", "enum": ["hybrid", "keyword", "semantic", "hypothesis"]},
        "query": {"type": "string", "minLength": 1, "pattern": r"\S"},
    },
    "required": ["query"],
}
"""Schema of a further query."""

QueryText = Annotated[str, about("Query text.", tool='One question, or words; "exact phrase".')]
Queries = Annotated[
    Iterable[str | Mapping[str, str]],
    about(
        "Further phrasings of the query, whose results are fused.",
        {"type": "array", "items": PHRASING, "maxItems": 8},
        metavar="TEXT",
        tool='Other phrasings, fused: text, or {"type": "keyword|semantic|hypothesis", "query": text}.',
    ),
]
Limit = Annotated[int, about("Maximum number of results.", tool="", minimum=1, maximum=100)]
Mode = Annotated[
    ModeName | None,
    about(
        "Search method: hybrid (keywords and meaning), semantic (meaning only), keyword (no model) or code (code blocks).",
        tool="",
    ),
]
MinConfidence = Annotated[
    float | None,
    about(
        "Minimum score, 0 to 1, in place of the default confidence check; 0 returns all results.",
        metavar="X",
        tool="0 shows everything.",
        minimum=0,
        maximum=1,
    ),
]
PathFilter = Annotated[
    Texts,
    about(
        "Only documents at these places, or that match these globs: guide/** or *.md.",
        STRINGS,
        metavar="GLOB",
        tool="Globs or paths: guide/**",
    ),
]
TagFilter = Annotated[
    Texts,
    about(
        "Only documents with one of these tags or a subtag, such as release/web for release.",
        STRINGS,
        metavar="TAG",
        tool="",
    ),
]
WhereFilter = Annotated[
    Mapping[str, str] | Texts,
    about(
        "Only documents with these frontmatter values.",
        STRING_VALUES,
        metavar="KEY=VALUE",
        tool="Frontmatter values.",
    ),
]
After = Annotated[
    str | date | None,
    about(
        "Only on or after this date: 2026-01-31 or 2026-01.",
        {"type": "string"},
        metavar="DATE",
        tool="2026-01-31 or 2026-01",
        maxLength=100,
    ),
]
Before = Annotated[
    str | date | None,
    about(
        "Only on or before this date.",
        {"type": "string"},
        metavar="DATE",
        tool="",
        maxLength=100,
    ),
]
ExcludeFilter = Annotated[
    Texts,
    about("Exclude these places or globs.", STRINGS, metavar="GLOB", tool="What you have read."),
]
CollectionFilter = Annotated[
    Texts, about("Only documents in these collections.", STRINGS, metavar="NAME", tool="")
]
MaxTokens = Annotated[
    int | None,
    about(
        "Maximum size of the answer in tokens.",
        metavar="N",
        tool="",
        minimum=1,
        maximum=1_000_000,
    ),
]
Rerank = Annotated[
    bool | None,
    about("Rerank the best results with a cross-encoder.", tool="Slower, more precise."),
]
Parents = Annotated[
    bool,
    about(
        "Return larger passages: each match with its neighbours, up to 2,000 characters.",
        tool="Complete the section around each match, up to 2,000 characters.",
    ),
]
Context = Annotated[
    int,
    about(
        "Number of neighbouring passages to add on each side.", metavar="N", minimum=0, maximum=20
    ),
]
ExpandContext = Annotated[bool, about("Return the whole section that contains each result.")]
Hypothesis = Annotated[
    str | None,
    about(
        "A hypothetical answer, which semantic search embeds in place of the query (HyDE).",
        metavar="TEXT",
    ),
]
Prefix = Annotated[bool, about("The last word may be unfinished, as while somebody types.")]
Explain = Annotated[
    bool, about("Add the search stages with timings, and how each score was computed.", tool="")
]
Refresh = Annotated[bool, about("Index changed files before searching.")]
SearchSettings = Annotated[
    Mapping[str, Any] | None, about("Settings of [search] for this call.", OBJECT)
]
Ref = Annotated[
    str,
    about(
        "The document: a path, title or place as printed, such as guide/auth.md:10-40.",
        aliases=("path",),
        maxLength=MAX_REF,
    ),
]

Progress = Callable[[str, int, int], None] | None
CheckCancelled = Callable[[], None] | None

OPERATIONS: dict[str, Operation] = {}
"""The operations by name."""


def operation(method: Callable[Given, Result]) -> Callable[Given, Result]:
    """Declare an operation; a call of the method binds its arguments by name and runs it."""
    declared = OPERATIONS[method.__name__] = Operation.of(method)

    @wraps(method)
    def call(library: Any, *arguments: Any, **keywords: Any) -> Any:
        return library.run(declared.name, declared.bind(arguments, keywords))

    return cast(Callable[Given, Result], call)


def find_operation(name: str) -> Operation:
    """Return the operation of this name."""
    if name not in OPERATIONS:
        raise NotFound(f"No such operation: {name!r}", f"Operations: {', '.join(OPERATIONS)}")
    return OPERATIONS[name]


class Operations:
    """The operations of a library. Undescribed arguments are for callers in the same process:

    `near` is the folder that paths may be relative to, `part` the folder that the search is limited to, and
    `assignments` are settings in the form KEY=VALUE, as `--set` takes them.
    """

    def run(self, name: str, arguments: Mapping[str, Any]) -> Any:
        """Run an operation with the arguments of a call in Python, which are not validated yet."""
        raise NotImplementedError

    @operation
    def search(
        self,
        query: QueryText,
        *,
        limit: Annotated[
            int | None,
            about(
                "Maximum number of results; default: 5, or what max_tokens has room for.",
                tool="",
                minimum=1,
                maximum=100,
            ),
        ] = None,
        mode: Mode = "hybrid",
        min_confidence: MinConfidence = None,
        path: PathFilter = (),
        tag: TagFilter = (),
        where: WhereFilter = (),
        after: After = None,
        before: Before = None,
        exclude: ExcludeFilter = (),
        collection: CollectionFilter = (),
        max_tokens: MaxTokens = None,
        rerank: Rerank = None,
        parents: Parents = False,
        context: Context = 0,
        expand_context: ExpandContext = False,
        all: Annotated[
            bool, about("Return duplicates as results of their own, in place of `similar`.")
        ] = False,
        hypothesis: Hypothesis = None,
        queries: Queries = (),
        prefix: Prefix = False,
        with_history: Annotated[
            bool, about("Search commits too; they are returned separately.")
        ] = False,
        explain: Explain = False,
        refresh: Refresh = True,
        settings: SearchSettings = None,
        assignments: Sequence[str] = (),
        near: Path | None = None,
        part: Path | None = None,
        progress: Progress = None,
        check_cancelled: CheckCancelled = None,
    ) -> "Answer":
        """Find passages; the index is brought up to date first unless `refresh` is false."""

    @operation
    def ask(
        self,
        query: Annotated[str, about("Question.", tool='A question or words; "exact phrase".')],
        *,
        limit: Annotated[
            int | None,
            about(
                "Maximum number of passages for the model; default: 8.",
                minimum=1,
                maximum=100,
            ),
        ] = None,
        mode: Mode = "hybrid",
        min_confidence: MinConfidence = None,
        path: PathFilter = (),
        tag: TagFilter = (),
        where: WhereFilter = (),
        after: After = None,
        before: Before = None,
        exclude: ExcludeFilter = (),
        collection: CollectionFilter = (),
        max_tokens: Annotated[
            int | None,
            about(
                "Maximum size of the answer; default: 800.",
                metavar="N",
                minimum=16,
                maximum=100_000,
            ),
        ] = None,
        rerank: Rerank = None,
        parents: Parents = False,
        context: Context = 0,
        expand_context: ExpandContext = False,
        hypothesis: Hypothesis = None,
        refresh: Refresh = True,
        settings: SearchSettings = None,
        assignments: Sequence[str] = (),
        near: Path | None = None,
        part: Path | None = None,
        model: "LanguageModel | None" = None,
        emit: "Callable[[Answer | Sentence], None] | None" = None,
        progress: Progress = None,
        check_cancelled: CheckCancelled = None,
    ) -> "CitedAnswer":
        """Return an answer that a language model writes from the results of a search, each sentence with its sources.

        `model` replaces the configured one. `emit` receives the search, then each sentence once it is checked.
        """

    @operation
    def list_documents(
        self,
        query: Annotated[
            str | None,
            about(
                'Words, or an "exact phrase" in quotes; without it, all documents that match the filters.'
            ),
        ] = None,
        *,
        sort: Annotated[
            SortName | None,
            about(
                "Order: relevance, date (newest first) or path. Default: relevance, or path without a query."
            ),
        ] = None,
        limit: Annotated[
            int | None,
            about("Documents on a page; the count is of all.", minimum=1, maximum=1_000_000),
        ] = None,
        page: Annotated[
            int, about("Number of the page, starting at 1.", minimum=1, maximum=1_000_000)
        ] = 1,
        lines: Annotated[
            bool,
            about(
                "Add the matching lines of each document, with their section: those with the phrase in quotes, else"
                " those with the most words."
            ),
        ] = False,
        mode: Mode = "hybrid",
        min_confidence: MinConfidence = None,
        path: PathFilter = (),
        tag: TagFilter = (),
        where: WhereFilter = (),
        after: After = None,
        before: Before = None,
        exclude: ExcludeFilter = (),
        collection: CollectionFilter = (),
        prefix: Prefix = False,
        refresh: Refresh = True,
        settings: SearchSettings = None,
        assignments: Sequence[str] = (),
        near: Path | None = None,
        part: Path | None = None,
        progress: Progress = None,
        check_cancelled: CheckCancelled = None,
    ) -> "Listing":
        """Return all documents that match a query, counted and sorted; without a query, all that match the filters."""

    @operation
    def commits(
        self,
        query: Annotated[str, about("Query text, or the beginning of a commit hash.")],
        *,
        limit: Annotated[int, about("Maximum number of commits.", minimum=1, maximum=100)] = 5,
        files: Annotated[
            Texts,
            about(
                "Only commits that changed a matching file: src/** or *.md.",
                STRINGS,
                metavar="GLOB",
            ),
        ] = (),
        author: Annotated[
            Texts,
            about(
                "Only commits by these authors: part of a name or e-mail address.",
                STRINGS,
                metavar="NAME",
            ),
        ] = (),
        after: After = None,
        before: Before = None,
        mode: Mode = "hybrid",
        min_confidence: MinConfidence = None,
        max_tokens: MaxTokens = None,
        rerank: Rerank = None,
        explain: Explain = False,
        refresh: Annotated[bool, about("Index new commits before searching.")] = True,
        settings: SearchSettings = None,
        assignments: Sequence[str] = (),
        progress: Progress = None,
        check_cancelled: CheckCancelled = None,
    ) -> "Commits":
        """Find commits of the git repositories that contain the collections; new ones are indexed first."""

    @operation
    def get(
        self,
        ref: Annotated[
            str,
            about(
                "A path or title, path#heading, path:10-40, marklight:// URI or a passage ID.",
                aliases=("path",),
                maxLength=MAX_REF,
            ),
        ],
        *,
        level: Annotated[
            LevelName | None,
            about(
                "How much to return, smallest first: passage, neighbours (one passage on each side), block (the whole"
                " table or code block), parent (neighbouring passages up to 2,000 characters), section or document."
            ),
        ] = None,
        context: Annotated[
            int | None,
            about(
                "Number of passages to add before and after.", metavar="N", minimum=0, maximum=20
            ),
        ] = None,
        collection: Annotated[str | None, about("Collection of the path.", maxLength=1000)] = None,
        near: Path | None = None,
        progress: Progress = None,
    ) -> "Extract":
        """Return a document or a part of it: any place as printed, a path or title, or a passage's id.

        With a collection, only an exact path in it is accepted.
        """

    @operation
    def outline(
        self, ref: Ref, *, near: Path | None = None, progress: Progress = None
    ) -> "Outline":
        """Return the headings of a document."""

    @operation
    def page(
        self,
        ref: Ref,
        *,
        line: Annotated[
            int,
            about("In a very long document, the part around this line.", minimum=1, maximum=10**9),
        ] = 1,
        near: Path | None = None,
        progress: Progress = None,
    ) -> "Page":
        """Return a document as safe HTML; of a very long one the part around a line."""

    @operation
    def links(
        self,
        ref: Annotated[
            str | None,
            about(
                "The document; without it, broken links and orphans of the library.",
                aliases=("path",),
                maxLength=MAX_REF,
            ),
        ] = None,
        *,
        limit: Annotated[
            int, about("Maximum number of links of each kind.", minimum=1, maximum=1000)
        ] = 100,
        near: Path | None = None,
        progress: Progress = None,
    ) -> "Links":
        """Return the links to and from a document; without one, unresolved links and orphans of the library."""

    @operation
    def related(
        self,
        ref: Ref,
        *,
        limit: Annotated[int, about("Maximum number of documents.", minimum=1, maximum=100)] = 10,
        near: Path | None = None,
        progress: Progress = None,
    ) -> "Related":
        """Return the documents most related to a document, each with the reasons."""

    @operation
    def graph(
        self,
        ref: Annotated[
            str | None,
            about(
                "Document in the centre; without it, the most linked documents.",
                aliases=("path",),
                maxLength=MAX_REF,
            ),
        ] = None,
        *,
        depth: Annotated[
            int, about("Maximum number of links from the centre.", minimum=1, maximum=3)
        ] = 1,
        limit: Annotated[int, about("Maximum number of documents.", minimum=1, maximum=500)] = 100,
        near: Path | None = None,
        progress: Progress = None,
    ) -> "Graph":
        """Return the link graph around a document; without one, of the documents with the most links."""

    @operation
    def resolve(
        self, ref: Ref, *, near: Path | None = None, progress: Progress = None
    ) -> "DocumentList":
        """Return the document that a reference means, or all documents that match a glob."""

    @operation
    def documents(
        self,
        *,
        like: Annotated[str, about("Only paths that contain this text.", maxLength=5000)] = "",
        after: Annotated[
            str, about("Cursor: the `next` value of the previous page.", maxLength=10_000)
        ] = "",
        limit: Annotated[int, about("Maximum number of documents.", minimum=1, maximum=1000)] = 100,
    ) -> "DocumentList":
        """Return the indexed documents, paginated; with `like`, the best matches of a text in paths."""

    @operation
    def tags(self) -> dict[str, int]:
        """Return the number of documents with each tag, or with one nested below it."""

    @operation
    def index(
        self,
        *,
        rebuild: Annotated[
            bool, about("Read all files again; embeddings of unchanged text are kept.")
        ] = False,
        history: Annotated[
            bool | None,
            about("Also index git commits; by default only if they are already indexed."),
        ] = None,
        progress: Progress = None,
    ) -> "Report":
        """Bring the index up to date: text first, which is searchable at once, then vectors."""

    @operation
    def status(self) -> "Status":
        """Return what is indexed, what is pending and what failed."""
