"""Measure queries for names in code (`get_user_by_id`): by hybrid search, and by the code index.

The names occur in code blocks of at most three documents, which are the right ones. They are typed as written, in the other naming
convention, and in a sentence.
"""

from __future__ import annotations

import random
import re
from collections import defaultdict
from collections.abc import Callable
from typing import Any

from benchmarks._measure import save
from benchmarks.everyday import opened
from marklight.library import Library
from marklight.operations import ModeName

COLLECTIONS = ("fastapi", "blue-book")
NAMES, MAX_DOCUMENTS, RESULTS, SEED = 60, 3, 10, 1
_NAME = re.compile(r"\b(?:[a-z]+(?:_[a-z]+)+|[a-z]+(?:[A-Z][a-z]+)+)\b")


def other_convention(name: str) -> str:
    """Return a name with underscores in camel case, and the other way round."""
    if "_" in name:
        first, *others = name.split("_")
        return first + "".join(map(str.title, others))
    return re.sub("[A-Z]", lambda letter: f"_{letter[0].lower()}", name)


TYPED: dict[str, Callable[[str], str]] = {
    "as written": str,
    "other convention": other_convention,
    "in a sentence": "how to use {}".format,
}


def names_of(library: Library) -> dict[str, set[str]]:
    """Return a sample of names with the paths of the documents that have them in code."""
    where: dict[str, set[str]] = defaultdict(set)
    with library.engine.snapshot() as snapshot:
        for document in snapshot.documents.files():
            for chunk in snapshot.documents.chunks_of(document):
                for name in _NAME.findall(chunk.code):
                    where[name].add(document.path)
    rare = sorted(name for name, paths in where.items() if len(paths) <= MAX_DOCUMENTS)
    return {name: where[name] for name in random.Random(SEED).sample(rare, min(NAMES, len(rare)))}


def measure(
    library: Library, names: dict[str, set[str]], mode: ModeName, typed: str
) -> dict[str, int]:
    counts = {"names": len(names), "first": 0, "in ten": 0, "refused": 0}
    for name, right in names.items():
        answer = library.search(TYPED[typed](name), limit=RESULTS, mode=mode, refresh=False)
        paths = [hit.chunk.path for hit in answer.hits]
        counts["first"] += bool(right.intersection(paths[:1]))
        counts["in ten"] += bool(right.intersection(paths))
        counts["refused"] += not paths
    return counts


def main() -> None:
    results: dict[str, Any] = {}
    for collection in COLLECTIONS:
        with opened(collection) as library:
            names = names_of(library)
            for typed in TYPED:
                for mode in ("hybrid", "code"):
                    found = measure(library, names, mode, typed)
                    results.setdefault(collection, {}).setdefault(typed, {})[mode] = found
                    print(collection, typed, mode, found, flush=True)
    save("code_names", results)


if __name__ == "__main__":
    main()
