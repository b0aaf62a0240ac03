"""The usual set-up by hand: sentence-transformers and faiss for meaning, Whoosh for keywords, reciprocal rank fusion."""

from __future__ import annotations

from pathlib import Path

import faiss
from whoosh import fields, qparser
from whoosh import index as whoosh_index
from whoosh.analysis import StemmingAnalyzer

from benchmarks.peers._program import CANDIDATES, Collection, Search, Tool, encode, fuse, run

SCHEMA = fields.Schema(
    id=fields.NUMERIC(stored=True), text=fields.TEXT(analyzer=StemmingAnalyzer(), stored=True)
)


def build(collection: Collection, place: Path) -> None:
    vectors = encode(collection.passages)
    flat = faiss.IndexFlatIP(vectors.shape[1])
    flat.add(vectors)
    faiss.write_index(flat, str(place / "vectors"))
    writer = whoosh_index.create_in(str(place), SCHEMA).writer()
    for number, text in enumerate(collection.passages):
        writer.add_document(id=number, text=text)
    writer.commit()


def load(collection: Collection, place: Path) -> Search:
    flat = faiss.read_index(str(place / "vectors"))
    searcher = whoosh_index.open_dir(str(place)).searcher()
    parser = qparser.QueryParser("text", SCHEMA, group=qparser.OrGroup)

    def search(text: str, limit: int) -> list[str]:
        _, nearest = flat.search(encode([text]), CANDIDATES)
        hits = searcher.search(parser.parse(text), limit=CANDIDATES)
        best = fuse(nearest[0].tolist(), [hit["id"] for hit in hits])
        return [collection.documents[number] for number in best[:limit]]

    return search


run(Tool(build, load, None))
