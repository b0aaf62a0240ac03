"""Supported clients: paths of their configuration and skill files, and the entry of an MCP server in each.

Sources, read in November 2026:
Claude Code: code.claude.com/docs/en/mcp and /skills; Claude Desktop: modelcontextprotocol.io, its page on local servers;
Cursor: cursor.com/docs/mcp and /skills; VS Code: code.visualstudio.com/docs/agents/reference/mcp-configuration and
/docs/agent-customization/agent-skills; Codex: developers.openai.com/codex, its pages on MCP, configuration and skills.
"""

from __future__ import annotations

import glob
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any

from marklight.errors import UsageError
from marklight.surfaces.parameters import suggest


@dataclass(frozen=True, slots=True)
class Machine:
    """Platform, home folder and environment; passed in, so that tests cover every platform."""

    platform: str
    home: PurePath
    environment: Mapping[str, str]

    @property
    def applications(self) -> PurePath:
        """Return the folder for application data of the user."""
        if self.platform == "darwin":
            return self.home / "Library" / "Application Support"
        if self.platform == "win32":
            return self.folder_in("APPDATA") or self.home / "AppData" / "Roaming"
        # The XDG specification: ignore relative paths.
        folder = self.folder_in("XDG_CONFIG_HOME")
        return folder if folder and folder.is_absolute() else self.home / ".config"

    def folder_in(self, variable: str) -> PurePath | None:
        """Return the folder that an environment variable names."""
        value = self.environment.get(variable, "").strip()
        return type(self.home)(value) if value else None


@dataclass(frozen=True, slots=True)
class Client:
    """An MCP client."""

    name: str
    title: str
    next_step: str
    """Instruction for the user after the entry is added."""
    file: str
    """Relative to the home folder, or to the folder for application data."""
    in_application_data: bool = False
    folder_variable: str = ""
    """Environment variable that names another folder for the file."""
    project_file: str = ""
    servers: str = "mcpServers"
    """Key or table that contains all servers."""
    has_type: bool = True
    """True if an entry contains `"type": "stdio"`."""
    skills: str = ""
    project_skills: str = ""

    def entry(self, command: Sequence[str]) -> dict[str, Any]:
        """Return the entry of a server."""
        kind = {"type": "stdio"} if self.has_type else {}
        return {**kind, "command": command[0], "args": list(command[1:])}

    def user_files(self, machine: Machine) -> tuple[PurePath, ...]:
        """Return possible paths of the configuration, likeliest first; all but the last may contain `*`."""
        if folder := machine.environment.get(self.folder_variable, "").strip():
            return (type(machine.home)(folder) / PurePath(self.file).name,)
        if not self.in_application_data:
            return (machine.home / self.file,)
        plain = machine.applications / self.file
        if self.name == "claude-desktop" and machine.platform == "win32":
            return (*_packaged(machine, PurePath(self.file).name), plain)
        return (plain,)

    def skills_folder(self, machine: Machine) -> PurePath:
        """Return the folder of skills for all projects."""
        if self.folder_variable == "CLAUDE_CONFIG_DIR" and (
            folder := machine.environment.get(self.folder_variable)
        ):
            return type(machine.home)(folder) / "skills"
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
            folder_variable="CLAUDE_CONFIG_DIR",
            project_file=".mcp.json",
            skills=".claude/skills",
            project_skills=".claude/skills",
        ),
        Client(
            name="claude-desktop",
            title="Claude Desktop",
            next_step="Quit Claude Desktop, not just its window, and start it again",
            file="Claude/claude_desktop_config.json",
            in_application_data=True,
            has_type=False,
        ),
        Client(
            name="cursor",
            title="Cursor",
            next_step="Restart Cursor and check under Customize, MCPs",
            file=".cursor/mcp.json",
            project_file=".cursor/mcp.json",
            skills=".cursor/skills",
            project_skills=".cursor/skills",
        ),
        Client(
            name="vscode",
            title="VS Code",
            next_step="In VS Code, run `MCP: List Servers`, start the server and trust it",
            file="Code/User/mcp.json",
            in_application_data=True,
            project_file=".vscode/mcp.json",
            servers="servers",
            skills=".copilot/skills",
            project_skills=".github/skills",
        ),
        Client(
            name="codex",
            title="Codex",
            next_step="Start a new session and check with /mcp",
            file=".codex/config.toml",
            folder_variable="CODEX_HOME",
            project_file=".codex/config.toml",
            servers="mcp_servers",
            has_type=False,
            skills=".agents/skills",
            project_skills=".agents/skills",
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


def config_file(client: Client, project: Path | None) -> Path:
    """Return the client's configuration file for the user, or for one project."""
    if project is None:
        *packaged, plain = client.user_files(this_machine())
        for pattern in packaged:
            # The program reads the file only if it has created the folder itself.
            for folder in sorted(glob.glob(str(pattern.parent))):
                return Path(folder, pattern.name)
        return Path(plain)
    if not client.project_file:
        raise UsageError(
            f"{client.title} has no configuration for a single project", "Leave out --project"
        )
    return project / client.project_file


def skill_file(client: Client, project: Path | None) -> Path:
    """Return the path of the skill file for the client."""
    if not client.skills:
        raise UsageError(
            f"{client.title} does not read skills from a folder",
            "Print the skill with `marklight install-mcp claude-code --skill --dry-run` and upload it"
            " in Claude Desktop's settings",
        )
    folder = project / client.project_skills if project else client.skills_folder(this_machine())
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
