"""bm25s with a stemmer: keyword search only, in memory."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import bm25s
import Stemmer

from benchmarks.peers._program import run


def index(passages: list[str], place: Path, _folder: Path) -> Callable[[str], object]:
    stemmer = Stemmer.Stemmer("english")
    retriever = bm25s.BM25()
    tokens = bm25s.tokenize(passages, stopwords="en", stemmer=stemmer, show_progress=False)
    retriever.index(tokens, show_progress=False)
    retriever.save(str(place), corpus=passages)

    def search(text: str) -> object:
        words = bm25s.tokenize(text, stopwords="en", stemmer=stemmer, show_progress=False)
        return retriever.retrieve(words, corpus=passages, k=5, show_progress=False)

    return search


run(index)
