"""Small documents and batches for contract tests, and helpers to commit and search them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from marklight.model import (
    Batch,
    Chunk,
    Document,
    DocumentId,
    Entry,
    FileState,
    Kind,
    Link,
    LinkType,
    Name,
    NameStrength,
    Section,
    Vectors,
    digest,
)
from marklight.ports import FIELD_BOOSTS, Engine, Snapshot
from marklight.query import Filters
from marklight.text.analyzer import analyze
from marklight.text.markdown import embedding_digest
from marklight.vector_math import round_vectors

if TYPE_CHECKING:
    from marklight.model import Matrix, Vector


def id_of(path: str, collection: str = "docs") -> DocumentId:
    return DocumentId(collection, path)


def entry(
    path: str,
    *texts: str,
    collection: str = "docs",
    title: str = "",
    headings: tuple[str, ...] = (),
    merged: tuple[str, ...] = (),
    code: str = "",
    languages: tuple[str, ...] = (),
    mtime_ns: int = 0,
    names: Sequence[Name] | None = None,
    **more: Any,
) -> Entry:
    """Return a document with a passage for each text; `more` are fields of the document."""
    id = DocumentId(collection, path)
    section = Section(digest(collection, path, "section"), headings, "top", (1, 9), (0, 99))
    chunks = tuple(
        Chunk(
            id=digest(collection, path, str(at)),
            document=id,
            ordinal=at,
            title=title,
            headings=headings,
            anchor="top",
            lines=(at + 1, at + 2),
            kind=Kind.CODE if code else Kind.PROSE,
            text=text,
            parent=section.id,
            digest=embedding_digest(title, headings, text),
            merged=merged,
            code=code,
            languages=languages,
        )
        for at, text in enumerate(texts)
    )
    document = Document(
        id=id,
        title=title,
        text="\n\n".join(texts),
        file=FileState(sum(map(len, texts)), mtime_ns),
        digest=digest(*texts),
        recipe="r1",
        names=tuple(names_of(path) if names is None else names),
        **more,
    )
    return Entry(document, chunks, (section,))


def names_of(path: str, *aliases: str) -> list[Name]:
    """Return the names of a note as in Obsidian: its path, every suffix of it, its aliases."""
    steps = path.lower().removesuffix(".md").split("/")
    ends = ["/".join(steps[at:]) for at in range(len(steps))]
    return [
        Name(ends[0], NameStrength.PATH),
        *(Name(end, NameStrength.SUFFIX) for end in ends[1:]),
        *(Name(alias.lower(), NameStrength.ALIAS) for alias in aliases),
    ]


def link(target: str, *keys: str, type: LinkType = LinkType.LINKS_TO) -> Link:
    return Link(type, target, "", target, 1, keys or (target.lower(),))


def vector(text: str, model: str = "m", size: int = 16) -> Vector:
    """Return a vector that depends only on the text and the model, as an engine stores it."""
    seed = int(digest(model, text, size=4), 16)
    rows: Matrix = np.random.default_rng(seed).normal(size=(1, size)).astype(np.float32)
    row: Vector = round_vectors(rows)[0]
    return row


def vectors(texts: Sequence[str], model: str = "m", size: int = 16) -> Vectors:
    rows: Matrix = np.stack([vector(text, model, size) for text in texts])
    return Vectors(model, tuple(texts), rows)


def embedding(*entries: Entry, model: str = "m") -> Batch:
    """Return a batch with the vectors of all passages of these documents."""
    return Batch(vectors=vectors([c.digest for each in entries for c in each.chunks], model))


def commit(engine: Engine, batch: Batch) -> int:
    with engine.writing(1):
        return engine.commit(batch)


def put(engine: Engine, *entries: Entry) -> int:
    return commit(engine, Batch(entries=entries))


def find(
    snapshot: Snapshot, query: str, filters: Filters | None = None, limit: int = 10
) -> list[str]:
    """Return the paths of the passages that a keyword search finds."""
    results = snapshot.lexical.search(analyze(query), FIELD_BOOSTS, filters or Filters(), limit)
    return [snapshot.documents.chunks([result.chunk_id])[0].path for result in results]
