"""Helpers to run install-mcp in a temporary home folder."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest

from marklight.surfaces.cli import run
from marklight.surfaces.setup import CLIENTS, Machine

JSON = [name for name, client in CLIENTS.items() if not client.file.endswith(".toml")]


class User:
    """A user with a home folder and a folder of notes."""

    def __init__(self, home: Path, notes: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.home, self.notes, self._capsys = home, notes, capsys

    def install_mcp(self, *arguments: str) -> tuple[int, str, str]:
        code = run(["install-mcp", *arguments])
        out, err = self._capsys.readouterr()
        return code, out, err

    def file(self, client: str) -> Path:
        (file,) = CLIENTS[client].user_files(Machine("linux", self.home, {}))
        return Path(file)

    def write_config(self, client: str, text: str) -> Path:
        file = self.file(client)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(text.encode())
        return file

    def servers(self, client: str) -> Any:
        return values(self.file(client))[CLIENTS[client].servers]


def command(entry: dict[str, Any]) -> list[str]:
    """Return the program and its arguments in an entry; opencode has both in one list."""
    program = entry["command"]
    return program if isinstance(program, list) else [program, *entry["args"]]


def values(file: Path) -> dict[str, Any]:
    text = file.read_text("utf-8")
    found: dict[str, Any] = tomllib.loads(text) if file.suffix == ".toml" else json.loads(text)
    return found
