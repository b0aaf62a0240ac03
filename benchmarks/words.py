"""Compare keyword search with plain BM25 and stemming: nDCG@10 of both on the same queries, per dataset."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import bm25s
from Stemmer import Stemmer

from benchmarks._measure import SETS, save, set_path
from marklight.eval import evaluate
from marklight.eval.dataset import Dataset, read_dataset
from marklight.eval.metrics import ndcg, p_value

PLAIN = {"bm25s": {"k1": 1.5, "b": 0.75}, "bm25s, k1 1.2": {"k1": 1.2, "b": 0.75}}
"""The baseline with its own defaults, and with those of Lucene and tantivy."""
DEPTH = 100


def documents(dataset: Dataset) -> dict[str, str]:
    """Return the text of each document for plain BM25: the title and everything below."""
    if dataset.folder is None:
        return {text.id: f"{text.title}\n{text.text}" for text in dataset.texts}
    files = sorted(dataset.folder.rglob("*.md"))
    return {
        str(file.relative_to(dataset.folder)): file.read_text("utf-8", "replace") for file in files
    }


def plain(dataset: Dataset, settings: dict[str, float]) -> list[float]:
    """Return nDCG@10 of each query by Lucene's BM25 over whole documents, with stemming and stop words removed."""
    texts = documents(dataset)
    names = list(texts)

    def stems(many: Sequence[str]) -> Any:
        return bm25s.tokenize(
            list(many), stopwords="en", stemmer=Stemmer("english"), show_progress=False
        )

    index = bm25s.BM25(method="lucene", **settings)
    index.index(stems(list(texts.values())), show_progress=False)
    queries = stems([query.text for query in dataset.queries])
    ranked, _ = index.retrieve(queries, k=min(DEPTH, len(names)), show_progress=False)
    values = []
    for query, rows in zip(dataset.queries, ranked, strict=True):
        dropped = set(query.sources) - set(query.answers) if dataset.drop_sources else set()
        ranking = [names[row] for row in rows if names[row] not in dropped]
        grades = {name: judgement.grade for name, judgement in query.answers.items()}
        values.append(ndcg(ranking, grades, 10))
    return values


def figures(path: Path) -> dict[str, Any]:
    dataset = read_dataset(path)
    ours = evaluate(path, mode="keyword").run.per_query["ndcg@10"]
    rows: dict[str, Any] = {"questions": len(ours), "marklight": fmean(ours)}
    for name, settings in PLAIN.items():
        theirs = plain(dataset, settings)
        rows |= {name: fmean(theirs), f"p against {name}": p_value(theirs, ours)}
    return rows


def main() -> None:
    """Measure the datasets given as arguments, by default the development sets and Vaswani; nothing is embedded, and indexes are cached."""
    results = {}
    for name in sys.argv[1:] or (*SETS, "vaswani"):
        results[name] = figures(set_path(name))
        print(name, results[name], flush=True)
    save("words", {"ndcg@10": results})


if __name__ == "__main__":
    main()
