"""txtai with hybrid search and stored content, as its documentation shows it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from txtai import Embeddings

from benchmarks.peers._program import model_folder, run


def index(passages: list[str], place: Path, _folder: Path) -> Callable[[str], object]:
    embeddings = Embeddings(path=model_folder(), hybrid=True, content=True)
    embeddings.index(list(enumerate(passages)))
    embeddings.save(str(place))
    return lambda text: embeddings.search(text, 5)


run(index)
