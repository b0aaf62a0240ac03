"""The assistants that we know: where each keeps its configuration, and how an entry in it looks.

What follows was read in each maker's public documentation in November 2026:
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
    """What the places of files hang on; given, so that every platform can be tried on any."""

    platform: str
    home: PurePath
    environment: Mapping[str, str]

    @property
    def applications(self) -> PurePath:
        """The folder in which programs with windows keep what belongs to a person."""
        if self.platform == "darwin":
            return self.home / "Library" / "Application Support"
        if self.platform == "win32":
            return self._named("APPDATA") or self.home / "AppData" / "Roaming"
        # The XDG specification: a relative path is not to be followed.
        named = self._named("XDG_CONFIG_HOME")
        return named if named and named.is_absolute() else self.home / ".config"

    def _named(self, variable: str) -> PurePath | None:
        value = self.environment.get(variable, "").strip()
        return type(self.home)(value) if value else None


@dataclass(frozen=True, slots=True)
class Client:
    """An assistant's program."""

    name: str
    title: str
    next: str
    """What a person does after the entry is there."""
    file: str
    """Below the home folder, or with `windowed` below that of applications."""
    windowed: bool = False
    moved_by: str = ""
    """The variable that names another folder for the file."""
    project_file: str = ""
    servers: str = "mcpServers"
    """The key or table that holds all servers."""
    typed: bool = True
    """Whether an entry says that it is spoken to by standard input and output."""
    skills: str = ""
    project_skills: str = ""

    def entry(self, command: Sequence[str]) -> dict[str, Any]:
        """What is written for one server."""
        kind = {"type": "stdio"} if self.typed else {}
        return {**kind, "command": command[0], "args": list(command[1:])}

    def user_files(self, machine: Machine) -> tuple[PurePath, ...]:
        """Where the configuration may be, the likeliest first; all but the last may hold `*`."""
        if named := machine.environment.get(self.moved_by, "").strip():
            return (type(machine.home)(named) / PurePath(self.file).name,)
        if not self.windowed:
            return (machine.home / self.file,)
        plain = machine.applications / self.file
        if self.name == "claude-desktop" and machine.platform == "win32":
            return (*_packaged(machine, PurePath(self.file).name), plain)
        return (plain,)

    def skills_folder(self, machine: Machine) -> PurePath:
        """Where skills for all projects are."""
        if self.moved_by == "CLAUDE_CONFIG_DIR" and (
            named := machine.environment.get(self.moved_by)
        ):
            return type(machine.home)(named) / "skills"
        return machine.home / self.skills


def _packaged(machine: Machine, file: str) -> tuple[PurePath, ...]:
    """Claude Desktop installed as a Windows package reads another file than the one its menu opens.

    anthropics/claude-code issue 26073; the first of the two is where versions of autumn 2026 keep it.
    """
    local = machine._named("LOCALAPPDATA") or machine.home / "AppData" / "Local"
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
            next="Start a new session; /mcp shows it",
            file=".claude.json",
            moved_by="CLAUDE_CONFIG_DIR",
            project_file=".mcp.json",
            skills=".claude/skills",
            project_skills=".claude/skills",
        ),
        Client(
            name="claude-desktop",
            title="Claude Desktop",
            next="Quit Claude Desktop, not only its window, and start it again",
            file="Claude/claude_desktop_config.json",
            windowed=True,
            typed=False,
        ),
        Client(
            name="cursor",
            title="Cursor",
            next="Restart Cursor; Customize, MCPs shows it",
            file=".cursor/mcp.json",
            project_file=".cursor/mcp.json",
            skills=".cursor/skills",
            project_skills=".cursor/skills",
        ),
        Client(
            name="vscode",
            title="VS Code",
            next="In VS Code run `MCP: List Servers`, start it and trust it",
            file="Code/User/mcp.json",
            windowed=True,
            project_file=".vscode/mcp.json",
            servers="servers",
            skills=".copilot/skills",
            project_skills=".github/skills",
        ),
        Client(
            name="codex",
            title="Codex",
            next="Start a new session; /mcp shows it",
            file=".codex/config.toml",
            moved_by="CODEX_HOME",
            project_file=".codex/config.toml",
            servers="mcp_servers",
            typed=False,
            skills=".agents/skills",
            project_skills=".agents/skills",
        ),
    )
}


def client_of(name: str) -> Client:
    """The client of this name; another name is refused with the nearest."""
    if name in CLIENTS:
        return CLIENTS[name]
    raise UsageError(f"there is no client {name[:100]!r}", suggest(name.lower(), CLIENTS))


def this_machine() -> Machine:
    """The one that we run on."""
    return Machine(sys.platform, Path.home(), os.environ)


def file_of(client: Client, project: Path | None) -> Path:
    """The client's own file for everything that a person does, or for one project."""
    if project is None:
        *packaged, plain = client.user_files(this_machine())
        for pattern in packaged:
            # Only a folder that the program made itself tells that it is read.
            for folder in sorted(glob.glob(str(pattern.parent))):
                return Path(folder, pattern.name)
        return Path(plain)
    if not client.project_file:
        raise UsageError(f"{client.title} knows no projects", "Leave out --project")
    return project / client.project_file


def skill_file_of(client: Client, project: Path | None) -> Path:
    """Where the client looks for our skill."""
    if not client.skills:
        raise UsageError(
            f"{client.title} reads no skills from a folder",
            "Print it by `marklight install-mcp claude-code --skill --dry-run` and upload it in the settings",
        )
    folder = project / client.project_skills if project else client.skills_folder(this_machine())
    return Path(folder, "marklight", "SKILL.md")


def starting(folder: Path) -> tuple[str, ...]:
    """The command that serves a folder, wherever and with whatever PATH it is started."""
    suffix = ".exe" if sys.platform == "win32" else ""
    beside = Path(sys.executable).parent / f"marklight{suffix}"
    called = Path(sys.argv[0]).absolute()
    for program in (beside, called):
        if program.stem == "marklight" and program.is_file() and os.access(program, os.X_OK):
            return (str(program), "mcp", str(folder))
    # -P: what lies in the folder where the client starts us must not be taken for our own parts.
    return (sys.executable, "-P", "-m", "marklight", "mcp", str(folder))
