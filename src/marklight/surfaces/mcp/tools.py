"""The tools of assistants: their names and parameters, and the verbs that they stand for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from marklight.surfaces import schemas
from marklight.surfaces.mcp.telling import MOST_TOKENS
from marklight.surfaces.mcp.wording import QUOTED
from marklight.surfaces.parameters import (
    MODES,
    Parameter,
    boolean,
    integer,
    json_schema,
    mapping,
    number,
    parse,
    string,
    strings,
)

RENAMED = {
    "top_n": "limit",
    "min_score": "min_confidence",
    "tags": "tag",
    "excluded_files": "exclude",
    "file_pattern": "files",
}
"""Parameters that the verbs know by other names."""
SETTINGS = {
    "max_chunks_per_document": ("per_document", "most"),
    "similarity_threshold": ("semantic_duplicates", "cosine"),
}
"""Parameters that are settings of a stage of the search, for one call."""

QUERY = string(
    "query", "What you look for, in plain words; names and phrases in quotes too.", required=True
)
HYPOTHESIS = string(
    "hypothesis",
    "A short passage as the documents might have it, written as if it were the answer.",
    required=True,
)
TOP_N = integer("top_n", "How many passages.", 1, 100, default=5)
MIN_SCORE = number("min_score", "Leave out passages that are less likely; 0 shows all.", 0, 1)
FILTERS = (
    strings("path", "Only these paths: guide/** or *.md."),
    strings("tags", "Only documents with one of these tags, or one nested below."),
    mapping(
        "where", "Only documents with this frontmatter.", {"type": "string", "maxLength": 1000}
    ),
    string("after", "Only of this day or later: 2026-01-31, 2026-01.", maxLength=100),
    string("before", "Only of this day or earlier.", maxLength=100),
    strings("excluded_files", "Not in these files or globs, such as those you have read."),
)
COLLECTION = strings("collection", "Only in these collections.")
MAX_TOKENS = integer("max_tokens", "Size of the answer.", 1, 1_000_000, default=MOST_TOKENS)
REF = string(
    "ref",
    "A path or title, path#heading, path:10-40 or a passage's id.",
    required=True,
    maxLength=5000,
)
PATH = string("path", "The document's path.", required=True, maxLength=5000)


@dataclass(frozen=True, slots=True)
class Tool:
    """Something an assistant can call."""

    name: str
    title: str
    description: str
    operation: str
    parameters: Sequence[Parameter]
    answer: schemas.Schema

    @property
    def schema(self) -> dict[str, Any]:
        """Of what it is called with."""
        return json_schema(self.parameters)

    def read(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """The values that it was called with; anything that it does not know is refused."""
        return parse(self.parameters, given)

    def asked(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """The same as its verb is told."""
        told: dict[str, Any] = {}
        stages: dict[str, dict[str, Any]] = {}
        for name, value in values.items():
            if name in SETTINGS:
                stage, setting = SETTINGS[name]
                stages[stage] = {setting: value}
            else:
                told[RENAMED.get(name, name)] = value
        if stages:
            told["settings"] = {"search": stages}
        if self.operation == "search":
            told.setdefault("query", told.get("hypothesis"))
        if self.operation in ("search", "commits"):
            told.setdefault("max_tokens", MOST_TOKENS)
        if self.operation == "get":
            told.pop("max_tokens", None)
        return told


@cache
def tools_for(several_collections: bool) -> Mapping[str, Tool]:
    """All of them; a collection can be chosen where there are several."""
    filters = (*FILTERS, COLLECTION) if several_collections else FILTERS
    found = (
        Tool(
            "query_documents",
            "Search documents",
            "Find the passages that answer a question, by words and by meaning, best first, each with its"
            " place (path:lines § headings) and how likely it answers (0 to 1). Says so when nothing does."
            f" {QUOTED}",
            "search",
            (
                QUERY,
                TOP_N,
                MIN_SCORE,
                string(
                    "mode", "Which ways of searching answer.", enum=list(MODES), default="hybrid"
                ),
                *filters,
                integer("max_chunks_per_document", "Passages of one document.", 1, 100, default=2),
                number(
                    "similarity_threshold",
                    "Nearness from which on two passages say the same.",
                    0.01,
                    1,
                ),
                boolean("rerank", "Let a cross-encoder look at the best; slower.", None),
                boolean("parents", "Whole sections in place of passages."),
                MAX_TOKENS,
                boolean("explain", "Tell why each passage was found."),
            ),
            schemas.ANSWER,
        ),
        Tool(
            "search_with_hypothesis",
            "Search by an imagined answer",
            "Find passages near to an answer as you imagine it, when a question's own words find too little."
            f" {QUOTED}",
            "search",
            (HYPOTHESIS, TOP_N, MIN_SCORE, *filters, MAX_TOKENS),
            schemas.ANSWER,
        ),
        Tool(
            "search_git_history",
            "Search commits",
            "Find commits of the documents' git repository by what their messages and diffs say: when, by whom and"
            " why something changed. Best first, each with its hash, day, author and subject."
            f" {QUOTED}",
            "commits",
            (
                QUERY,
                integer("top_n", "How many commits.", 1, 100, default=5),
                MIN_SCORE,
                strings("file_pattern", "Only commits that changed such a file: src/** or *.md."),
                strings("author", "Only by these authors: a part of a name or an e-mail address."),
                *(each for each in FILTERS if each.name in ("after", "before")),
                MAX_TOKENS,
            ),
            schemas.COMMITS,
        ),
        Tool(
            "get_document",
            "Read a document",
            "Read a document, a section or lines of it, as they stand in the file. A long one is cut and says"
            f" with which ref to go on. {QUOTED}",
            "get",
            (REF, MAX_TOKENS),
            schemas.EXTRACT,
        ),
        Tool(
            "outline",
            "Outline of a document",
            "The headings of a document with their lines and anchors, to choose a section to read.",
            "outline",
            (PATH,),
            schemas.OUTLINE,
        ),
        Tool(
            "related_documents",
            "Related documents",
            "Documents that belong to this one, by links, shared tags and meaning, each with its reasons.",
            "related",
            (PATH,),
            schemas.RELATED,
        ),
        Tool(
            "index_status",
            "State of the index",
            "How much is indexed, what is still to do and which files failed.",
            "status",
            (),
            schemas.STATUS,
        ),
    )
    return {tool.name: tool for tool in found}
