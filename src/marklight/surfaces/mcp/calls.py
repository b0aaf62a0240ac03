"""Calls of tools that take several operations: several documents, and lists by links or of tags."""

from __future__ import annotations

from collections.abc import Callable, Mapping
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

MAX_DOCUMENTS = 50
"""Documents that one call reads."""
MAX_LINKING = 500
"""Documents that a list by links contains; a filter has at most so many values."""


def execute(library: Library, operation: str, arguments: Mapping[str, Any], **hooks: Any) -> Values:
    """Execute the operation of a tool, or the several ones that its arguments mean."""

    def call(name: str, given: Mapping[str, Any]) -> Values:
        return operations.call(library, name, given, **hooks)

    given = dict(arguments)
    if operation == "get" and isinstance(given["ref"], list):
        return _read(call, given)
    if given.pop("show", "documents") == "tags":
        return call("tags", {})
    if links_to := given.pop("links_to", None):
        return _linking(call, given, links_to, len(library.collections) > 1)
    return call(operation, given)


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
