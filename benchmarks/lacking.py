"""Measure single-word queries that do not occur in a library, half of them with a synonym that does: answered, scores, correct.

A result is correct if a passage with the synonym is in the top five; a result that is right by its meaning alone
counts as wrong. Needs the folder with the files of WordNet 3 (in Debian's package `wordnet-base`).
"""

from __future__ import annotations

import random
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import fmean
from typing import Any

from benchmarks._measure import SETS, save, set_path
from marklight.eval.collection import open_collection
from marklight.eval.reading import read_dataset
from marklight.library import Library
from marklight.search.refine.confidence import Confidence, answer_probability
from marklight.text import query_terms

ASKED = 200
"""Words of each kind per dataset."""
BOUNDS = (0, 0.1, 0.3, 0.5, 0.7, 1.01)
PLAIN = re.compile("[a-z]{3,14}")
KINDS = {"@", "~", "@i", "~i"}
"""WordNet pointers to hypernyms and hyponyms."""


@dataclass(frozen=True, slots=True)
class Nouns:
    """Nouns of WordNet with their first, most frequent meaning."""

    meaning: dict[str, str]
    words: dict[str, list[str]]
    """By meaning."""
    around: dict[str, list[str]]
    """Hypernyms and hyponyms of a meaning."""

    def synonyms(self, known: set[str]) -> Iterator[tuple[str, str]]:
        """Yield words that a library lacks, each with a synonym that it has."""
        for word in self.meaning.keys() - known:
            own = self.meaning[word]
            for other in self.words[own]:
                if other in known and self.meaning[other] == own and other[:4] != word[:4]:
                    yield word, other
                    break

    def strangers(self, known: set[str]) -> Iterator[tuple[str, str]]:
        """Yield words that a library lacks together with all their synonyms, hypernyms and hyponyms."""
        for word in self.meaning.keys() - known:
            own = self.meaning[word]
            near = {each for one in (own, *self.around[own]) for each in self.words[one]}
            if known.isdisjoint(part for each in near for part in each.split("_")):
                yield word, ""


def read(folder: Path) -> Nouns:
    words, around, meaning = {}, {}, {}
    for line in (folder / "data.noun").read_text().splitlines():
        if line.startswith(" "):
            continue
        fields = line.partition("|")[0].split()
        end = 4 + 2 * int(fields[3], 16)
        words[fields[0]] = [each.lower() for each in fields[4:end:2]]
        pointers = zip(fields[end + 1 :: 4], fields[end + 2 :: 4], strict=False)
        around[fields[0]] = [other for kind, other in pointers if kind in KINDS]
    for line in (folder / "index.noun").read_text().splitlines():
        word, *fields = line.split()
        if line.startswith(" ") or not PLAIN.fullmatch(word):
            continue
        tried, first = fields[int(fields[2]) + 4 :][:2]
        if int(tried):  # it stands in the texts that meanings were tried on
            meaning[word] = first
    return Nouns(meaning, words, around)


def query(library: Library, word: str, synonym: str) -> tuple[float, bool]:
    """How likely an answer is called, and whether a passage with the synonym is shown."""
    hits = library.search(word, min_confidence=0, refresh=False).hits
    wanted = set(query_terms(synonym))
    shown = ("\n".join((*hit.chunk.headings, hit.chunk.title, hit.chunk.text)) for hit in hits)
    right = bool(synonym) and any(wanted & set(query_terms(text)) for text in shown)
    return max(map(answer_probability, hits), default=0.0), right


def figures(nouns: Nouns, name: str) -> list[tuple[float, bool, bool]]:
    with open_collection(read_dataset(set_path(name)), "hybrid") as collection:
        library = collection.library
        with library.engine.snapshot() as snapshot:
            stems = {word: query_terms(word) for word in nouns.meaning}
            there = snapshot.lexical.existing_terms(
                [stem for each in stems.values() for stem in each]
            )
        known = {word for word, own in stems.items() if not own or there.intersection(own)}
        found = []
        for pairs in (nouns.synonyms(known), nouns.strangers(known)):
            every = sorted(pairs)
            random.Random(name).shuffle(every)
            found += [(*query(library, *pair), bool(pair[1])) for pair in every[:ASKED]]
    return found


def reported(found: list[tuple[float, bool, bool]]) -> dict[str, Any]:
    least = Confidence().threshold
    shown = [(right, related) for likely, right, related in found if likely >= least]
    within = [[one for one in found if low <= one[0] < high] for low, high in pairwise(BOUNDS)]
    return {
        "asked": len(found),
        "answered": len(shown),
        "answered_that_have_a_synonym": sum(related for _, related in shown),
        "answered_right": sum(right for right, _ in shown),
        "by_likelihood": [
            {
                "words": len(some),
                "said": fmean(likely for likely, _, _ in some),
                "right": fmean(right for _, right, _ in some),
            }
            for some in within
            if some
        ],
    }


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit("name the folder with data.noun and index.noun of WordNet")
    nouns = read(Path(sys.argv[1]))
    by_set = {name: figures(nouns, name) for name in SETS}
    save(
        "lacking",
        {
            "all": reported([one for found in by_set.values() for one in found]),
            **{name: reported(found) for name, found in by_set.items()},
        },
    )


if __name__ == "__main__":
    main()
