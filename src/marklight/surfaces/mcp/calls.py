"""Calls of tools that take several operations: fused queries, several documents, and lists by links or of tags."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from marklight.errors import MarklightError, NotFound, UsageError
from marklight.formatting import place_text
from marklight.model import DocumentId
from marklight.reference import escape_glob, has_wildcards
from marklight.surfaces import operations

if TYPE_CHECKING:
    from marklight.library import Library

Values = dict[str, Any]
Call = Callable[[str, Mapping[str, Any]], Values]
"""Executes an operation of the library, by its name and arguments."""

QUERY_TYPES = ("hybrid", "keyword", "semantic", "hypothesis")
MAX_QUERIES = 8
MAX_DOCUMENTS = 50
"""Documents that one call reads."""
MAX_LINKING = 500
"""Documents that a list by links contains; a filter has at most so many values."""


def execute(library: Library, operation: str, arguments: Mapping[str, Any], **hooks: Any) -> Values:
    """Execute the operation of a tool, or the several ones that its arguments mean."""

    def call(name: str, given: Mapping[str, Any]) -> Values:
        return operations.call(library, name, given, **hooks)

    given = dict(arguments)
    if queries := given.pop("queries", None):
        return _fused(call, given, queries)
    if operation == "get" and isinstance(given["ref"], list):
        return _read(call, given)
    if given.pop("show", "documents") == "tags":
        return call("tags", {})
    if links_to := given.pop("links_to", None):
        return _linking(call, given, links_to, len(library.collections) > 1)
    return call(operation, given)


def parse_queries(value: Any) -> list[tuple[str, str]]:
    """Return further queries as pairs of type and text; a string is a query of type hybrid."""
    if isinstance(value, str) and value.lstrip().startswith(("[", "{")):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            value = [value]
    items = value if isinstance(value, list) else [value]
    if len(items) > MAX_QUERIES:
        raise UsageError(f"'queries' has too many values: {len(items)}, at most {MAX_QUERIES}")
    return [_parse_query(item) for item in items if item]


def _parse_query(item: Any) -> tuple[str, str]:
    if isinstance(item, str):
        return QUERY_TYPES[0], item
    if not isinstance(item, dict):
        raise UsageError("'queries' must be a list of objects with type and query")
    kind, text = item.get("type", QUERY_TYPES[0]), item.get("query", item.get("text"))
    if kind not in QUERY_TYPES:
        raise UsageError(f"A query cannot have the type {str(kind)[:100]!r}", f"Allowed: {', '.join(QUERY_TYPES)}")  # fmt: skip
    if not isinstance(text, str) or not text.strip():
        raise UsageError("Every one of 'queries' needs a query", "Give its text as query")
    return kind, text


def _fused(call: Call, given: Values, queries: Sequence[tuple[str, str]]) -> Values:
    """Search with several queries; a passage has the score of the query that it answers best (CombMAX).

    Scores are probabilities, so they can be compared between queries.
    """
    # Each answer is cut only by the number of results; the text as a whole keeps to the token budget.
    common = {name: value for name, value in given.items() if name != "max_tokens"}
    answers = [call("search", common)]
    for kind, text in queries:
        asked = {**common, "refresh": False}
        if kind == "hypothesis":
            asked["hypothesis"] = text
        else:
            asked |= {"query": text, "mode": kind}
        answers.append(call("search", asked))
    settings = common.get("settings", {}).get("search", {})
    per_document = settings.get("per_document", {}).get("max_passages", 2)
    limit = common.get("limit", 5)
    results = _best([each["results"] for each in answers], limit, per_document)
    nearest = [] if results else _best([each["nearest"] for each in answers], 3, per_document)
    stats = {**answers[0]["stats"], "after_doc_limit": len(results)}
    return {
        **answers[0],
        "results": results,
        "nearest": nearest,
        "abstained": None if results else answers[0]["abstained"],
        "advice": None if results else answers[0]["advice"],
        "stats": {**stats, "after_same_meaning": len(results)},
        "notices": list(dict.fromkeys(note for each in answers for note in each["notices"])),
    }


def _best(lists: Sequence[Sequence[Values]], limit: int, per_document: int) -> list[Values]:
    """Return the best results of several lists, each passage once, at most so many of a document."""
    by_id: dict[str, Values] = {}
    found: Counter[str] = Counter()
    for result in (each for results in lists for each in results):
        found[result["chunk_id"]] += 1
        before = by_id.get(result["chunk_id"])
        if before is None or result["score"] > before["score"]:
            by_id[result["chunk_id"]] = result
    merged = {each["chunk_id"] for result in by_id.values() for each in result["similar"]}
    ordered = sorted(by_id.values(), key=lambda each: (-each["score"], -found[each["chunk_id"]]))
    documents: Counter[tuple[str, str]] = Counter()
    best: list[Values] = []
    for result in ordered:
        document = (result["collection"], result["path"])
        if documents[document] < per_document and result["chunk_id"] not in merged:
            documents[document] += 1
            best.append({**result, "rank": len(best) + 1})
    return best[:limit]


def _read(call: Call, given: Values) -> Values:
    """Read several references; one with wildcards is every document that matches it.

    Return the first extract with all of them as `documents`, and the references that are not read as `missing` (with
    the reason) and `omitted`.
    """
    extracts: list[Values] = []
    missing: list[str] = []
    omitted: list[str] = []
    errors: list[MarklightError] = []
    for ref in dict.fromkeys(given["ref"]):
        try:
            found, others = _read_or_match(call, given, ref)
        except (NotFound, UsageError) as error:
            errors.append(error)
            missing.append(f"{error.message}. {error.hint}" if error.hint else error.message)
            continue
        extracts += found
        for other in others:
            if len(extracts) < MAX_DOCUMENTS:
                extracts.append(call("get", {**given, "ref": other}))
            else:
                omitted.append(other)
    if not extracts:
        raise errors[0]
    return {**extracts[0], "documents": extracts, "missing": missing, "omitted": omitted}


def _read_or_match(call: Call, given: Values, ref: str) -> tuple[list[Values], list[str]]:
    """Return the extract of a reference, or the references of the documents that match it as a glob."""
    try:
        return [call("get", {**given, "ref": ref})], []
    except NotFound:
        if not has_wildcards(ref):
            raise
    return [], [each["ref"] for each in call("resolve", {"ref": ref})["documents"]]


def _linking(call: Call, given: Values, ref: str, several: bool) -> Values:
    """List the documents that link to a document."""
    if "path" in given:
        raise UsageError("links_to and path cannot be combined", "Use tags or a query")
    links = call("links", {"ref": ref, "limit": MAX_LINKING})
    ids = (DocumentId(link["collection"], link["path"]) for link in links["in"])
    sources = list(dict.fromkeys(place_text(id, several) for id in ids))
    if not sources:
        raise NotFound(f"No document links to {links['ref']}")
    return call("list_documents", {**given, "path": list(map(escape_glob, sources))})
