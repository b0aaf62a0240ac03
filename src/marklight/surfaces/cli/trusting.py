"""The command that lets a folder's settings file decide everything: trust."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from marklight.escaping import one_line
from marklight.surfaces import render
from marklight.surfaces.cli.options import AS_JSON, IN_LIBRARY, note, show
from marklight.surfaces.cli.setting_values import ignored_values, value_text

if TYPE_CHECKING:
    from marklight.trust import Record


@click.command(short_help="Let a folder's settings file decide everything.")
@click.argument("path", required=False, type=click.Path(path_type=Path), metavar="[FOLDER]")
@IN_LIBRARY
@click.option("--revoke", is_flag=True, help="Trust the folder no longer.")
@click.option("--list", "list_all", is_flag=True, help="List the folders that are trusted.")
@AS_JSON
def trust(
    path: Path | None, folder: Path | None, revoke: bool, list_all: bool, as_json: bool
) -> int:
    """Print the settings of a folder's file that are ignored, and honour them from now on.

    FOLDER is by default the library around the current folder. A folder's marklight.toml or
    pyproject.toml decides by itself how its documents are ranked, cut and left out; anything else, such
    as engines, servers, models and paths outside, counts once you trust it. A file that changes must
    be trusted again.
    """
    if revoke and list_all:
        raise click.UsageError("--revoke and --list cannot be used together")
    if list_all:
        return _list(as_json)
    return (_revoke if revoke else _trust)(folder or path, as_json)


def _trust(asked: Path | None, as_json: bool) -> int:
    from marklight import trust as store
    from marklight.errors import NotFound, SettingsError
    from marklight.library import folder_settings
    from marklight.library.compose import SCHEMA
    from marklight.place import locate

    folder = locate(asked.parent if asked and asked.is_file() else asked).folder
    file = store.read_folder_file(folder)
    if file is None:
        raise NotFound(
            f"there are no settings in {folder}",
            "Name the folder that holds marklight.toml or pyproject.toml",
        )
    if file.problem:
        raise SettingsError(f"{file.path} cannot be trusted: it {file.problem}")
    values = {
        key: row["value"]
        for key, row in ignored_values(folder_settings.refused(file, SCHEMA)).items()
    }
    if values:
        store.trust(file)
    if as_json:
        show(render.to_json({"folder": str(folder), "file": str(file.path), "settings": values}))
        return 0
    for key, value in values.items():
        show(one_line(f"{key} = {value_text(key, value)}"))
    if values:
        note(f"{file.path} is trusted until it changes; `marklight trust --revoke` undoes this")
        _mind_daemon(folder)
    else:
        note(f"every setting in {file.path} is honoured without trust; nothing was recorded")
    return 0


def _revoke(asked: Path | None, as_json: bool) -> int:
    from marklight import trust as store
    from marklight.errors import NotFound
    from marklight.place import locate

    # A folder that is gone can still be named.
    exact = asked is not None and store.record_of(asked) is not None
    folder = Path(os.path.realpath(asked)) if asked and exact else locate(asked).folder
    if not store.revoke(folder):
        raise NotFound(
            f"{folder} is not trusted", "`marklight trust --list` shows which folders are"
        )
    if as_json:
        show(render.to_json({"folder": str(folder), "revoked": True}))
        return 0
    show(one_line(f"{folder} is no longer trusted"))
    _mind_daemon(folder)
    return 0


def _mind_daemon(folder: Path) -> None:
    """Note that a daemon keeps what it was started with: where it listens, and its token."""
    from marklight.surfaces.daemon.discovery import state_files

    if any(True for _ in state_files(folder)):
        note(
            "a daemon serves this folder at the address that it was started with; `marklight stop` ends it"
        )


def _list(as_json: bool) -> int:
    from marklight import trust as store

    rows = [_row(record) for record in store.records()]
    if as_json:
        show(render.to_json(rows))
        return 0
    for row in rows:
        show(one_line(f"{row['folder']}  ({row['file']}, {row['state']}, since {row['trusted']})"))
    if not rows:
        note("no folder is trusted")
    return 0


def _row(record: Record) -> dict[str, Any]:
    """Return a record with whether it still counts: trusted, changed or missing."""
    from marklight import trust as store
    from marklight.errors import SettingsError

    try:
        file = store.read_folder_file(Path(record.folder))
        state = "missing" if file is None else "trusted" if store.is_trusted(file) else "changed"
    except SettingsError:  # its content is no TOML any more
        state = "changed"
    return {
        "folder": record.folder,
        "file": record.file,
        "state": state,
        "trusted": record.trusted,
    }
