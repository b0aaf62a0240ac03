"""The command install-mcp: add a library to the configuration of an MCP client."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from marklight.errors import UsageError
from marklight.formatting import one_line
from marklight.surfaces.cli.options import completer, in_library
from marklight.surfaces.cli.output import close_sentence, note, show

if TYPE_CHECKING:
    from marklight.surfaces.setup.clients import Client
    from marklight.surfaces.setup.config_file import Change


@click.command("install-mcp", short_help="Connect an assistant to a library.")
@click.argument("client", shell_complete=completer("clients"))
@in_library
@click.option("--project", is_flag=True, help="Configure only the project in the current folder.")
@click.option(
    "--name", default="marklight", show_default=True, help="Register the server under this name."
)
@click.option(
    "--file",
    type=click.Path(path_type=Path),
    help="Change this configuration file instead of the default one.",
)
@click.option(
    "--skill",
    is_flag=True,
    help="Also install the skill file, which explains when and how to search.",
)
@click.option("--remove", is_flag=True, help="Remove the entry from the client's configuration.")
@click.option(
    "--dry-run", "--print", "dry_run", is_flag=True, help="Print the entry; change nothing."
)
def install_mcp(
    client: str,
    folder: Path | None,
    project: bool,
    name: str,
    file: Path | None,
    skill: bool,
    remove: bool,
    dry_run: bool,
) -> int:
    """Connect an assistant to a library.

    CLIENT is claude-code, claude-desktop, cursor, vscode or codex. PATH defaults to the library that
    contains the current folder. The rest of the client's configuration stays as it is.
    """
    from marklight.surfaces.setup import clients

    known = clients.find_client(client)
    if not re.fullmatch(r"[A-Za-z0-9_-]{1,64}", name):
        # The rule of the strictest clients, Claude Code and Codex.
        raise UsageError(f"Not a valid server name: {name[:100]!r}", "Use letters, digits, - and _")
    project_folder = Path.cwd() if project else None
    config = (file.expanduser() if file else clients.config_file(known, project_folder)).absolute()
    skill_file = clients.skill_file(known, project_folder) if skill else None
    if remove:
        _remove(known, name, config, skill_file, dry_run)
        return 0
    served = _served_folder(folder, client)
    entry = known.entry(clients.server_command(served))
    if dry_run:
        _print_entry(known, name, config, skill_file, entry)
        return 0
    if not (project or file or config.parent.is_dir()):
        note(f"{config.parent} does not exist yet. Is {known.title} installed?")
    _install(known, name, config, served, entry)
    if skill_file:
        from marklight.surfaces.setup.config_file import write_skill

        change = write_skill(skill_file)
        if change.done:
            _print_change(change, "the skill")
        else:
            show(one_line(f"The skill is already up to date: {skill_file}"))
    if variables := sorted(key for key in os.environ if key.startswith("MARKLIGHT_")):
        from marklight.settings import user_file

        note(
            f"{', '.join(variables)} {'is' if len(variables) == 1 else 'are'} set in this shell but may not be"
            f" set when {known.title} starts Marklight. Put settings it needs in {user_file()}"
        )
    return 0


def _install(client: Client, name: str, config: Path, folder: Path, entry: dict[str, Any]) -> None:
    from marklight.surfaces.setup.config_file import CannotEdit, entry_text, put_entry

    try:
        change = put_entry(config, (client.servers, name), entry)
    except CannotEdit as error:
        note(f"Add this to {config}:")
        show(entry_text(config, (client.servers, name), entry))
        raise CannotEdit(error.message, "Add the entry printed above by hand") from None
    if change.done:
        _print_change(change, name, f"It serves {folder}. {client.next_step}")
    else:
        show(one_line(f"Nothing to do: {name} in {config} already serves {folder}"))


def _print_entry(
    client: Client, name: str, config: Path, skill_file: Path | None, entry: dict[str, Any]
) -> None:
    from marklight.surfaces.setup.config_file import SKILL, entry_text

    note(f"Nothing was changed. This would be added to {config}:")
    show(entry_text(config, (client.servers, name), entry))
    if skill_file:
        note(f"This would be written to {skill_file}:")
        show(SKILL.read_text("utf-8").rstrip("\n"))


def _remove(
    client: Client, name: str, config: Path, skill_file: Path | None, dry_run: bool
) -> None:
    from marklight.surfaces.setup.config_file import CannotEdit, remove_skill, take_entry

    if dry_run:
        note(f"Nothing was changed. {name} would be removed from {config}")
        return
    try:
        change = take_entry(config, (client.servers, name))
    except CannotEdit as error:
        raise CannotEdit(error.message, f"Remove {name} from it by hand") from None
    if change.done:
        _print_change(change, name, f"Restart {client.title}")
    else:
        show(one_line(f"Nothing to do: {name} is not in {config}"))
    if skill_file:
        change = remove_skill(skill_file)
        if change.done:
            _print_change(change, "the skill")
        else:
            show(one_line(f"The skill is not installed: {skill_file}"))


def _served_folder(path: Path | None, client: str) -> Path:
    """Return the absolute path of the folder to serve: the given one, or the library that contains the current folder."""
    from marklight.place import is_library, locate

    located = locate(path)
    folder = located.part or located.folder
    home = Path.home().resolve()
    if path is None and folder in (home, *home.parents) and not is_library(folder):
        # A terminal often opens in the home folder; serving all of it is hardly intended.
        raise UsageError(
            f"No folder given, and {folder} is not a library",
            f"Name the folder of your documents: `marklight install-mcp {client} {Path('~', 'notes')}`",
        )
    try:
        str(folder).encode()
    except UnicodeEncodeError:
        raise UsageError(
            f"The name of {folder} is not valid UTF-8, which configuration files require",
            "Rename the folder",
        ) from None
    return folder


def _print_change(change: Change, what: str, next_step: str = "") -> None:
    preposition = {"added": "to", "changed": "in", "removed": "from"}[change.done]
    done = f"{change.done.capitalize()} {what} {preposition} {change.file}"
    backup = f" (backup: {change.backup.name})" if change.backup else ""
    show(one_line(close_sentence(f"{done}{backup}. {next_step}".rstrip(". "))))
