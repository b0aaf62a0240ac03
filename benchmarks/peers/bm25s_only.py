"""bm25s with a stemmer: keyword search only, in memory."""

from __future__ import annotations

from pathlib import Path

import bm25s
import Stemmer

from benchmarks.peers._program import Collection, Search, Tool, run

STEMMER = Stemmer.Stemmer("english")


def tokens(texts: list[str]) -> object:
    return bm25s.tokenize(texts, stopwords="en", stemmer=STEMMER, show_progress=False)


def build(collection: Collection, place: Path) -> None:
    retriever = bm25s.BM25()
    retriever.index(tokens(collection.passages), show_progress=False)
    retriever.save(str(place), corpus=collection.documents)


def load(collection: Collection, place: Path) -> Search:
    retriever = bm25s.BM25.load(str(place))
    most = len(collection.documents)

    def search(text: str, limit: int) -> list[str]:
        found, _ = retriever.retrieve(tokens([text]), k=min(limit, most), show_progress=False)
        return [collection.documents[number] for number in found[0]]

    return search


run(Tool(build, load, None))
