"""Check whether the passages that a sentence cites support it: term coverage and embedding similarity.

Four features, combined by logistic regression (benchmarks/support.py fits it on one half of the documents and reports
the other half): the idf-weighted share of the sentence's terms that the cited passages contain; the highest cosine
similarity between the sentence and a sentence of these passages; whether the sentence has a number or an
identifier, which have no synonyms, that none of these passages has; and whether it is nearly a quote of them, but with
a term that they lack, such as an exchanged word or a negation.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from operator import mul
from typing import TYPE_CHECKING, NamedTuple

from marklight.errors import ModelError
from marklight.text.analyzer import analyze, identifier_parts, vocabulary_terms
from marklight.text.lines import split_sentences
from marklight.text.markdown import strip_markup

if TYPE_CHECKING:
    from marklight.model import Chunk, Matrix, Vector
    from marklight.ports import Embedder

_WORD = re.compile(r"\w[\w./:@-]*")
_IN_NAME = re.compile(r"\d|_|[a-z][A-Z]|\w[./:@]\w")
QUOTE_JACCARD = 0.7
"""Jaccard similarity of terms above which a sentence is nearly a quote. In the first half of the benchmark 1 % of the
sentences of answers are and have another term, 10 % at 0.6; of sentences with an exchanged word 77 %. Chosen with
both halves in view."""
MIN_QUOTE_TERMS = 4
"""In a shorter sentence one term is too much of it."""
MAX_WINDOWS = 64
"""Sentences of a passage that are compared by embedding, which bounds the time for a very long one."""


class Weights(NamedTuple):
    """Coefficients of the logistic regression, and the threshold of the probability."""

    bias: float
    coverage: float
    similarity: float
    missing_name: float
    altered_quote: float
    threshold: float


KEYWORDS_ONLY = Weights(-4.886, 7.326, 0.0, -2.38, -6.213, 0.291)
"""Without an embedding model, or with one that was not measured. From benchmarks/results/support.json."""
WEIGHTS = {"granite-embedding-30m-english": Weights(-5.225, 7.173, 0.516, -2.404, -6.233, 0.289)}
"""By embedding model, since each has similarities of its own. From benchmarks/results/support.json."""


class SupportFeatures(NamedTuple):
    """Features of a sentence and the passages that it cites."""

    coverage: float
    similarity: float | None
    """None without an embedding model."""
    missing_name: bool
    """True if the sentence has a number or an identifier that no cited passage has."""
    altered_quote: bool
    """True if the sentence has nearly all terms of a sentence in a cited passage, and one that no cited passage has."""

    def probability(self, weights: Weights) -> float:
        """Return the estimated probability that the passages support the sentence."""
        values = (self.coverage, self.similarity or 0.0, self.missing_name, self.altered_quote)
        bias, *coefficients, _ = weights
        logit = bias + sum(map(mul, coefficients, values))
        return 1 / (1 + math.exp(-logit))


class _Passage:
    """A cited passage; its terms and vectors are computed once."""

    def __init__(self, chunk: Chunk, language: str) -> None:
        self.text = "\n".join((chunk.title, *chunk.headings, chunk.text))
        self._language = language
        self._vectors: Matrix | None = None

    @cached_property
    def terms(self) -> frozenset[str]:
        return frozenset((*analyze(self.text, self._language), *identifier_parts(self.text)))

    @cached_property
    def sentences(self) -> list[str]:
        return split_sentences(strip_markup(self.text))

    @cached_property
    def quotes(self) -> list[frozenset[str]]:
        """Return the terms of each sentence that is long enough to be quoted."""
        terms = (frozenset(analyze(sentence, self._language)) for sentence in self.sentences)
        return [quote for quote in terms if len(quote) >= MIN_QUOTE_TERMS]

    def similarity(self, vector: Vector, embedder: Embedder) -> float:
        """Return the highest cosine similarity of a sentence of the passage to a vector."""
        if self._vectors is None:
            self._vectors = embedder.embed_passages(self.sentences[:MAX_WINDOWS] or [""])
        return float((self._vectors @ vector).max())


class SupportCheck:
    """Compares sentences with the numbered passages of one answer."""

    def __init__(
        self,
        passages: Sequence[Chunk],
        embedder: Embedder | None,
        idf: Callable[[Sequence[str]], Mapping[str, float]],
        language: str = "en",
    ) -> None:
        self._passages = [_Passage(chunk, language) for chunk in passages]
        self._embedder, self._idf, self._language = embedder, idf, language

    def support(self, sentence: str, cited: Sequence[int]) -> tuple[float, bool]:
        """Return the probability that passages, numbered from 1, support a sentence, and whether it is high enough."""
        features = self.features(sentence, cited)
        name = self._embedder.name if self._embedder and features.similarity is not None else ""
        weights = WEIGHTS.get(name, KEYWORDS_ONLY)
        probability = features.probability(weights)
        return probability, probability >= weights.threshold

    def features(self, sentence: str, cited: Sequence[int]) -> SupportFeatures:
        """Compute the features of a sentence and the passages that it cites."""
        passages = [self._passages[number - 1] for number in cited]
        is_code = sentence.lstrip().startswith(("```", "~~~"))
        plain = "\n".join(sentence.split("\n")[1:-1]) if is_code else strip_markup(sentence)
        evidence = "\n".join(passage.text for passage in passages).lower()
        evidence_terms = frozenset[str]().union(*(passage.terms for passage in passages))
        terms = frozenset(analyze(plain, self._language))
        return SupportFeatures(
            self._coverage(plain, evidence_terms),
            # An embedding model compares code with prose badly; its terms must be there.
            None if is_code else self._similarity(plain, passages),
            not all(
                re.search(rf"(?<!\w){re.escape(name)}(?!\w)", evidence) for name in names(plain)
            ),
            not terms <= evidence_terms
            and any(
                len(terms & quote) > QUOTE_JACCARD * len(terms | quote)
                for passage in passages
                for quote in passage.quotes
            ),
        )

    def _coverage(self, sentence: str, evidence_terms: frozenset[str]) -> float:
        terms = self._terms_of(sentence)
        if not terms:
            return 1.0  # nothing but stop words states nothing
        idf = self._idf(sorted(terms.values()))
        weights = {term: idf[word] for term, word in terms.items()}
        covered = sum(weight for term, weight in weights.items() if term in evidence_terms)
        return covered / sum(weights.values())

    def _terms_of(self, sentence: str) -> dict[str, str]:
        """Return the terms of a sentence, each with the word that its document frequency is looked up by."""
        words = {
            term: word
            for word in vocabulary_terms(sentence)
            for term in analyze(word, self._language)
        }
        return {term: words.get(term, term) for term in analyze(sentence, self._language)}

    def _similarity(self, sentence: str, passages: Sequence[_Passage]) -> float | None:
        embedder = self._embedder
        if embedder is None:
            return None
        try:
            vector = embedder.embed_passages([sentence])[0]
            return max(passage.similarity(vector, embedder) for passage in passages)
        except ModelError:
            self._embedder = None  # a server that failed once is not waited for again
            return None


def names(text: str) -> set[str]:
    """Return the numbers and identifiers of a text: words with a digit, an underscore, a capital or a dot inside."""
    words = (word.rstrip("./:@-") for word in _WORD.findall(text))
    return {word.lower() for word in words if _IN_NAME.search(word)}


def inverse_frequencies(
    words: Sequence[str], frequencies: Mapping[str, int], documents: int
) -> dict[str, float]:
    """Return the idf of words by their document frequencies; a word that no document has counts as the rarest."""
    return {
        word: math.log1p((documents + 0.5) / (frequencies.get(word, 0) + 0.5)) for word in words
    }
