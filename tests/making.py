"""Small values for tests: passages, hits and libraries made on the spot."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread
from typing import Any, cast

import marklight
from marklight.answer import Hit, Hits, Why, best_first
from marklight.model import Chunk, DocumentId, Kind, digest
from marklight.place import index_folder
from marklight.ports import Pool, Snapshot


def chunk(id: str = "a", text: str = "", path: str = "", headings: tuple[str, ...] = ()) -> Chunk:
    text = text or f"the text of {id}"
    return Chunk(
        id=id,
        document=DocumentId("default", path or f"{id}.md"),
        ordinal=0,
        title=id,
        headings=headings,
        anchor="",
        lines=(1, 1),
        kind=Kind.PROSE,
        text=text,
        parent="",
        digest=digest(text),
    )


def hits_of(scores: Mapping[str, float], by: str = "test") -> Hits:
    return best_first(Hit(chunk(id), score, (Why(by, score),)) for id, score in scores.items())


def pool_of(lists: Mapping[str, Mapping[str, float]]) -> Pool:
    """A pool of made-up passages with the scores of each retriever."""
    rows = {
        id: row for row, id in enumerate(dict.fromkeys(id for one in lists.values() for id in one))
    }
    return Pool(
        [chunk(id) for id in rows],
        rows,
        {
            name: {
                rows[id]: scores[id]
                for id in sorted(scores, key=lambda each: (-scores[each], each))
            }
            for name, scores in lists.items()
        },
    )


def no_snapshot() -> Snapshot:
    """For stages that read nothing: any use of it fails."""
    return cast(Snapshot, None)


def write(folder: Path, files: Mapping[str, str | bytes]) -> Path:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return folder


def library(folder: Path, **settings: Any) -> marklight.Library:
    """A library with the fake model, which is as quick as it is simple."""
    return marklight.open(folder, {"model": {"name": "fake"}, **settings})


def index_of(folder: Path) -> Path:
    """The folder of the index of a library."""
    return index_folder(folder.resolve())


@contextmanager
def written_by_another(lib: marklight.Library) -> Iterator[None]:
    """Somebody else holds the writer's place, so nothing is brought up to date meanwhile."""
    held, over = Event(), Event()

    def hold() -> None:
        with lib.engine.writing(5):
            held.set()
            over.wait(60)

    other = Thread(target=hold)
    other.start()
    try:
        assert held.wait(10)
        yield
    finally:
        over.set()
        other.join()
