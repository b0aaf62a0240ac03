"""Command that lists documents: list, and search --documents."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from marklight.operations import OPERATIONS
from marklight.surfaces.cli.options import (
    COLOR,
    RESULT_FORMATS,
    SET,
    current_folder,
    in_library,
    open_for_search,
    options_of,
    style_of,
)
from marklight.surfaces.cli.output import note, show_as


@click.command("list", short_help="List all documents that match.")
@click.argument("query", required=False, default="")
@in_library
@RESULT_FORMATS
@options_of("list_documents")
@COLOR
@SET
def list_(
    query: str,
    folder: Path | None,
    format: str,
    as_json: bool,
    assignments: tuple[str, ...],
    **options: Any,
) -> int:
    """List all documents that match QUERY, one a line, and their number.

    A document matches if it contains every word of QUERY, or if search finds it by meaning. Without QUERY,
    all documents that match the filters are listed.
    """
    if folder is None and os.path.isdir(query):
        if os.sep in query or query == os.curdir:
            query, folder = "", Path(query)
        else:
            note(f"{query} is also a folder. To list its documents, use --in {query}")
    return _list(query, folder, "json" if as_json else format, assignments, **options)


def list_instead(
    query: str, folder: Path | None, format: str, assignments: Sequence[str], **options: Any
) -> int:
    """List documents for `search --documents`; raise UsageError for options of passages."""
    context = click.get_current_context()

    def is_given(name: str) -> bool:
        return context.get_parameter_source(name) is not ParameterSource.DEFAULT

    known = {parameter.name for parameter in OPERATIONS["list_documents"].parameters}
    others = [name for name in options if name not in known and is_given(name)]
    if others:
        names = ", ".join(f"--{name.replace('_', '-')}" for name in others)
        raise click.UsageError(f"--documents cannot be combined with {names}", context)
    flags = {name: value for name, value in options.items() if name in known}
    if not is_given("limit"):
        del flags["limit"]
    return _list(query, folder, format, assignments, **flags)


def _list(
    query: str, folder: Path | None, format: str, assignments: Sequence[str], **options: Any
) -> int:
    with open_for_search(folder, assignments, refresh=options["refresh"]) as (library, bar):
        listing = library.list_documents(query, near=current_folder(), progress=bar, **options)
    for notice in listing.notices:
        note(notice)
    if listing.documents or format == "json":
        from marklight.surfaces.listing import listing_as

        show_as(listing_as(listing, format, style_of(library)), format)
    elif listing.abstained:
        note(listing.abstained)
    else:
        note(f"There is no page {listing.page}: {listing.summary}")
    return 0 if listing.documents else 1
