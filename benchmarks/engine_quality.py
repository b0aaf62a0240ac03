"""Compare the results of PostgreSQL and Qdrant with those of the embedded engine on the development sets.

The index of each set is copied, so that all engines have the same passages and vectors. Arguments select sets; the results of others are kept. `exact` compares
vectors one by one in all engines: then equal order is expected, but for passages whose scores differ by less than a rounding error.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from typing import Any

from tests.servers.postgres import new_library
from tests.servers.qdrant import new_fleet_library

from benchmarks._measure import SETS, result_path, save, set_path
from marklight.engines.server.qdrant import QdrantVectorReader
from marklight.eval.collection import Collection, open_collection, resolve_answers
from marklight.eval.dataset import Dataset, read_dataset
from marklight.eval.run import TOP, Outcome, Run, run_queries
from marklight.library import Library
from marklight.library.transfer import copy_index

EXACT = ("postgres.exact_below=10000000",)
"""Settings with which PostgreSQL uses no approximate index."""
TOLERANCE = 2e-4
"""Difference of two scores that counts as a tie: scores of keyword search are rounded to four decimals."""
SERVERS: Mapping[str, Callable[[], AbstractContextManager[str]]] = {
    "postgresql": new_library,
    "qdrant": new_fleet_library,
}
METRICS = ("ndcg@10", "success@1", "recall@10", "ece", "abstained")


@contextmanager
def copied(collection: Collection, address: str, settings: Sequence[str]) -> Iterator[Collection]:
    """Copy the index of a collection to an address, and open it there."""
    folder = collection.library.place.folder
    given = {**collection.given, "engine": address}
    with Library(folder, given, (*collection.assignments, *settings)) as library:
        copy_index(collection.library, library)
        yield replace(collection, library=library)


def run(collection: Collection, dataset: Dataset) -> Run:
    """Run all queries of a dataset."""
    return run_queries(collection, dataset, resolve_answers(collection, dataset), (), "hybrid")


def is_same_order(first: Outcome, second: Outcome) -> bool:
    """Return whether the ten best are the same in the same order, up to ties."""
    scores = dict(first.ranking)
    expected, found = first.ranking[:TOP], second.ranking[:TOP]
    return len(expected) == len(found) and all(
        own == other or abs(scores.get(other, -1.0) - score) <= TOLERANCE
        for (own, score), (other, _) in zip(expected, found, strict=True)
    )


def measure(name: str, settings: Sequence[str]) -> dict[str, Any]:
    """Return the metrics of one set with each engine, and what share of its queries has the same order."""
    dataset = read_dataset(set_path(name))
    with open_collection(dataset, "hybrid") as collection:
        base = run(collection, dataset)
        results: dict[str, Any] = {"queries": len(base.outcomes), "embedded": _metrics(base)}
        for engine, new_address in SERVERS.items():
            with new_address() as address, copied(collection, address, settings) as other:
                own = run(other, dataset)
            pairs = zip(base.outcomes, own.outcomes, strict=True)
            same = [is_same_order(first, second) for first, second in pairs]
            results[engine] = {
                **_metrics(own),
                "same order": sum(same) / len(same),
                "p50 to embedded": own.latency_ms["p50"] / base.latency_ms["p50"],
            }
            print(name, engine, results[engine], flush=True)
    return results


def _metrics(run: Run) -> dict[str, float]:
    return {name: run.metrics[name] for name in METRICS}


def main() -> None:
    arguments = sys.argv[1:]
    exact = "exact" in arguments
    sets = [name for name in arguments if name != "exact"] or SETS
    result = "engine_quality_exact" if exact else "engine_quality"
    path = result_path(result)
    results = json.loads(path.read_text())["sets"] if path.exists() else {}
    QdrantVectorReader.exact = exact
    results.update({name: measure(name, EXACT if exact else ()) for name in sets})
    largest = {
        engine: max(
            abs(each[engine]["ndcg@10"] - each["embedded"]["ndcg@10"]) for each in results.values()
        )
        for engine in SERVERS
    }
    save(result, {"sets": results, "largest difference of ndcg@10": largest})


if __name__ == "__main__":
    main()
