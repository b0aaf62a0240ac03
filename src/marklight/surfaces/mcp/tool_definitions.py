"""Definitions of the MCP tools: names, parameters and descriptions, kept short because every session pays for them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from marklight.errors import UsageError
from marklight.surfaces import schemas
from marklight.surfaces.mcp.rendering import DEFAULT_TOKENS, QUOTED
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
LIST_PAGE = 40
"""Documents on a page of a list: with lines of usual length they fit the default token budget."""
LISTED_KEYWORDS = ("type", "items", "additionalProperties", "enum", "default", "description")
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
    strings("excluded_files", "Globs or paths, such as files already read."),
)
COLLECTION = strings("collection", "")
MAX_TOKENS = integer("max_tokens", "", 1, 1_000_000, default=DEFAULT_TOKENS)
RERANK = boolean("rerank", "Rerank with a cross-encoder; slower.", None)
REF = string(
    "ref",
    "Path or title, path#heading, path:10-40, or any place in an answer.",
    required=True,
    maxLength=5000,
)
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
            "properties": {each.name: _listed(each.schema) for each in listed},
            **({"required": required} if required else {}),
        }

    def parse(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Validate the arguments of a call; an alias is replaced by its name."""
        known = {each.name: each for each in self.parameters if each.name not in self.aliases}
        renamed: dict[str, Any] = {}
        for name, value in arguments.items():
            target = self.aliases.get(name, name)
            if target not in known:
                raise UsageError(
                    f"{self.name} has no parameter {name[:100]!r}", _suggest(name, known)
                )
            if name == target or arguments.get(target) is None:
                renamed[target] = value
        return parse(tuple(known.values()), renamed)

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
            translated.pop("max_tokens", None)
            translated["limit"] = LIST_PAGE
            if "category" in translated:
                translated["where"] = {"category": translated.pop("category")}
        if self.operation == "search":
            translated.setdefault("query", translated.get("hypothesis"))
        if self.operation in ("search", "commits"):
            translated.setdefault("max_tokens", DEFAULT_TOKENS)
        if self.operation == "get":
            translated.pop("max_tokens", None)
        if self.operation in ("outline", "related"):
            translated["path"] = translated.pop("ref")
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
            "Find passages that answer a query, by keywords and by meaning. Returns the best first, each as"
            " [n] path:lines § headings (score: probability that it answers), then the passage. Reports when"
            f" nothing answers. {QUOTED}",
            "search",
            (
                QUERY,
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
            "List every document that contains all words of a query or that matches filters: the count, then one"
            " line each with title and date. For questions such as everything about X, or what changed since March.",
            "list_documents",
            (
                string("query", "Words; optional."),
                *(each for each in filters if each.name in ("path", "tags", "collection")),
                string("category", "In frontmatter.", maxLength=1000),
                string("changed_since", "2026-01-31 or 2026-01", maxLength=100),
                string("sort", "", enum=["relevance", "date", "path"]),
                integer("page", "", 1, 100_000, default=1),
                MAX_TOKENS,
            ),
            schemas.LISTING,
        ),
        Tool(
            "search_with_hypothesis",
            "Search with a hypothetical answer",
            "Find passages similar to an answer that you invent, if query_documents finds too little."
            " Other parameters as there.",
            "search",
            (
                string(
                    "hypothesis",
                    "Two or three sentences as the documents might phrase the answer.",
                    required=True,
                ),
                *_undescribed((TOP_N, MIN_SCORE, *filters, MAX_TOKENS)),
            ),
            schemas.ANSWER,
        ),
        Tool(
            "search_git_history",
            "Search commits",
            "Search messages and diffs of git commits: when, by whom and why something changed. Returns hash, date,"
            " author and subject, best first.",
            "commits",
            (
                QUERY._replace(schema={**QUERY.schema, "description": "Words or a commit hash."}),
                *_undescribed((TOP_N, MIN_SCORE)),
                strings("file_pattern", "Only commits that changed these globs: src/**"),
                strings("author", "Part of a name or e-mail address."),
                *_undescribed(each for each in FILTERS if each.name in ("after", "before")),
                *_undescribed((MAX_TOKENS,)),
            ),
            schemas.COMMITS,
        ),
        Tool(
            "get_document",
            "Read a document",
            "Read a document, a section or a range of lines. A long text is cut and ends with the ref to continue"
            f" from. {QUOTED}",
            "get",
            (REF, *_undescribed((MAX_TOKENS,))),
            schemas.EXTRACT,
            aliases={"path": "ref"},
        ),
        Tool(
            "outline",
            "Outline of a document",
            "List the headings of a document with their lines and anchors, to choose a section to read.",
            "outline",
            (REF, PATH),
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
            "Status of the index",
            "Show how much is indexed, what is in progress and which files failed.",
            "status",
            (),
            schemas.STATUS,
        ),
    )
    return {tool.name: tool for tool in tools}
