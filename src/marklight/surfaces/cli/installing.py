"""The command that makes a library known to an assistant: install-mcp."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from marklight.errors import UsageError
from marklight.escaping import one_line
from marklight.surfaces.cli import completing
from marklight.surfaces.cli.options import note, show

if TYPE_CHECKING:
    from marklight.surfaces.setup.clients import Client
    from marklight.surfaces.setup.entry import Change


@click.command("install-mcp")
@click.argument("client", shell_complete=completing.clients)
@click.argument("path", required=False, type=click.Path(path_type=Path))
@click.option("--project", is_flag=True, help="Only for the project in the current folder.")
@click.option("--name", default="marklight", show_default=True, help="What the client calls it.")
@click.option("--file", type=click.Path(path_type=Path), help="Another file than the usual one.")
@click.option("--skill", is_flag=True, help="The skill file too: when to ask, and how.")
@click.option("--remove", is_flag=True, help="Take it out again.")
@click.option("--dry-run", "--print", "dry_run", is_flag=True, help="Print it, write nothing.")
def install_mcp(
    client: str,
    path: Path | None,
    project: bool,
    name: str,
    file: Path | None,
    skill: bool,
    remove: bool,
    dry_run: bool,
) -> int:
    """Make a library known to an assistant.

    CLIENT is claude-code, claude-desktop, cursor, vscode or codex; PATH a folder, by default the
    library around the current one. Nothing else in the client's configuration is touched.
    """
    from marklight.surfaces.setup import clients

    known = clients.client_of(client)
    if not re.fullmatch(r"[A-Za-z0-9_-]{1,64}", name):
        # What the strictest of them takes, Claude Code and Codex.
        raise UsageError(
            f"a server cannot be called {name[:100]!r}", "Use letters, digits, - and _"
        )
    here = Path.cwd() if project else None
    place = (file.expanduser() if file else clients.file_of(known, here)).absolute()
    skill_place = clients.skill_file_of(known, here) if skill else None
    if remove:
        _remove(known, name, place, skill_place, dry_run)
        return 0
    folder = _served(path, client)
    entry = known.entry(clients.starting(folder))
    if dry_run:
        _print(known, name, place, skill_place, entry)
        return 0
    if not (project or file or place.parent.is_dir()):
        note(f"there is no folder {place.parent} yet; is {known.title} installed?")
    _install(known, name, place, folder, entry)
    if skill_place:
        from marklight.surfaces.setup.skill import put_skill

        _tell(put_skill(skill_place), "the skill")
    if own := sorted(each for each in os.environ if each.startswith("MARKLIGHT_")):
        from marklight.settings import user_file

        note(
            f"{', '.join(own)} may not be set where {known.title} starts; {user_file()} counts everywhere"
        )
    return 0


def _install(client: Client, name: str, place: Path, folder: Path, entry: dict[str, Any]) -> None:
    from marklight.surfaces.setup.entry import ByHand, put_entry, snippet

    try:
        change = put_entry(place, (client.servers, name), entry)
    except ByHand as error:
        note(f"this belongs in {place}:")
        show(snippet(place, (client.servers, name), entry))
        raise ByHand(error.message, "Paste what is printed above yourself") from None
    if change.done:
        _tell(change, name, f"It serves {folder}. {client.next}")
    else:
        show(one_line(f"nothing to do: {name} in {place} serves {folder}"))


def _print(
    client: Client, name: str, place: Path, skill_place: Path | None, entry: dict[str, Any]
) -> None:
    from marklight.surfaces.setup.entry import snippet
    from marklight.surfaces.setup.skill import SOURCE

    note(f"this belongs in {place}; nothing was written:")
    show(snippet(place, (client.servers, name), entry))
    if skill_place:
        note(f"this belongs in {skill_place}:")
        show(SOURCE.read_text("utf-8").rstrip("\n"))


def _remove(
    client: Client, name: str, place: Path, skill_place: Path | None, dry_run: bool
) -> None:
    from marklight.surfaces.setup.entry import ByHand, take_entry
    from marklight.surfaces.setup.skill import take_skill

    if dry_run:
        note(f"would take {name} out of {place}; nothing was written")
        return
    try:
        change = take_entry(place, (client.servers, name))
    except ByHand as error:
        raise ByHand(error.message, f"Take {name} out of it yourself") from None
    if change.done:
        _tell(change, name, f"Restart {client.title}")
    else:
        show(one_line(f"nothing to do: there is no {name} in {place}"))
    if skill_place:
        _tell(take_skill(skill_place), "the skill")


def _served(path: Path | None, client: str) -> Path:
    """The folder that is to be served, in full: the one asked for, or the library around us."""
    from marklight.place import is_library, locate

    found = locate(path)
    folder = found.part or found.folder
    home = Path.home().resolve()
    if path is None and folder in (home, *home.parents) and not is_library(folder):
        # Where a terminal opens. Nobody who names nothing means all that they have.
        raise UsageError(
            f"no folder is named, and {folder} is no library",
            f"Name the folder of your documents: `marklight install-mcp {client} {Path('~', 'notes')}`",
        )
    try:
        str(folder).encode()
    except UnicodeEncodeError:
        raise UsageError(
            f"{folder} is not named in UTF-8, as configurations are", "Rename the folder"
        ) from None
    return folder


def _tell(change: Change, what: str, then: str = "") -> None:
    if not change.done:
        show(one_line(f"nothing to do for {what}: {change.file}"))
        return
    where = {"added": "to", "changed": "in", "removed": "from"}[change.done]
    kept = f", which was copied to {change.backup.name}" if change.backup else ""
    show(one_line(f"{change.done} {what} {where} {change.file}{kept}. {then}".rstrip(". ")))
