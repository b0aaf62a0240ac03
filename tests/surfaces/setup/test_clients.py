"""Paths of configuration files on each platform."""

from __future__ import annotations

import sys
from pathlib import PurePosixPath, PureWindowsPath

import pytest

from marklight.surfaces.setup.clients import CLIENTS, Machine
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
]  # fmt: skip


@pytest.mark.parametrize(("machine", "client", "place"), PLACES)
def test_the_configuration_file_of_each_platform(machine: Machine, client: str, place: str) -> None:
    assert str(CLIENTS[client].user_files(machine)[-1]) == place


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
    from marklight.surfaces.setup.clients import config_file

    assert config_file(CLIENTS["claude-desktop"], None) == made / "claude_desktop_config.json"
    assert config_file(CLIENTS["cursor"], None) == user.home / ".cursor" / "mcp.json"
