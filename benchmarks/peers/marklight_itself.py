"""Marklight with its defaults: the folder itself, with the check of the disk before every search."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import marklight
from benchmarks.peers._program import run


def index(_passages: list[str], place: Path, folder: Path) -> Callable[[str], object]:
    library = marklight.open(folder, {"engine": f"file:{place}"})
    library.index()
    return lambda text: library.search(text, limit=5)


run(index)
