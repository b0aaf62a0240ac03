"""ripgrep: files by the number of lines that contain a word of the query; a process for every query, no index."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from benchmarks.peers._program import Collection, Search, Tool, run


def build(_: Collection, place: Path) -> None:
    """Do nothing: there is no index."""


def load(collection: Collection, _: Path) -> Search:
    def search(text: str, limit: int) -> list[str]:
        pattern = "|".join(map(re.escape, re.findall(r"\w{3,}", text))) or re.escape(text)
        command = ["rg", "--count", "--ignore-case", "--word-regexp", "--", pattern, "."]
        lines = subprocess.run(
            command, cwd=collection.folder, capture_output=True, text=True
        ).stdout
        counts = [line.rpartition(":") for line in lines.splitlines()]
        best = sorted(counts, key=lambda row: (-int(row[2]), row[0]))
        return [name.removeprefix("./") for name, _, _ in best[:limit]]

    return search


run(Tool(build, load, None))
