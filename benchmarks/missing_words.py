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
from marklight.eval.dataset import read_dataset
from marklight.library import Library
from marklight.search.probability import Confidence, answer_probability
from marklight.text.analyzer import query_terms

WORDS_PER_KIND = 200
"""Words with a synonym, and words without one, per dataset."""
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

    def unrelated(self, known: set[str]) -> Iterator[tuple[str, str]]:
        """Yield words that a library lacks together with all their synonyms, hypernyms and hyponyms."""
        for word in self.meaning.keys() - known:
            own = self.meaning[word]
            meanings = (own, *self.around[own])
            near = {other for meaning in meanings for other in self.words[meaning]}
            if known.isdisjoint(part for other in near for part in other.split("_")):
                yield word, ""


def read(folder: Path) -> Nouns:
    """Read the nouns of WordNet."""
    words, around, meaning = {}, {}, {}
    for line in (folder / "data.noun").read_text().splitlines():
        if line.startswith(" "):
            continue
        fields = line.partition("|")[0].split()
        end = 4 + 2 * int(fields[3], 16)
        words[fields[0]] = [word.lower() for word in fields[4:end:2]]
        pointers = zip(fields[end + 1 :: 4], fields[end + 2 :: 4], strict=False)
        around[fields[0]] = [other for kind, other in pointers if kind in KINDS]
    for line in (folder / "index.noun").read_text().splitlines():
        word, *fields = line.split()
        if line.startswith(" ") or not PLAIN.fullmatch(word):
            continue
        tagged, first = fields[int(fields[2]) + 4 :][:2]
        if int(tagged):  # it occurs in the texts that were tagged with meanings
            meaning[word] = first
    return Nouns(meaning, words, around)


def query(library: Library, word: str, synonym: str) -> tuple[float, bool]:
    """Return the answer probability of a word, and whether a passage with the synonym is shown."""
    hits = library.search(word, min_confidence=0, refresh=False).hits
    wanted = set(query_terms(synonym))
    shown = ("\n".join((*hit.chunk.headings, hit.chunk.title, hit.chunk.text)) for hit in hits)
    right = bool(synonym) and any(wanted & set(query_terms(text)) for text in shown)
    return max(map(answer_probability, hits), default=0.0), right


def measure(nouns: Nouns, name: str) -> list[tuple[float, bool, bool]]:
    """Return answer probability, correctness, and whether it has a synonym, for the words of one dataset."""
    with open_collection(read_dataset(set_path(name)), "hybrid") as collection:
        library = collection.library
        with library.engine.snapshot() as snapshot:
            stems = {word: query_terms(word) for word in nouns.meaning}
            existing = snapshot.lexical.existing_terms(
                [stem for own in stems.values() for stem in own]
            )
        known = {word for word, own in stems.items() if not own or existing.intersection(own)}
        outcomes = []
        for pairs in (nouns.synonyms(known), nouns.unrelated(known)):
            every = sorted(pairs)
            random.Random(name).shuffle(every)
            outcomes += [(*query(library, *pair), bool(pair[1])) for pair in every[:WORDS_PER_KIND]]
    return outcomes


def summarize(outcomes: list[tuple[float, bool, bool]]) -> dict[str, Any]:
    least = Confidence().threshold
    shown = [(right, related) for probability, right, related in outcomes if probability >= least]
    bins = [
        [outcome for outcome in outcomes if low <= outcome[0] < high]
        for low, high in pairwise(BOUNDS)
    ]
    return {
        "queries": len(outcomes),
        "answered": len(shown),
        "answered_with_synonym": sum(related for _, related in shown),
        "answered_correctly": sum(right for right, _ in shown),
        "by_probability": [
            {
                "words": len(group),
                "mean_probability": fmean(probability for probability, _, _ in group),
                "correct": fmean(right for _, right, _ in group),
            }
            for group in bins
            if group
        ],
    }


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit(
            "Usage: python -m benchmarks.missing_words FOLDER (with data.noun and index.noun of WordNet)"
        )
    nouns = read(Path(sys.argv[1]))
    by_set = {name: measure(nouns, name) for name in SETS}
    save(
        "missing_words",
        {
            "all": summarize([outcome for outcomes in by_set.values() for outcome in outcomes]),
            **{name: summarize(outcomes) for name, outcomes in by_set.items()},
        },
    )


if __name__ == "__main__":
    main()
