"""Options that several commands share, and how a command opens its library."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import click

from marklight.escaping import one_line
from marklight.surfaces.render import to_json
from marklight.surfaces.style import Style, style_for

if TYPE_CHECKING:
    from marklight.library import Library
    from marklight.surfaces.daemon.client import RemoteLibrary

AS_JSON = click.option("--json", "as_json", is_flag=True, help="JSON for programs.")
SET = click.option(
    "--set", "assignments", multiple=True, metavar="KEY=VALUE", help="Any setting, for this call."
)
MODE = click.option(
    "--mode",
    # Spelled out: to import the modes would cost `--help` all that they stand beside.
    type=click.Choice(["hybrid", "semantic", "keyword", "code"]),
    default="hybrid",
    show_default=True,
    help="Which retrievers answer.",
)
EXPLAIN = click.option(
    "--explain", is_flag=True, help="Show stages, times and each hit's score in parts."
)


def _strictest(
    context: click.Context,  # noqa: ARG001 - click's shape
    parameter: click.Parameter,
    days: tuple[str, ...],
) -> str | None:
    """Like all filters a day may be given again; then both must hold."""
    if len(days) < 2:
        return days[0] if days else None
    from marklight.dates import demand_moment, moment_bounds

    for day in days:
        demand_moment(day)
    if parameter.name == "after":
        return max(days, key=lambda day: moment_bounds(day)[0])
    return min(days, key=lambda day: moment_bounds(day)[1])


AFTER = click.option(
    "--after",
    multiple=True,
    callback=_strictest,
    metavar="DATE",
    help="Only of this day or later: 2026-01-31, 2026-01.",
)
BEFORE = click.option(
    "--before",
    multiple=True,
    callback=_strictest,
    metavar="DATE",
    help="Only of this day or earlier.",
)
MIN_CONFIDENCE = click.option(
    "--min-confidence", type=float, metavar="X", help="Leave out lower scores, 0 to 1; 0 shows all."
)
SHOWS_ALL = "--min-confidence 0"
"""What is advised where everything was held back."""
MAX_TOKENS = click.option(
    "--max-tokens", type=int, metavar="N", help="Keep the answer within this size."
)
RERANK = click.option(
    "--rerank/--no-rerank", default=None, help="Let a cross-encoder look at the best results."
)
COLOR_KEY = "marklight.color"


def _remember(context: click.Context, parameter: click.Parameter, value: str) -> None:  # noqa: ARG001 - click's shape
    context.meta[COLOR_KEY] = value


COLOR = click.option(
    "--color",
    type=click.Choice(["auto", "always", "never"]),
    default="auto",
    expose_value=False,
    callback=_remember,
    help="Bold and clickable places: auto means on a terminal.",
)
IN_LIBRARY = click.option(
    "--in",
    "folder",
    type=click.Path(path_type=Path),
    metavar="FOLDER",
    help="The library's folder; else the one around the current folder.",
)


def open_library(
    folder: Path | None, assignments: Sequence[str] = (), *, searching: bool = False
) -> Library | RemoteLibrary:
    """The library around a folder: as its daemon has it if one runs, else loaded into this process.

    Only now, so that `--help` answers at once. `searching` says that settings of a search may be
    told to the daemon with each question; with any others this process works alone.
    """
    from marklight.surfaces.daemon.discovery import is_disabled, open_remote

    if found := open_remote(folder, assignments, note, searching=searching):
        return found
    library = open_own(folder, assignments)
    if library.serve.start and not is_disabled():
        from marklight.surfaces.daemon.lifecycle import start_for_client

        # For those who ask next; this call does not wait for it.
        others = [one for one in assignments if not one.lstrip().startswith("search.")]
        start_for_client(library.place.folder, others)
    return library


def open_own(folder: Path | None, assignments: Sequence[str] = ()) -> Library:
    """The library in this process, whatever daemon there is."""
    from marklight.library import Library

    return Library(folder, assignments=assignments)


def style_of(library: Library | RemoteLibrary) -> Style:
    """How this library's places are drawn on standard output."""
    context = click.get_current_context(silent=True)
    color = context.meta.get(COLOR_KEY, "auto") if context else "auto"
    return style_for(
        sys.stdout, os.environ, library.collections, color=color, address=library.link_address
    )


def show(text: str) -> None:
    """Print text for people, folded to the width of a terminal."""
    show_data(_folded(text, sys.stdout))


def show_data(text: str) -> None:
    """Print data for programs as it is; click would take what looks like a colour out of it."""
    click.echo(text, color=True)


def show_json(value: Any, indent: int | None = 2) -> None:
    """Print a value as JSON."""
    show_data(to_json(value, indent))


def note(text: str) -> None:
    """Print one line for the person, beside the results."""
    click.echo(_folded(one_line(f"note: {text}"), sys.stderr), err=True)


def complain(message: str) -> None:
    """Print one line for what went wrong."""
    with suppress(OSError, ValueError):  # nobody listens
        click.echo(_folded(one_line(f"marklight: {message}"), sys.stderr), err=True)


def _folded(text: str, stream: TextIO) -> str:
    if not stream.isatty():
        return text
    from marklight.surfaces.folding import folded

    try:
        # Not `shutil.get_terminal_size`, which believes a variable: it may be of another terminal.
        return folded(text, os.get_terminal_size(stream.fileno()).columns or _USUAL_COLUMNS)
    except (OSError, ValueError):
        return folded(text, _USUAL_COLUMNS)


_USUAL_COLUMNS = 80
