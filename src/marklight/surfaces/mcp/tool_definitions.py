"""Definitions of the MCP tools: names, parameters and descriptions, kept short because every session pays for them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from marklight.errors import UsageError
from marklight.reference import has_wildcards
from marklight.surfaces import schemas
from marklight.surfaces.mcp.calls import QUERY_TYPES, parse_queries
from marklight.surfaces.mcp.rendering import DEFAULT_TOKENS, QUOTED
from marklight.surfaces.operations import MAX_REF
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
    suggest,
)

OPERATION_NAMES = {
    "top_n": "limit",
    "min_score": "min_confidence",
    "tags": "tag",
    "excluded_files": "exclude",
    "file_pattern": "files",
    "changed_since": "after",
}
"""Tool parameters whose operation parameter has another name."""
STAGE_SETTINGS = {
    "max_chunks_per_document": ("per_document", "max_passages"),
    "similarity_threshold": ("semantic_duplicates", "cosine"),
}
"""Tool parameters that set a search stage for one call."""
RENDERED = {
    "list_documents": ("max_tokens",),
    "get": ("max_tokens", "line_numbers"),
    "outline": ("max_tokens", "depth", "section", "page"),
}
"""Tool parameters that change the text of a result and not the operation."""
LIST_PAGE = 40
"""Documents on a page of a list: with lines of usual length they fit the default token budget."""
LISTED_KEYWORDS = (
    *("type", "items", "properties", "additionalProperties", "enum", "default", "description"),
)
"""Keywords of JSON Schema that tools/list contains; limits are checked by the server, whose error names them."""

QUERY = string("query", "A question or words; quote exact phrases.", required=True)
TOP_N = integer("top_n", "", 1, 100, default=5)
MIN_SCORE = number("min_score", "0 shows everything.", 0, 1)
FILTERS = (
    strings("path", "Globs or paths: guide/**"),
    strings("tags", ""),
    mapping("where", "Frontmatter values.", {"type": "string", "maxLength": 1000}),
    string("after", "2026-01-31 or 2026-01", maxLength=100),
    string("before", "", maxLength=100),
    strings("excluded_files", "Files already read."),
)
COLLECTION = strings("collection", "")
MAX_TOKENS = integer("max_tokens", "", 1, 1_000_000, default=DEFAULT_TOKENS)
PAGE = integer("page", "", 1, 100_000, default=1)
RERANK = boolean("rerank", "Slower, more precise.", None)
REF = string("ref", "Path, title or any place in an answer.", required=True, maxLength=MAX_REF)
REFS = Parameter(
    "ref",
    {
        "type": "array",
        "items": {"type": "string", "maxLength": MAX_REF},
        "maxItems": 100,
        "description": "Path or title, path#heading, path:10-40, a glob, or a list of them.",
    },
    required=True,
)
QUERIES = Parameter(
    "queries",
    {
        "type": "array",
        "items": {
            "type": "object",
            "properties": {
                "type": {"type": "string", "enum": list(QUERY_TYPES[1:])},
                "query": {"type": "string"},
            },
        },
        "description": "More phrasings, fused.",
    },
)
SEVERAL = {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]}
"""Schema of `ref` in tools/list: one reference or several."""
PATH = string("path", "Alias of ref.", maxLength=5000)


@dataclass(frozen=True, slots=True)
class Tool:
    """An MCP tool, and the operation that it calls."""

    name: str
    title: str
    description: str
    operation: str
    parameters: Sequence[Parameter]
    output_schema: schemas.Schema
    aliases: Mapping[str, str] = field(default_factory=dict)
    """Other names of parameters; those that are not among the parameters are accepted but not listed."""
    unlisted: frozenset[str] = frozenset()
    """Parameters that are accepted but not listed."""

    @property
    def input_schema(self) -> dict[str, Any]:
        """Return the JSON Schema of the tool's arguments, as short as tools/list needs it."""
        listed = [each for each in self.parameters if each.name not in self.unlisted]
        aliased = {self.aliases[each.name] for each in listed if each.name in self.aliases}
        required = [each.name for each in listed if each.required and each.name not in aliased]
        return {
            "type": "object",
            "properties": {
                each.name: _listed_reference(each) if each is REFS else _listed(each.schema)
                for each in listed
            },
            **({"required": required} if required else {}),
        }

    def parse(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Validate the arguments of a call; an alias is replaced by its name."""
        known = {each.name: each for each in self.parameters if each.name not in self.aliases}
        queries = parse_queries(arguments["queries"]) if arguments.get("queries") else None
        renamed: dict[str, Any] = {}
        for name, value in arguments.items():
            target = self.aliases.get(name, name)
            if target not in known:
                raise UsageError(
                    f"{self.name} has no parameter {name[:100]!r}", _suggest(name, known)
                )
            if name != "queries" and (name == target or arguments.get(target) is None):
                renamed[target] = value
        if self.operation == "get" and renamed.get("ref") == []:
            del renamed["ref"]
        values = parse(tuple(known.values()), renamed)
        return {**values, "queries": queries} if queries else values

    def operation_arguments(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments of the operation for validated arguments of the tool."""
        translated: dict[str, Any] = {}
        stages: dict[str, dict[str, Any]] = {}
        for name, value in arguments.items():
            if name in STAGE_SETTINGS:
                stage, setting = STAGE_SETTINGS[name]
                stages[stage] = {setting: value}
            else:
                translated[OPERATION_NAMES.get(name, name)] = value
        if stages:
            translated["settings"] = {"search": stages}
        if self.operation == "list_documents":
            translated["limit"] = LIST_PAGE
            if "category" in translated:
                translated["where"] = {"category": translated.pop("category")}
        if self.operation == "search":
            translated.setdefault("query", translated.get("hypothesis"))
        if self.operation in ("search", "commits"):
            translated.setdefault("max_tokens", DEFAULT_TOKENS)
        for name in RENDERED.get(self.operation, ()):
            translated.pop(name, None)
        if self.operation == "get" and len(refs := translated["ref"]) == 1:
            translated["ref"] = refs if has_wildcards(refs[0]) else refs[0]
        return translated


def _listed(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return a schema without limits and without an empty description."""
    listed = {key: schema[key] for key in LISTED_KEYWORDS if schema.get(key) not in (None, "")}
    if listed.get("default") is False:
        del listed["default"]  # the default of any flag
    for nested in ("items", "additionalProperties"):
        if nested in listed:
            listed[nested] = _listed(listed[nested])
    return listed


def _listed_reference(parameter: Parameter) -> dict[str, Any]:
    """Return the schema of one reference or several."""
    return {**SEVERAL, "description": parameter.schema["description"]}


def _suggest(name: str, known: Iterable[str]) -> str:
    """Return a hint for an unknown parameter; the name of an operation's parameter suggests the tool's own."""
    names = list(known)
    own = next((each for each, other in OPERATION_NAMES.items() if other == name), "")
    if own in names:
        return f"Did you mean {own!r}? Known: {', '.join(names)}"
    return suggest(name, names)


def _undescribed(parameters: Iterable[Parameter]) -> tuple[Parameter, ...]:
    """Return parameters without descriptions, for tools whose description refers to query_documents."""
    return tuple(each._replace(schema={**each.schema, "description": ""}) for each in parameters)


@cache
def tools_for(several_collections: bool, reranker: bool = True) -> Mapping[str, Tool]:
    """Return the tools by name; `collection` is offered with several collections, `rerank` with a reranker."""
    filters = (*FILTERS, COLLECTION) if several_collections else FILTERS
    tools = (
        Tool(
            "query_documents",
            "Search documents",
            "Find passages that answer a query, by keywords and meaning, best first: [n] path:lines § headings (score:"
            f" probability that it answers), then the passage. Reports when nothing answers. {QUOTED}",
            "search",
            (
                QUERY,
                QUERIES,
                TOP_N,
                MIN_SCORE,
                string("mode", "", enum=list(MODES), default="hybrid"),
                *filters,
                integer("max_chunks_per_document", "Results per document.", 1, 100, default=2),
                number("similarity_threshold", "Cosine of duplicates.", 0.01, 1),
                RERANK,
                boolean("parents", "Larger passages."),
                MAX_TOKENS,
                boolean("explain", ""),
            ),
            schemas.ANSWER,
            unlisted=frozenset() if reranker else frozenset({"rerank"}),
        ),
        Tool(
            "list_documents",
            "List documents",
            "List every document with all words of a query, or all that match filters (everything about X, changed"
            " since March): the count, then a line each with title and date. Or list the tags.",
            "list_documents",
            (
                string("query", "Words."),
                *(each for each in filters if each.name in ("path", "tags", "collection")),
                string("category", "In frontmatter.", maxLength=1000),
                string("changed_since", "2026-01-31 or 2026-01", maxLength=100),
                string("sort", "", enum=["relevance", "date", "path"]),
                string("links_to", "Linking to this document.", maxLength=MAX_REF),
                string("show", "What to list.", enum=["documents", "tags"]),
                PAGE,
                MAX_TOKENS,
            ),
            schemas.LISTING,
        ),
        Tool(
            "search_with_hypothesis",
            "Search by hypothesis",
            "Find passages similar to an answer that you invent, if query_documents finds too little; all its"
            " filters work.",
            "search",
            (
                string(
                    "hypothesis",
                    "Two sentences as the documents might phrase the answer.",
                    required=True,
                ),
                *_undescribed((TOP_N, MIN_SCORE, *filters, MAX_TOKENS)),
            ),
            schemas.ANSWER,
            unlisted=frozenset(
                {"min_score", "where", "after", "before", "excluded_files", "collection"}
            ),
        ),
        Tool(
            "search_git_history",
            "Search commits",
            "Search messages and diffs of git commits: when, by whom and why something changed.",
            "commits",
            (
                QUERY._replace(schema={**QUERY.schema, "description": "Words or a commit hash."}),
                *_undescribed((TOP_N, MIN_SCORE)),
                strings("file_pattern", "Globs of changed files: src/**"),
                strings("author", "Part of a name or address."),
                *_undescribed(each for each in FILTERS if each.name in ("after", "before")),
                *_undescribed((MAX_TOKENS,)),
            ),
            schemas.COMMITS,
            unlisted=frozenset({"min_score"}),
        ),
        Tool(
            "get_document",
            "Read a document",
            "Read documents, sections or ranges of lines. A long text is cut and ends with the ref to continue"
            f" from. {QUOTED}",
            "get",
            (REFS, boolean("line_numbers", "Number the lines."), *_undescribed((MAX_TOKENS,))),
            schemas.EXTRACT,
            aliases={"path": "ref"},
        ),
        Tool(
            "outline",
            "Outline",
            "List the headings of a document with lines and anchors.",
            "outline",
            (
                REF,
                PATH,
                integer("depth", "Levels of headings.", 1, 100),
                string("section", "A heading.", maxLength=1000),
                PAGE,
                MAX_TOKENS,
            ),
            schemas.OUTLINE,
            aliases={"path": "ref"},
        ),
        Tool(
            "related_documents",
            "Related documents",
            "List documents related to a document by links, shared tags or meaning, with the reasons.",
            "related",
            (REF, PATH),
            schemas.RELATED,
            aliases={"path": "ref"},
        ),
        Tool(
            "index_status",
            "Index status",
            "Show how much is indexed, what is in progress and which files failed.",
            "status",
            (),
            schemas.STATUS,
        ),
    )
    return {tool.name: tool for tool in tools}
