"""Marklight with its defaults: the folder itself, with the check of the disk before every search."""

from __future__ import annotations

from pathlib import Path

import marklight
from benchmarks.peers._program import Collection, Search, Tool, run


def opened(collection: Collection, place: Path) -> marklight.Library:
    return marklight.open(collection.folder, {"engine": f"file:{place / 'index'}"})


def build(collection: Collection, place: Path) -> None:
    with opened(collection, place) as library:
        library.index()


def load(collection: Collection, place: Path) -> Search:
    library = opened(collection, place)

    def search(text: str, limit: int) -> list[str]:
        # A ranking is judged without abstention, which the other tools do not have.
        threshold = 0.0 if limit > 5 else None
        return [
            hit.chunk.path for hit in library.search(text, limit=limit, min_confidence=threshold)
        ]

    return search


def update(collection: Collection, place: Path, _changed: str) -> None:
    opened(collection, place).index()


run(Tool(build, load, update))
