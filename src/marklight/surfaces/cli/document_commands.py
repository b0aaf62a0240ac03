"""Commands about one document: get, outline, links, related."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from marklight.errors import NotFound
from marklight.formatting import place_text, without_controls
from marklight.place import did_you_mean, is_library, locate, similar_entries
from marklight.surfaces import render
from marklight.surfaces.cli.options import (
    AS_JSON,
    COLOR,
    SET,
    completer,
    current_folder,
    in_library,
    open_library,
    options_of,
    style_of,
)
from marklight.surfaces.cli.output import Bar, note, note_all, show, show_data, show_json

if TYPE_CHECKING:
    from marklight.library import Library
    from marklight.report import Links, Outline, Related
    from marklight.surfaces.daemon.client import RemoteLibrary


@click.command(short_help="Print a document or a part of it.")
@click.argument("reference", metavar="REF", shell_complete=completer("references"))
@in_library
@options_of("get", only=("level", "context"))
@AS_JSON
@COLOR
@SET
def get(
    reference: str,
    folder: Path | None,
    as_json: bool,
    assignments: tuple[str, ...],
    **options: Any,
) -> int:
    """Print a document or a part of it.

    REF is a path, a title, path#heading, path:10-40 or a passage id (from --json). PATH is the folder of the library. On a terminal, a header is printed and
    the text is quoted; redirected output is the text only.
    """
    with _open(folder, reference, assignments) as (library, bar):
        extract = library.get(reference, near=current_folder(), progress=bar, **options)
    note_all(extract.notices)
    if len(extract.levels) > 1 and not as_json:
        note(f"Available with --level: {render.levels_text(extract.levels)}")
    style = style_of(library)
    if as_json:
        show_json(extract.to_dict())
    elif style.terminal:
        show(render.extract_text(extract, style))
    else:
        # A copy, or the input of another program: text of the document and nothing of ours.
        show_data(without_controls(extract.text))
    return 0


@click.command()
@click.argument("document", shell_complete=completer("documents"))
@in_library
@AS_JSON
@COLOR
@SET
def outline(document: str, folder: Path | None, as_json: bool, assignments: tuple[str, ...]) -> int:
    """List the headings of a document with their lines and anchors."""
    with _open(folder, document, assignments) as (library, bar):
        found = library.outline(document, near=current_folder(), progress=bar)
    _print(found, as_json, render.outline_text(found, style_of(library)) or "no headings")
    return 0


@click.command()
@click.argument("document", required=False, shell_complete=completer("documents"))
@in_library
@options_of("links")
@AS_JSON
@COLOR
@SET
def links(
    document: str | None,
    limit: int,
    folder: Path | None,
    as_json: bool,
    assignments: tuple[str, ...],
) -> int:
    """List the links and backlinks of a document.

    Without DOCUMENT, list the broken links of the library and the documents without links.
    """
    if folder is None and document and _is_other_folder(document):
        folder, document = Path(document), None
    with _open(folder, document or "", assignments) as (library, bar):
        found = library.links(document, limit=limit, near=current_folder(), progress=bar)
    nothing = "No links" if document else "No broken links and no documents without links"
    _print(found, as_json, render.links_text(found, style_of(library)), nothing)
    return 0


@click.command(short_help="List related documents, with reasons.")
@click.argument("document", shell_complete=completer("documents"))
@in_library
@options_of("related")
@AS_JSON
@COLOR
@SET
def related(
    document: str, limit: int, folder: Path | None, as_json: bool, assignments: tuple[str, ...]
) -> int:
    """List documents related to DOCUMENT by links, tags and meaning, with reasons."""
    with _open(folder, document, assignments) as (library, bar):
        found = library.related(document, limit=limit, near=current_folder(), progress=bar)
    place = place_text(found.document, found.several_collections)
    text = render.related_text(found, style_of(library))
    _print(found, as_json, text, f"No document is related to {place}")
    return 0 if found.relatives else 1


def _print(found: Outline | Links | Related, as_json: bool, text: str, nothing: str = "") -> None:
    """Print notices, then the result as JSON or as text; `nothing` as a note if the text is empty."""
    note_all(found.notices)
    if as_json:
        show_json(found.to_dict())
    elif text:
        show(text)
    else:
        note(nothing)


@contextmanager
def _open(
    folder: Path | None, reference: str, assignments: Sequence[str]
) -> Iterator[tuple[Library | RemoteLibrary, Bar]]:
    """Open the library of a document, with a progress bar."""
    with (
        open_library(around(folder, reference), assignments) as library,
        Bar(library.place.folder) as bar,
    ):
        yield library, bar


def around(folder: Path | None, reference: str) -> Path | None:
    """Return the folder to locate the library of a document from; None for that of the current folder.

    A path of a file elsewhere selects the library around the file. Raise `NotFound` for a mistyped path.
    """
    from marklight.reference import readings

    if folder is not None or not reference:
        return folder
    inside = is_library(locate(None).folder)
    # A file name may contain `#` and `:` as well.
    paths = [_expanded(reading.name) for reading in readings(reference) if not reading.exact]
    for path in paths:
        if os.path.isfile(path):
            found = locate(path.absolute().parent).folder
            return None if inside and not (path.is_absolute() and is_library(found)) else found
    for path in paths[-1:]:
        similar = similar_entries(path) if path.is_absolute() or not inside else []
        # Inside a library, `/guide/auth.md` may be a path from its root.
        if similar or (
            path.is_absolute()
            and (not inside or (len(path.parts) > 2 and os.path.exists(path.parent)))
        ):
            raise NotFound(f"No such file: {path}", did_you_mean(path))
    return None


def _expanded(written: str) -> Path:
    """Return a path with `~` expanded, where its user exists."""
    try:
        return Path(written).expanduser()
    except RuntimeError:
        return Path(written)


def _is_other_folder(name: str) -> bool:
    """Return true for the path of a folder that cannot be the name of a document of the current library."""
    path = _expanded(name)
    written_as_folder = path.is_absolute() or name.endswith(("/", "."))
    return os.path.isdir(path) and (written_as_folder or not is_library(locate(None).folder))
