"""Supported clients: paths of their configuration and skill files, and our entries in them.

Sources, read in November 2026:
Claude Code: code.claude.com/docs/en/mcp and /skills; Claude Desktop: modelcontextprotocol.io, its page on local servers;
Cursor: cursor.com/docs/mcp and /skills; VS Code: code.visualstudio.com/docs/agents/reference/mcp-configuration and
/docs/agent-customization/agent-skills; Codex: developers.openai.com/codex, its pages on MCP, configuration and skills;
Gemini CLI: geminicli.com/docs/tools/mcp-server and /docs/cli/skills; opencode: opencode.ai/docs/mcp-servers and /docs/migrate-v1;
Zed: zed.dev/docs/ai/mcp, /docs/ai/skills and /docs/configuring-zed; Windsurf: docs.devin.ai/desktop/cascade/mcp and
docs.windsurf.com/windsurf/cascade/skills; Cline: docs.cline.bot/mcp, and the source of its version 3.0.65 for the path.
The entries of Gemini CLI 0.61, opencode 1.18 and Cline 3.0.65 were tested with the programs.
"""

from __future__ import annotations

import glob
import os
import re
import sys
import unicodedata
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import field
from itertools import chain, count
from pathlib import Path, PurePath
from typing import Any, NamedTuple

from marklight.errors import UsageError
from marklight.lazy import dataclass
from marklight.parameters import suggest
from marklight.surfaces.setup.config_file import CannotEdit, read_values


@dataclass(frozen=True, slots=True)
class Machine:
    """Platform, home folder and environment; passed in, so that tests cover every platform."""

    platform: str
    home: PurePath
    environment: Mapping[str, str]

    def folder_in(self, variable: str) -> PurePath | None:
        """Return the folder that an environment variable names."""
        value = self.environment.get(variable, "").strip()
        return type(self.home)(value) if value else None

    @property
    def xdg_config(self) -> PurePath:
        """Return the folder for configuration by the XDG specification, on every platform."""
        folder = self.folder_in("XDG_CONFIG_HOME")
        # The specification: ignore relative paths.
        return folder if folder and folder.is_absolute() else self.home / ".config"

    @property
    def applications(self) -> PurePath:
        """Return the folder for application data of the user."""
        if self.platform == "darwin":
            return self.home / "Library" / "Application Support"
        if self.platform == "win32":
            return self.folder_in("APPDATA") or self.home / "AppData" / "Roaming"
        return self.xdg_config

    @property
    def config(self) -> PurePath:
        """Return the XDG folder on Linux, `~/.config` on macOS, application data on Windows."""
        return self.home / ".config" if self.platform == "darwin" else self.applications


@dataclass(frozen=True, slots=True)
class Client:
    """An MCP client."""

    name: str
    title: str
    next_step: str
    """Instruction for the user after the entry is added."""
    file: str
    """Relative to the base folder."""
    base: str = "home"
    """Folder of a machine: home, applications, xdg_config or config."""
    variables: Mapping[str, str] = field(default_factory=dict)
    """Environment variables that name another folder, each with the path of the file in it; empty if it names the file."""
    other_names: tuple[str, ...] = ()
    """Names that the file may have instead."""
    project_file: str = ""
    servers: str = "mcpServers"
    """Key or table that contains all servers."""
    has_type: bool = False
    """True if an entry contains `"type": "stdio"`."""
    skills: str = ""
    project_skills: str = ""
    """Relative to a project; empty if it is the same path as `skills`, which is relative to the home folder."""

    def entry(self, command: Sequence[str]) -> dict[str, Any]:
        """Return the entry of a server."""
        if self.name == "opencode":
            return {"type": "local", "command": list(command)}
        kind = {"type": "stdio"} if self.has_type else {}
        return {**kind, "command": command[0], "args": list(command[1:])}

    def servers_path(self, values: Mapping[str, Any]) -> tuple[str, ...]:
        """Return the keys of the object that contains all servers, in a file with these values."""
        outer = values.get(self.servers)
        if self.name == "opencode" and isinstance(outer, Mapping):
            # Version 2 has one more object, `servers`; a server of that name has a type.
            inner = outer.get("servers")
            if isinstance(inner, Mapping) and "type" not in inner:
                return (self.servers, "servers")
        return (self.servers,)

    def user_files(self, machine: Machine) -> tuple[PurePath, ...]:
        """Return possible paths of the configuration, likeliest first; all but the last may contain `*`."""
        for variable, path in self.variables.items():
            if folder := machine.folder_in(variable):
                return (folder / path if path else folder,)
        plain: PurePath = getattr(machine, self.base) / self.file
        if self.name == "zed" and machine.platform == "win32":
            return (plain.parent.with_name("Zed") / plain.name,)
        if self.name == "claude-desktop" and machine.platform == "win32":
            return (*_packaged(machine, PurePath(self.file).name), plain)
        return (plain,)

    def skills_folder(self, machine: Machine) -> PurePath:
        """Return the folder of skills for all projects."""
        if self.name == "claude-code" and (folder := machine.folder_in("CLAUDE_CONFIG_DIR")):
            return folder / "skills"
        return machine.home / self.skills


def _packaged(machine: Machine, file: str) -> tuple[PurePath, ...]:
    """Return the paths that Claude Desktop reads if it is installed as a Windows package.

    Its menu opens another file: anthropics/claude-code issue 26073. Versions of autumn 2026 use the first path.
    """
    local = machine.folder_in("LOCALAPPDATA") or machine.home / "AppData" / "Local"
    return (
        local / "Claude-Data" / "claude_*" / file,
        local / "Packages" / "Claude_*" / "LocalCache" / "Roaming" / "Claude" / file,
    )


CLIENTS: Mapping[str, Client] = {
    client.name: client
    for client in (
        Client(
            name="claude-code",
            title="Claude Code",
            next_step="Start a new session and check with /mcp",
            file=".claude.json",
            variables={"CLAUDE_CONFIG_DIR": ".claude.json"},
            project_file=".mcp.json",
            has_type=True,
            skills=".claude/skills",
        ),
        Client(
            name="claude-desktop",
            title="Claude Desktop",
            next_step="Quit Claude Desktop, not just its window, and start it again",
            file="Claude/claude_desktop_config.json",
            base="applications",
        ),
        Client(
            name="cursor",
            title="Cursor",
            next_step="Restart Cursor and check under Customize, MCPs",
            file=".cursor/mcp.json",
            project_file=".cursor/mcp.json",
            has_type=True,
            skills=".cursor/skills",
        ),
        Client(
            name="vscode",
            title="VS Code",
            next_step="In VS Code, run `MCP: List Servers`, start the server and trust it",
            file="Code/User/mcp.json",
            base="applications",
            project_file=".vscode/mcp.json",
            servers="servers",
            has_type=True,
            skills=".copilot/skills",
            project_skills=".github/skills",
        ),
        Client(
            name="codex",
            title="Codex",
            next_step="Start a new session and check with /mcp",
            file=".codex/config.toml",
            variables={"CODEX_HOME": "config.toml"},
            project_file=".codex/config.toml",
            servers="mcp_servers",
            skills=".agents/skills",
        ),
        Client(
            name="gemini",
            title="Gemini CLI",
            next_step="Start a new session and check with /mcp",
            file=".gemini/settings.json",
            variables={"GEMINI_CLI_HOME": ".gemini/settings.json"},
            project_file=".gemini/settings.json",
            skills=".gemini/skills",
        ),
        Client(
            name="opencode",
            title="opencode",
            next_step="Start a new session and check with `opencode mcp list`",
            file="opencode/opencode.json",
            base="xdg_config",
            other_names=("opencode.jsonc",),
            project_file="opencode.json",
            servers="mcp",
            skills=".agents/skills",
        ),
        Client(
            name="zed",
            title="Zed",
            next_step="In Zed's settings, under AI, MCP Servers, the server must be active",
            file="zed/settings.json",
            base="config",
            project_file=".zed/settings.json",
            servers="context_servers",
            skills=".agents/skills",
        ),
        Client(
            name="windsurf",
            title="Windsurf",
            next_step="In Windsurf, open MCPs in the Cascade panel and refresh",
            file=".codeium/windsurf/mcp_config.json",
            skills=".codeium/windsurf/skills",
            project_skills=".windsurf/skills",
        ),
        Client(
            name="cline",
            title="Cline",
            next_step="In Cline, open MCP Servers and check that the server is on",
            file=".cline/data/settings/cline_mcp_settings.json",
            variables={
                "CLINE_MCP_SETTINGS_PATH": "",
                "CLINE_DATA_DIR": "settings/cline_mcp_settings.json",
                "CLINE_DIR": "data/settings/cline_mcp_settings.json",
            },
            skills=".cline/skills",
        ),
    )
}


def find_client(name: str) -> Client:
    """Return the client of this name; raise with the closest name if there is none."""
    if name in CLIENTS:
        return CLIENTS[name]
    raise UsageError(f"No such client: {name[:100]}", suggest(name.lower(), CLIENTS))


def this_machine() -> Machine:
    """Return the machine that this process runs on."""
    return Machine(sys.platform, Path.home(), os.environ)


def config_path(client: Client, project: Path | None) -> Path:
    """Return the client's configuration file for the user, or for one project."""
    if project is None:
        *packaged, plain = client.user_files(this_machine())
        for pattern in packaged:
            # The program reads the file only if it has created the folder itself.
            for folder in sorted(glob.glob(str(pattern.parent))):
                return Path(folder, pattern.name)
        file = Path(plain)
    elif client.project_file:
        file = project / client.project_file
    else:
        raise UsageError(
            f"{client.title} has no configuration for a single project", "Leave out --project"
        )
    candidates = (file, *(file.with_name(name) for name in client.other_names))
    return next((path for path in candidates if path.exists()), file)


def skill_file(client: Client, project: Path | None) -> Path:
    """Return the path of the skill file for the client."""
    if not client.skills:
        raise UsageError(
            f"{client.title} does not read skills from a folder",
            "Print the skill with `marklight install-mcp claude-code --skill --dry-run` and upload it"
            " in Claude Desktop's settings",
        )
    below = client.project_skills or client.skills
    folder = project / below if project else client.skills_folder(this_machine())
    return Path(folder, "marklight", "SKILL.md")


def server_command(folder: Path) -> tuple[str, ...]:
    """Return the command that serves a folder; it works with any PATH and current folder."""
    suffix = ".exe" if sys.platform == "win32" else ""
    beside = Path(sys.executable).parent / f"marklight{suffix}"
    called = Path(sys.argv[0]).absolute()
    for program in (beside, called):
        if program.stem == "marklight" and program.is_file() and os.access(program, os.X_OK):
            return (str(program), "mcp", str(folder))
    # -P: never import modules from the folder in which the client starts us.
    return (sys.executable, "-P", "-m", "marklight", "mcp", str(folder))


# Entries

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
                file = config_path(client, place)
            except UsageError:  # no configuration for a single project
                continue
            try:
                entries = entries_of(client, read_values(file))
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
    number = words.index("mcp")
    is_ours = any(re.search(r"(^|[\\/])marklight(\.exe)?$", word) for word in words[:number])
    return words[number + 1] if is_ours else None


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
    if name := name_of(folder, entries):
        return name
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
