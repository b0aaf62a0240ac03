"""Paths of configuration files on each platform."""

from __future__ import annotations

import sys
from pathlib import PurePosixPath, PureWindowsPath

import pytest

from marklight.surfaces.setup import CLIENTS, Machine
from tests.surfaces.setup.user import User

MAC = Machine("darwin", PurePosixPath("/Users/ana"), {})


WINDOWS = Machine("win32", PureWindowsPath(r"C:\Users\Ana B"), {})


ROAMING = Machine("win32", WINDOWS.home, {"APPDATA": r"D:\Roaming", "LOCALAPPDATA": r"D:\Local"})


LINUX = Machine("linux", PurePosixPath("/home/ana"), {})


XDG = Machine("linux", LINUX.home, {"XDG_CONFIG_HOME": "/etc/ana"})


XDG_WRONG = Machine("linux", LINUX.home, {"XDG_CONFIG_HOME": "relative"})


PLACES = [
    (LINUX, "claude-code", "/home/ana/.claude.json"),
    (MAC, "claude-code", "/Users/ana/.claude.json"),
    (WINDOWS, "claude-code", r"C:\Users\Ana B\.claude.json"),
    (LINUX, "claude-desktop", "/home/ana/.config/Claude/claude_desktop_config.json"),
    (MAC, "claude-desktop", "/Users/ana/Library/Application Support/Claude/claude_desktop_config.json"),
    (WINDOWS, "claude-desktop", r"C:\Users\Ana B\AppData\Roaming\Claude\claude_desktop_config.json"),
    (LINUX, "cursor", "/home/ana/.cursor/mcp.json"),
    (MAC, "cursor", "/Users/ana/.cursor/mcp.json"),
    (WINDOWS, "cursor", r"C:\Users\Ana B\.cursor\mcp.json"),
    (LINUX, "vscode", "/home/ana/.config/Code/User/mcp.json"),
    (XDG, "vscode", "/etc/ana/Code/User/mcp.json"),
    (XDG_WRONG, "vscode", "/home/ana/.config/Code/User/mcp.json"),
    (MAC, "vscode", "/Users/ana/Library/Application Support/Code/User/mcp.json"),
    (WINDOWS, "vscode", r"C:\Users\Ana B\AppData\Roaming\Code\User\mcp.json"),
    (ROAMING, "vscode", r"D:\Roaming\Code\User\mcp.json"),
    (LINUX, "codex", "/home/ana/.codex/config.toml"),
    (MAC, "codex", "/Users/ana/.codex/config.toml"),
    (WINDOWS, "codex", r"C:\Users\Ana B\.codex\config.toml"),
    # geminicli.com/docs/tools/mcp-server
    (LINUX, "gemini", "/home/ana/.gemini/settings.json"),
    (WINDOWS, "gemini", r"C:\Users\Ana B\.gemini\settings.json"),
    # opencode.ai/docs/config: the XDG folder on every platform
    (LINUX, "opencode", "/home/ana/.config/opencode/opencode.json"),
    (XDG, "opencode", "/etc/ana/opencode/opencode.json"),
    (MAC, "opencode", "/Users/ana/.config/opencode/opencode.json"),
    (WINDOWS, "opencode", r"C:\Users\Ana B\.config\opencode\opencode.json"),
    # zed.dev/docs/configuring-zed
    (LINUX, "zed", "/home/ana/.config/zed/settings.json"),
    (XDG, "zed", "/etc/ana/zed/settings.json"),
    (MAC, "zed", "/Users/ana/.config/zed/settings.json"),
    (WINDOWS, "zed", r"C:\Users\Ana B\AppData\Roaming\Zed\settings.json"),
    # docs.devin.ai/desktop/cascade/mcp
    (LINUX, "windsurf", "/home/ana/.codeium/windsurf/mcp_config.json"),
    (WINDOWS, "windsurf", r"C:\Users\Ana B\.codeium\windsurf\mcp_config.json"),
    # Cline 3.0.65: one file for the command line and the extensions (cline/cline issue 13596)
    (LINUX, "cline", "/home/ana/.cline/data/settings/cline_mcp_settings.json"),
    (MAC, "cline", "/Users/ana/.cline/data/settings/cline_mcp_settings.json"),
]  # fmt: skip


@pytest.mark.parametrize(("machine", "client", "place"), PLACES)
def test_the_configuration_file_of_each_platform(machine: Machine, client: str, place: str) -> None:
    assert str(CLIENTS[client].user_files(machine)[-1]) == place


ENTRIES = {
    # The documentation of each client, as cited in the module docstring of clients.py.
    "claude-code": ("mcpServers", {"type": "stdio", "command": "m", "args": ["mcp", "/n"]}),
    "claude-desktop": ("mcpServers", {"command": "m", "args": ["mcp", "/n"]}),
    "cursor": ("mcpServers", {"type": "stdio", "command": "m", "args": ["mcp", "/n"]}),
    "vscode": ("servers", {"type": "stdio", "command": "m", "args": ["mcp", "/n"]}),
    "codex": ("mcp_servers", {"command": "m", "args": ["mcp", "/n"]}),
    "gemini": ("mcpServers", {"command": "m", "args": ["mcp", "/n"]}),
    "opencode": ("mcp", {"type": "local", "command": ["m", "mcp", "/n"]}),
    "zed": ("context_servers", {"command": "m", "args": ["mcp", "/n"]}),
    "windsurf": ("mcpServers", {"command": "m", "args": ["mcp", "/n"]}),
    "cline": ("mcpServers", {"command": "m", "args": ["mcp", "/n"]}),
}


def test_the_entry_of_each_client() -> None:
    written = {
        name: (each.servers, each.entry(("m", "mcp", "/n"))) for name, each in CLIENTS.items()
    }
    assert written == ENTRIES


def test_cline_reads_three_variables() -> None:
    file = CLIENTS["cline"].user_files
    home = LINUX.home
    assert file(Machine("linux", home, {"CLINE_DIR": "/c"})) == (
        PurePosixPath("/c/data/settings/cline_mcp_settings.json"),
    )
    given = {"CLINE_DIR": "/c", "CLINE_DATA_DIR": "/d"}
    assert file(Machine("linux", home, given)) == (
        PurePosixPath("/d/settings/cline_mcp_settings.json"),
    )
    given["CLINE_MCP_SETTINGS_PATH"] = "/e.json"
    assert file(Machine("linux", home, given)) == (PurePosixPath("/e.json"),)


def test_claude_desktop_as_a_windows_package_uses_another_file() -> None:
    first, second, _ = CLIENTS["claude-desktop"].user_files(ROAMING)
    assert first == PureWindowsPath(r"D:\Local\Claude-Data\claude_*\claude_desktop_config.json")
    assert second.match(r"D:\Local\Packages\Claude_*\LocalCache\Roaming\Claude\*.json")


def test_an_existing_folder_of_a_package_is_used(
    user: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    local = user.home / "AppData" / "Local"
    made = local / "Packages" / "Claude_pzs8" / "LocalCache" / "Roaming" / "Claude"
    made.mkdir(parents=True)
    monkeypatch.setenv("LOCALAPPDATA", str(local))
    monkeypatch.setattr(sys, "platform", "win32")
    from marklight.surfaces.setup import config_path

    assert config_path(CLIENTS["claude-desktop"], None) == made / "claude_desktop_config.json"
    assert config_path(CLIENTS["cursor"], None) == user.home / ".cursor" / "mcp.json"
