"""The installed command works with any current folder and PATH."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import anyio
import pytest
from mcp import ClientSession, StdioServerParameters, stdio_client

from marklight.surfaces.mcp.tool_definitions import tools_for
from marklight.surfaces.setup import server_command
from tests.surfaces.setup.user import User


def test_the_module_is_started_if_there_is_no_console_script(
    user: User, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    python = tmp_path / "bin" / "python"
    monkeypatch.setattr(sys, "executable", str(python))
    monkeypatch.setattr(sys, "argv", ["-c"])
    assert server_command(tmp_path) == (str(python), "-P", "-m", "marklight", "mcp", str(tmp_path))
    called = tmp_path / "local" / "marklight"
    called.parent.mkdir()
    called.touch(0o755)
    monkeypatch.setattr(sys, "argv", [str(called)])
    assert server_command(tmp_path) == (str(called), "mcp", str(tmp_path))


def test_the_module_runs_as_the_command(tmp_path: Path) -> None:
    (tmp_path / "click.py").write_text("raise SystemExit('taken from the current folder')")
    done = subprocess.run(
        [sys.executable, "-P", "-m", "marklight", "--version"],
        cwd=tmp_path, env={**os.environ, "PATH": ""}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout.startswith("marklight ")


@pytest.mark.parametrize("client", ["claude-code", "codex"])
def test_the_installed_command_serves_the_folder(user: User, client: str, tmp_path: Path) -> None:
    """Start it like a client: from another folder, without PATH, with few variables."""
    user.install_mcp(client)
    written = user.servers(client)["marklight"]
    shared = {key: os.environ[key] for key in ("PYTHONPATH",) if key in os.environ}
    own = {"MARKLIGHT_MODEL_NAME": "fake", "MARKLIGHT_DATA_DIR": str(tmp_path / "data")}
    server = StdioServerParameters(
        command=written["command"],
        args=written["args"],
        cwd=tmp_path,
        env={**shared, **own, "PATH": "", "HOME": str(user.home)},
    )

    async def talk() -> tuple[set[str], str]:
        with (tmp_path / "log").open("w") as log:
            async with (
                stdio_client(server, errlog=log) as (reading, writing),
                ClientSession(reading, writing) as session,
            ):
                await session.initialize()
                tools = {tool.name for tool in (await session.list_tools()).tools}
                deadline = time.monotonic() + 60
                while time.monotonic() < deadline:
                    answer = await session.call_tool("query_documents", {"query": "backups kept"})
                    text = "".join(part.text for part in answer.content if part.type == "text")
                    if "Nothing is indexed yet" not in text:
                        break
                return tools, text

    tools, text = anyio.run(talk)
    assert tools == {*tools_for(False)} - {"search_git_history"}  # the folder is in no repository
    assert "a.md:3-3 § Backups" in text
    assert "Kept for thirty days." in text
