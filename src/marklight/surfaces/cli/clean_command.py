"""The command clean: remove the index of a library, or all data of Marklight on this machine."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from marklight.errors import NotFound, UsageError
from marklight.formatting import one_line
from marklight.surfaces.cli.options import AS_JSON, SET, in_library, open_own
from marklight.surfaces.cli.output import note, show, show_json
from marklight.surfaces.cli.status_command import size_text

if TYPE_CHECKING:
    from marklight.library.cleaning import DataPlace


@click.command(short_help="Remove the index of a library, or all data.")
@in_library
@click.option(
    "--all",
    "every",
    is_flag=True,
    help="Remove all your indexes, cached models and other data of Marklight on this machine.",
)
@click.option("--orphans", is_flag=True, help="Remove the indexes of folders that no longer exist.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@AS_JSON
@SET
def clean(
    folder: Path | None,
    every: bool,
    orphans: bool,
    yes: bool,
    as_json: bool,
    assignments: tuple[str, ...],
) -> int:
    """Remove the index of a library after asking; documents and settings are never removed.

    A later search indexes the folder again. A running daemon is stopped first.
    """
    from marklight.library import cleaning

    if (every or orphans) and folder is not None:
        raise UsageError("--all and --orphans concern all libraries", "Leave out PATH")
    library: Path | None = None
    if every or orphans:
        places = cleaning.all_data() if every else cleaning.orphans()
    else:
        with open_own(folder, assignments) as opened:
            places, library = cleaning.library_data(opened), opened.place.folder
    if not places:
        raise NotFound("There is nothing to remove")
    if not yes:
        _confirm(places)
    if not orphans or every:
        _stop_daemons(library)
    cleaning.delete(places)
    if as_json:
        show_json(
            [{"what": each.what, "path": str(each.path), "bytes": each.size} for each in places]
        )
    else:
        for place in places:
            show(one_line(f"Removed {place.what} {place.path} ({size_text(place.size)})"))
    if every:
        from marklight.settings import user_file

        note(
            f"Your settings in {user_file().parent} are kept. To uninstall: pip uninstall marklight"
        )
    return 0


def _confirm(places: Sequence[DataPlace]) -> None:
    for place in places:
        note(f"To be removed: {place.what} {place.path} ({size_text(place.size)})")
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise UsageError("Nothing was removed, as nobody can be asked here", "Add --yes")
    if not click.confirm("Remove?", err=True):
        raise UsageError("Nothing was removed")


def _stop_daemons(library: Path | None) -> None:
    from marklight.surfaces.daemon.lifecycle import stop

    for state in stop(library):
        note(f"Stopped the daemon of {state.folder}")
