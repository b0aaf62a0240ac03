"""Measure how often the right day ranks first in diaries and minutes whose entries are near duplicates."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import marklight
from benchmarks._diaries import Asked, Entry, diary, journal, laid_out, minutes
from benchmarks._measure import save
from marklight.search.refine.confidence import Confidence, answer_probability

KINDS = {"diary": diary, "journal": journal, "minutes": minutes}
LAYOUTS = ("day", "all")
DEEP = 20


def measured(entries: Sequence[Entry], queries: Sequence[Asked], by: str) -> dict[str, Any]:
    ranks, held, answers = [], 0, 0
    with tempfile.TemporaryDirectory() as folder:
        pages = Path(folder) / "pages"
        pages.mkdir()
        for path, text in laid_out(entries, by):
            (pages / path).write_text(text, "utf-8")
        with marklight.open(pages, {"engine": f"file:{folder}/index"}) as library:
            library.index()
            for one in queries:
                found = library.search(one.text, limit=DEEP, min_confidence=0.0, refresh=False)
                likely = (
                    max(map(answer_probability, found.hits), default=0.0) >= Confidence().threshold
                )
                if one.answer:
                    held += not likely
                    ranks.append(_rank(found, one.answer))
                else:
                    answers += likely
    return {
        "questions": len(ranks),
        "first": ranks.count(1),
        "among three": sum(rank <= 3 for rank in ranks),
        "mean rank": fmean(ranks),
        "held back": held,
        "never happened": len(queries) - len(ranks),
        "never happened, answered": answers,
    }


def _rank(found: marklight.Answer, answer: str) -> int:
    """Return the rank of the sentence; one more than the depth if it is not found."""
    places = (at for at, hit in enumerate(found.hits, 1) if answer in hit.chunk.text)
    return next(places, DEEP + 1)


def main() -> None:
    found: dict[str, Any] = {}
    for kind, reported in KINDS.items():
        for by in LAYOUTS:
            found[f"{kind}, a file for each {by}" if by != "all" else f"{kind}, one file"] = one = (
                measured(*reported(), by)
            )
            print(kind, by, one, flush=True)
    save("diary", found)


if __name__ == "__main__":
    main()
