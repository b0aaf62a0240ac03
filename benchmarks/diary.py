"""Measure how often the right day ranks first in diaries and minutes whose entries are near duplicates."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import marklight
from benchmarks._diaries import Entry, LabelledQuery, diary, journal, laid_out, minutes
from benchmarks._measure import save
from marklight.search.probability import Confidence, answer_probability

KINDS = {"diary": diary, "journal": journal, "minutes": minutes}
LAYOUTS = ("day", "all")
DEPTH = 20
"""Results of a query that are compared with the right sentence."""


def measure(entries: Sequence[Entry], queries: Sequence[LabelledQuery], by: str) -> dict[str, Any]:
    ranks, refused, answered = [], 0, 0
    with tempfile.TemporaryDirectory() as folder:
        pages = Path(folder) / "pages"
        pages.mkdir()
        for path, text in laid_out(entries, by):
            (pages / path).write_text(text, "utf-8")
        with marklight.open(pages, {"engine": f"file:{folder}/index"}) as library:
            library.index()
            for query in queries:
                answer = library.search(query.text, limit=DEPTH, min_confidence=0.0, refresh=False)
                probability = max(map(answer_probability, answer.hits), default=0.0)
                confident = probability >= Confidence().threshold
                if query.answer:
                    refused += not confident
                    ranks.append(_rank(answer, query.answer))
                else:
                    answered += confident
    return {
        "queries": len(ranks),
        "first": ranks.count(1),
        "in top three": sum(rank <= 3 for rank in ranks),
        "mean rank": fmean(ranks),
        "refused": refused,
        "without answer": len(queries) - len(ranks),
        "without answer, answered": answered,
    }


def _rank(answer: marklight.Answer, sentence: str) -> int:
    """Return the rank of the sentence; one more than the depth if it is not found."""
    ranks = (rank for rank, hit in enumerate(answer.hits, 1) if sentence in hit.chunk.text)
    return next(ranks, DEPTH + 1)


def main() -> None:
    results: dict[str, Any] = {}
    for kind, generate in KINDS.items():
        for by in LAYOUTS:
            name = f"{kind}, one file" if by == "all" else f"{kind}, a file for each {by}"
            results[name] = measure(*generate(), by)
            print(name, results[name], flush=True)
    save("diary", results)


if __name__ == "__main__":
    main()
