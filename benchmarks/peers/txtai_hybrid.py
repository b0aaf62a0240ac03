"""txtai with hybrid search and stored content, as its documentation shows it."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from txtai import Embeddings

from benchmarks.peers._program import Collection, Search, Tool, model_folder, run


def rows(collection: Collection) -> list[dict[str, Any]]:
    pairs = zip(collection.documents, collection.passages, strict=True)
    return [{"id": f"{name}#{number}", "text": text} for number, (name, text) in enumerate(pairs)]


def build(collection: Collection, place: Path) -> None:
    embeddings = Embeddings(path=model_folder(), hybrid=True, content=True)
    embeddings.index(rows(collection))
    embeddings.save(str(place))


@cache
def loaded(place: Path) -> Any:
    """Load the index once: a second one would find its database locked."""
    embeddings = Embeddings()
    embeddings.load(str(place))
    return embeddings


def load(_: Collection, place: Path) -> Search:
    embeddings = loaded(place)

    def search(text: str, limit: int) -> list[str]:
        return [hit["id"].rpartition("#")[0] for hit in embeddings.search(text, limit)]

    return search


def update(collection: Collection, place: Path, changed: str) -> None:
    embeddings = loaded(place)
    embeddings.upsert(rows(collection.of(changed)))
    embeddings.save(str(place))


run(Tool(build, load, update))
