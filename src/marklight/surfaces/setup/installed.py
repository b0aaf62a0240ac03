"""Entries of Marklight in the configuration of clients: which folder each serves, and the name of a new one."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Iterator, Mapping
from itertools import chain, count
from pathlib import Path
from typing import Any, NamedTuple

from marklight.errors import UsageError
from marklight.surfaces.setup.clients import CLIENTS, Client, config_file
from marklight.surfaces.setup.config_file import CannotEdit, ConfigFile, read_values

DEFAULT_NAME = "marklight"
"""Name of the first library's entry."""
MAX_SUFFIX = 20
"""Characters of a folder's name in the name of an entry: `mcp__NAME__search_with_hypothesis` may have 64."""


class Installed(NamedTuple):
    """An entry in the configuration of a client, or the reason why its file cannot be read."""

    client: str
    file: Path
    name: str = ""
    folder: str = ""
    problem: str = ""


def list_installed(names: Collection[str], project: Path) -> Iterator[Installed]:
    """Yield our entries in the files of these clients: the user's, then those of a project."""
    for client in (CLIENTS[name] for name in names):
        for place in (None, project):
            try:
                file = config_file(client, place)
            except UsageError:  # no configuration for a single project
                continue
            try:
                entries = entries_of(client, read_values(ConfigFile(file, client.comments)))
            except CannotEdit as error:
                yield Installed(client.name, file, problem=error.message)
                continue
            for name, folder in entries.items():
                problem = "" if Path(folder).is_dir() else "the folder does not exist"
                yield Installed(client.name, file, name, folder, problem)


def served_folder(entry: Any) -> str | None:
    """Return the folder that an entry serves; None if the entry is not one of ours."""
    if not isinstance(entry, Mapping):
        return None
    # `cline mcp add` writes the command into an object of its own.
    command = entry if "command" in entry else entry.get("transport")
    if not isinstance(command, Mapping):
        return None
    program, arguments = command.get("command"), command.get("args")
    arguments = arguments if isinstance(arguments, list) else []
    given = [*(program if isinstance(program, list) else [program]), *arguments]
    words = [word for word in given if isinstance(word, str)]
    if words != given or "mcp" not in words[:-1]:
        return None
    at = words.index("mcp")
    ours = any(
        word == "marklight" or re.search(r"[\\/]marklight(\.exe)?$", word) for word in words[:at]
    )
    return words[at + 1] if ours else None


def entries_of(client: Client, values: Mapping[str, Any]) -> dict[str, str]:
    """Return the folders that a configuration file serves, by the names of their entries."""
    servers: Any = values
    for key in client.servers_path(values):
        servers = servers.get(key) if isinstance(servers, Mapping) else None
    if not isinstance(servers, Mapping):
        return {}
    folders = {name: served_folder(entry) for name, entry in servers.items()}
    return {name: folder for name, folder in folders.items() if folder is not None}


def entry_name(folder: Path, entries: Mapping[str, str]) -> str:
    """Return the name for the entry of a folder: its own one, `marklight`, or one with the name of the folder.

    `entries` are ours with their folders. The first one is replaced if its folder does not exist any more.
    """
    if own := name_of(folder, entries):
        return own
    if DEFAULT_NAME not in entries or not Path(entries[DEFAULT_NAME]).is_dir():
        return DEFAULT_NAME
    plain = unicodedata.normalize("NFKD", folder.name).encode("ascii", "ignore").decode().lower()
    suffix = re.sub(r"[^a-z0-9]+", "-", plain).strip("-")[:MAX_SUFFIX].strip("-") or "2"
    wanted = f"{DEFAULT_NAME}-{suffix}"
    numbered = (f"{wanted}-{number}" for number in count(2))
    return next(name for name in chain((wanted,), numbered) if name not in entries)


def name_of(folder: Path, entries: Mapping[str, str]) -> str | None:
    """Return the name of the entry that serves a folder."""
    return next((name for name, served in entries.items() if Path(served) == folder), None)
