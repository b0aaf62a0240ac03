"""The usual set-up by hand: sentence-transformers and faiss for meaning, Whoosh for keywords, reciprocal rank fusion."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import faiss
from sentence_transformers import SentenceTransformer
from whoosh import fields, qparser
from whoosh import index as whoosh_index
from whoosh.analysis import StemmingAnalyzer

from benchmarks.peers._program import model_folder, run

CANDIDATES = 50
RANK_CONSTANT = 60


def index(passages: list[str], place: Path, _folder: Path) -> Callable[[str], object]:
    model = SentenceTransformer(model_folder(), device="cpu")
    vectors = model.encode(passages, normalize_embeddings=True, batch_size=32)
    flat = faiss.IndexFlatIP(vectors.shape[1])
    flat.add(vectors)
    faiss.write_index(flat, str(place / "vectors"))
    schema = fields.Schema(
        id=fields.NUMERIC(stored=True), text=fields.TEXT(analyzer=StemmingAnalyzer(), stored=True)
    )
    words = whoosh_index.create_in(str(place), schema)
    writer = words.writer()
    for number, text in enumerate(passages):
        writer.add_document(id=number, text=text)
    writer.commit()
    parser = qparser.QueryParser("text", schema, group=qparser.OrGroup)
    searcher = words.searcher()

    def search(text: str) -> list[tuple[float, str]]:
        vector = model.encode([text], normalize_embeddings=True)
        _, nearest = flat.search(vector, CANDIDATES)
        hits = searcher.search(parser.parse(text), limit=CANDIDATES)
        scores: dict[int, float] = {}
        for ranking in (nearest[0].tolist(), [hit["id"] for hit in hits]):
            for rank, number in enumerate(ranking, 1):
                scores[number] = scores.get(number, 0.0) + 1 / (RANK_CONSTANT + rank)
        best = sorted(scores, key=lambda number: -scores[number])[:5]
        return [(scores[number], passages[number]) for number in best]

    return search


run(index)
