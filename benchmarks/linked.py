"""Measure whether documents linked with the best results contain an answer that five results lack.

Compares `linked` (three documents) with three further results of the ranking. In sets made of link texts, pages that contain the
text as a link to the answer are left out, as in `marklight eval`. Names of sets or of everyday questions select what is measured.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from typing import Any

from benchmarks._measure import save, set_path
from benchmarks.everyday import BROAD, opened, read_questions
from marklight.eval.collection import open_collection
from marklight.eval.dataset import read_dataset
from marklight.library import Library
from marklight.ports import Tools
from marklight.query import Query
from marklight.search.context import Linked

SETS = ("kubernetes-anchors", "blue-book-anchors", "fastapi-anchors")
EVERYDAY = ("keps", "paraphrases", "single-words", "vault")
DEPTH = 20
"""Results that are read: pages that contain the query as a link are dropped from them."""
SHOWN, MORE = 5, 3
"""Results that a person sees, and further ones that linked documents are compared with."""
BOUNDS = {"default": Linked(), "all answers": Linked(below=1.0)}

Judged = tuple[str, set[str], set[str]]
"""A query, its right documents, and the documents that contain it as a link."""


def judged(name: str) -> Iterator[tuple[Library, list[Judged]]]:
    if name in SETS:
        dataset = read_dataset(set_path(name))
        queries = [(one.text, set(one.answers), set(one.sources)) for one in dataset.queries]
        with open_collection(dataset, "hybrid") as collection:
            yield collection.library, queries
        return
    for collection_name, questions in read_questions(name).items():
        answerable = [one for one in questions if one.answers and one.kind != BROAD]
        with opened(collection_name) as library:
            yield library, [(one.text, set(one.answers), set()) for one in answerable]


def measure(name: str, stage: Linked) -> dict[str, Any]:
    counts: Counter[str] = Counter()
    for library, queries in judged(name):
        for text, right, sources in queries:
            answer = library.search(text, limit=DEPTH, refresh=False)
            hits = tuple(hit for hit in answer.hits if hit.chunk.path not in sources - right)
            counts["queries"] += 1
            if not hits or hits[0].score >= stage.below:
                continue
            shown = dict.fromkeys(hit.chunk.path for hit in hits[:SHOWN])
            rest = dict.fromkeys(hit.chunk.path for hit in hits if hit.chunk.path not in shown)
            with library.engine.snapshot() as snapshot:
                found = stage(
                    Query(text, limit=SHOWN), hits, Tools(snapshot, library.models.embedder)
                )
            linked = {one.path for hit in found for one in hit.linked}
            counts["with linked documents"] += bool(linked)
            if right.isdisjoint(shown):
                by_links, by_rank = bool(right & linked), bool(right & set(list(rest)[:MORE]))
                counts["not in five results"] += 1
                counts["found by links"] += by_links
                counts["found by three more results"] += by_rank
                counts["found by links only"] += by_links and not by_rank
    return dict(counts)


def main() -> None:
    names = sys.argv[1:] or [*SETS, *EVERYDAY]
    results: dict[str, Any] = {}
    for label, stage in BOUNDS.items():
        every: Counter[str] = Counter()
        results[label] = {}
        for name in names:
            results[label][name] = measure(name, stage)
            every.update(results[label][name])
            print(label, name, results[label][name], flush=True)
        results[label]["all"] = dict(every)
    save("linked", results)


if __name__ == "__main__":
    main()
