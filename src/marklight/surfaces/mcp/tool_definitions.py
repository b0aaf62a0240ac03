"""Definitions of the MCP tools: names, parameters and descriptions, kept short because every session pays for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

from marklight.errors import UsageError
from marklight.lazy import dataclass
from marklight.operations import MAX_REF, OPERATIONS
from marklight.parameters import Parameter, parse, suggest
from marklight.reference import has_wildcards
from marklight.surfaces.host import result_schema
from marklight.surfaces.mcp.rendering import DEFAULT_TOKENS, QUOTED

ALIASES = {
    **dict.fromkeys(("top_n", "top_k", "k", "max_results", "num_results"), "limit"),
    "min_score": "min_confidence",
    "tags": "tag",
    "excluded_files": "exclude",
    "file_pattern": "files",
    "changed_since": "after",
}
"""Names of parameters that are accepted but not listed."""
STAGE_SETTINGS = {
    "max_chunks_per_document": ("per_document", "max_passages"),
    "similarity_threshold": ("semantic_duplicates", "cosine"),
}
"""Tool parameters that set a search stage for one call."""
LIST_PAGE = 40
"""Documents on a page of a list: with lines of usual length they fit the default token budget."""
LINES_TOKENS = 150
"""Tokens of a document with some of its lines, which decide how many are on a page."""
LISTED_KEYWORDS = (*("type", "items", "additionalProperties", "enum", "default", "description"),)
"""Keywords of JSON Schema that tools/list contains; limits are checked by the server, whose error names them."""
RARE = frozenset(
    (
        "explain",
        "max_chunks_per_document",
        "similarity_threshold",
        "category",
        "links_from",
        "depth",
    )
)
"""Parameters that are accepted but not listed: seldom needed, or named by a note where they help."""
TOKENS: Mapping[str, Any] = {"minimum": 1, "maximum": 1_000_000, "default": DEFAULT_TOKENS}
PAGES: Mapping[str, Any] = {"minimum": 1, "maximum": 100_000, "default": 1}


def declared(operation: str, *names: str, **descriptions: str) -> tuple[Parameter, ...]:
    """Return parameters of an operation for a tool, some with descriptions of their own."""
    parameters = [OPERATIONS[operation][name] for name in (*names, *descriptions)]
    return tuple(
        _tool_parameter(each, descriptions.get(each.name, each.tool)) for each in parameters
    )


def _tool_parameter(parameter: Parameter, description: str | None) -> Parameter:
    schema = {**parameter.schema, "description": description or ""}
    if parameter.name == "max_tokens":
        schema |= TOKENS
    if parameter.name == "mode":
        del schema["default"]
    return replace(parameter, schema=schema, aliases=())


MAX_TOKENS = Parameter.of("max_tokens", "integer", "", **TOKENS)
REFS = Parameter(
    "ref",
    {
        "type": "array",
        "items": {"type": "string", "maxLength": MAX_REF},
        "maxItems": 100,
        "description": "path, title, path#heading, path:10-40, a glob, or several.",
    },
    required=True,
)
SEVERAL = {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]}
"""Schema of `ref` in tools/list: one reference or several."""
REF = "As in get_document."


@dataclass(frozen=True, slots=True)
class Tool:
    """An MCP tool, and the operation that it calls."""

    name: str
    title: str
    description: str
    operation: str
    parameters: Sequence[Parameter]
    unlisted: frozenset[str] = frozenset()
    """Parameters that are accepted but not listed."""

    @property
    def output_schema(self) -> dict[str, Any]:
        """Return the JSON Schema of structured content: the result of the operation."""
        schema = result_schema(self.operation)
        # In place of documents, `list_documents` can return the tags.
        return {**schema, "required": []} if self.operation == "list_documents" else schema

    @property
    def input_schema(self) -> dict[str, Any]:
        """Return the JSON Schema of the tool's arguments, as short as tools/list needs it."""
        listed = [each for each in self.parameters if each.name not in self.unlisted]
        required = [each.name for each in listed if each.required]
        return {
            "type": "object",
            "properties": {
                each.name: {**SEVERAL, "description": each.description}
                if each is REFS
                else _listed(each.schema)
                for each in listed
            },
            **({"required": required} if required else {}),
        }

    def parse(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Validate the arguments of a call; an alias is replaced by its name."""
        known = {each.name for each in self.parameters}
        aliases = ALIASES if "path" in known else {**ALIASES, "path": "ref"}
        renamed: dict[str, Any] = {}
        for name, value in arguments.items():
            target = name if name in known else aliases.get(name, name)
            if target not in known:
                hint = suggest(name, [each.name for each in self.parameters])
                raise UsageError(f"{self.name} has no parameter {name[:100]!r}", hint)
            if name == target or arguments.get(target) is None:
                renamed[target] = value
        if self.operation == "get" and renamed.get("ref") == []:
            del renamed["ref"]
        return parse(self.parameters, renamed)

    def operation_arguments(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments of the operation for validated arguments of the tool."""
        values = dict(arguments)
        stages: dict[str, dict[str, Any]] = {}
        for name, (stage, setting) in STAGE_SETTINGS.items():
            if name in values:
                stages[stage] = {setting: values.pop(name)}
        if stages:
            values["settings"] = {"search": stages}
        if self.operation == "list_documents":
            values["lines"] = values.get("show") == "lines"
            tokens = values.get("max_tokens", DEFAULT_TOKENS)
            values["limit"] = max(1, tokens // LINES_TOKENS) if values["lines"] else LIST_PAGE
            if "category" in values:
                values["where"] = {"category": values.pop("category")}
        if self.operation == "search":
            values.setdefault("query", values.get("hypothesis"))
        if self.operation in ("search", "commits"):
            values.setdefault("max_tokens", DEFAULT_TOKENS)
        if self.operation == "get" and len(refs := values["ref"]) == 1:
            values["ref"] = refs if has_wildcards(refs[0]) else refs[0]
        return values


def _listed(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return a schema without limits and without an empty description."""
    listed = {key: schema[key] for key in LISTED_KEYWORDS if schema.get(key) not in (None, "")}
    if listed.get("default") is False:
        del listed["default"]  # the default of any flag
    for nested in ("items", "additionalProperties"):
        if nested in listed:
            listed[nested] = {"type": listed[nested]["type"]}
    return listed


@cache
def tools_for(several_collections: bool, reranker: bool = True) -> Mapping[str, Tool]:
    """Return the tools by name; `collection` is offered with several collections, `rerank` with a reranker."""
    collection = ("collection",) if several_collections else ()
    searching = [
        each.name
        for each in OPERATIONS["search"].parameters
        if each.tool is not None and each.name not in ("query", "collection")
    ]
    tools = (
        Tool(
            "query_documents",
            "Search documents",
            f"Find passages that answer a query, by keywords and meaning, best first. {QUOTED}",
            "search",
            (
                *declared("search", "query", *searching, *collection),
                Parameter.of(
                    *("max_chunks_per_document", "integer", "Results per document."),
                    minimum=1,
                    maximum=100,
                    default=2,
                ),
                Parameter.of(
                    *("similarity_threshold", "number", "Minimum cosine of duplicates."),
                    minimum=0.01,
                    maximum=1,
                ),
            ),
            unlisted=RARE if reranker else RARE | {"rerank"},
        ),
        Tool(
            "list_documents",
            "List documents",
            "List every document with all words of a query, or all that match filters (changed since March), counted;"
            " show=lines adds their matching lines (every place that names X).",
            "list_documents",
            (
                *declared(
                    "list_documents",
                    *("path", "tag", *collection, "sort", "page"),
                    query='Words, or an "exact phrase" in quotes.',
                    after="Changed since.",
                ),
                Parameter.of("category", "string", "In frontmatter."),
                Parameter.of("links_to", "string", "Linking to this document.", maxLength=MAX_REF),
                Parameter.of(
                    "links_from", "string", "Linked from this document.", maxLength=MAX_REF
                ),
                Parameter.of(
                    "show", "string", "What to list.", enum=["documents", "lines", "tags"]
                ),
                MAX_TOKENS,
            ),
            unlisted=RARE,
        ),
        Tool(
            "search_with_hypothesis",
            "Search by hypothesis",
            "query_documents with an answer that you invent; takes its parameters.",
            "search",
            (
                replace(
                    *declared(
                        "search",
                        hypothesis="Two sentences in the style of the documents.",
                    ),
                    required=True,
                ),
                *declared("search", **dict.fromkeys([*searching, *collection], "")),
            ),
            unlisted=frozenset([*searching, *collection]),
        ),
        Tool(
            "search_git_history",
            "Search commits",
            "Find git commits by message and diff: when, by whom and why something changed.",
            "commits",
            declared(
                "commits",
                query="Words or a commit hash.",
                limit="",
                min_confidence="",
                files="Changed files: src/**",
                author="Part of a name.",
                after="",
                before="",
                max_tokens="",
            ),
            unlisted=frozenset({"min_confidence", "max_tokens"}),
        ),
        Tool(
            "get_document",
            "Read a document",
            "Read documents, sections or ranges of lines. A long text ends with the ref to continue from.",
            "get",
            (
                REFS,
                Parameter.of("line_numbers", "boolean", "Number the lines.", default=False),
                MAX_TOKENS,
            ),
        ),
        Tool(
            "outline",
            "Outline",
            "List the headings of a document with lines and anchors.",
            "outline",
            (
                *declared("outline", ref=REF),
                Parameter.of("depth", "integer", "Levels of headings.", minimum=1, maximum=100),
                Parameter.of("section", "string", "A heading."),
                Parameter.of("page", "integer", "", **PAGES),
                MAX_TOKENS,
            ),
            unlisted=RARE | {"page", "max_tokens"},
        ),
        Tool(
            "related_documents",
            "Related documents",
            "List documents related to one by links, tags or meaning.",
            "related",
            declared("related", ref=REF),
        ),
        Tool(
            "index_status",
            "Index status",
            "Show what is indexed, in progress and failed.",
            "status",
            (),
        ),
    )
    return {tool.name: tool for tool in tools}
