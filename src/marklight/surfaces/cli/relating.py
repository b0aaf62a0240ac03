"""Commands that tell what belongs to a document: links, related."""

from __future__ import annotations

from pathlib import Path

import click

from marklight.place import around
from marklight.surfaces import relations
from marklight.surfaces.cli import completing
from marklight.surfaces.cli.options import (
    AS_JSON,
    COLOR,
    IN_LIBRARY,
    SET,
    note,
    open_library,
    show,
    show_json,
    style_of,
)
from marklight.surfaces.cli.progress import Bar


@click.command()
@click.argument("path", required=False, shell_complete=completing.documents)
@click.option("-n", "--limit", default=100, show_default=True, help="How many of each list.")
@IN_LIBRARY
@AS_JSON
@COLOR
@SET
def links(
    path: str | None, limit: int, folder: Path | None, as_json: bool, assignments: tuple[str, ...]
) -> int:
    """Show what a document links to and what links to it.

    Without PATH: the links of the library that lead nowhere, and its documents without any link.
    """
    with (
        open_library(around(folder, path or ""), assignments) as library,
        Bar(library.place.folder) as bar,
    ):
        found = library.links(path, limit=limit, near=Path.cwd(), progress=bar)
    for notice in found.notices:
        note(notice)
    if as_json:
        show_json(found.to_dict())
    elif text := relations.links_text(found, len(library.collections) > 1, style_of(library)):
        show(text)
    else:
        note("no links" if path else "every link leads somewhere, and every document has one")
    return 0


@click.command(short_help="Show documents that belong to one, with reasons.")
@click.argument("path", shell_complete=completing.documents)
@click.option("-n", "--limit", default=10, show_default=True, help="How many documents, 1 to 100.")
@IN_LIBRARY
@AS_JSON
@COLOR
@SET
def related(
    path: str, limit: int, folder: Path | None, as_json: bool, assignments: tuple[str, ...]
) -> int:
    """Show documents that belong to one, by links, tags and meaning, and why."""
    with (
        open_library(around(folder, path), assignments) as library,
        Bar(library.place.folder) as bar,
    ):
        found = library.related(path, limit=limit, near=Path.cwd(), progress=bar)
    for notice in found.notices:
        note(notice)
    if as_json:
        show_json(found.to_dict())
    elif found.relatives:
        show(relations.related_text(found, len(library.collections) > 1, style_of(library)))
    else:
        note(f"nothing is related to {found.document.path}")
    return 0 if found.relatives else 1
