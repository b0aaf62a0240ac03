"""Merge duplicates and diversify: shingling with character trigrams, Jaccard similarity, cosine similarity, MMR.

Passages with the same text, similar text or similar embeddings are merged into the best of them. Of the passages of a document, those with
text of their own are shown first, up to a limit.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate, chain
from math import inf, log, nextafter
from typing import TYPE_CHECKING, Annotated, Any

from marklight.answer import Hit, Hits, best_first
from marklight.model import Chunk, DocumentId
from marklight.ports import Tools
from marklight.query import Query
from marklight.settings import ABOVE_ZERO, Within
from marklight.text import fold, normalize, query_terms, surface_prefixes, title_key

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from marklight.model import Matrix

SIGNATURE_BITS = 2039
"""Bits of a signature. A passage of 1,000 characters has about 450 different trigrams, so most have a bit of
their own; a prime, so that the remainders are spread evenly."""
_WORDS_PER_SIGNATURE = -(-SIGNATURE_BITS // 64)
NARROW = 1024
"""Trigrams of code points below it fit 32 bits, which sort in half the time."""
PREFIX_WORDS = 12
"""Words at the beginning by which most texts differ, so that few are compared as a whole."""
VARIABLE_ENDINGS = "ie"
"""Last letters of a stem that the word may lack: `happi` of happy, `hope` of hoping."""


def distinct(texts: Sequence[str]) -> list[int]:
    """Return the indexes of texts that differ from all before them in more than white space."""
    first: dict[object, int] = {}
    for index, key in enumerate(_white_space_keys(texts)):
        first.setdefault(key, index)
    return list(first.values())


def equal_pairs(texts: Sequence[str]) -> Iterator[tuple[int, int]]:
    """Yield the indexes of each text and of every one before it that differs in white space at most."""
    before: dict[object, list[int]] = defaultdict(list)
    for index, key in enumerate(_white_space_keys(texts)):
        yield from ((index, earlier) for earlier in before[key])
        before[key].append(index)


def _white_space_keys(texts: Sequence[str]) -> Iterator[object]:
    """Yield a key for each text, equal for texts that differ in white space at most."""
    prefixes = [tuple(text.split(None, PREFIX_WORDS)[:PREFIX_WORDS]) for text in texts]
    counts = Counter(prefixes)
    for text, prefix in zip(texts, prefixes, strict=True):
        yield prefix if counts[prefix] == 1 else " ".join(text.split())


def merge_pairs(query: Query, hits: Hits, pairs: Iterable[tuple[int, int]]) -> Hits:
    """Merge each hit into the first better one that it duplicates and may be merged with.

    `pairs` are indexes of a hit and of a better one, ordered. A hit that was merged is nobody's better one.
    """
    terms, merged = QueryTerms(query), dict[int, int]()
    for worse, better in pairs:
        if worse in merged or better in merged:
            continue
        if terms.mergeable(hits[worse], hits[better]):
            merged[worse] = better
    groups: dict[int, list[Hit]] = defaultdict(list)
    for worse, better in merged.items():
        groups[better].append(hits[worse])
    return tuple(
        hit.merged_with(groups[index]) if index in groups else hit
        for index, hit in enumerate(hits)
        if index not in merged
    )


@dataclass(frozen=True, slots=True)
class Signatures:
    """Trigrams of several texts as bit signatures, with the number of bits that each pair shares.

    Every trigram sets one bit. A bit that only one of two texts has set is a trigram that only this one
    has, so two texts differ in at most as many bits as trigrams.
    """

    trigrams: Sequence[NDArray[np.integer[Any]]]
    """Trigrams of each text in order, with repetitions."""
    sizes: NDArray[np.float32]
    """Number of bits set by each text."""
    shared: NDArray[np.float32]
    """Number of bits shared by each pair."""
    _unique: dict[int, NDArray[np.integer[Any]]] = field(default_factory=dict)

    @property
    def differing(self) -> NDArray[np.float32]:
        """Return the number of bits in which each pair differs."""
        return self.sizes[:, None] + self.sizes - 2 * self.shared

    @property
    def approximate_jaccard(self) -> NDArray[np.float32]:
        """Return the Jaccard similarity of the signatures of each pair."""
        return self.shared / (self.sizes[:, None] + self.sizes - self.shared)

    def unique_trigrams(self, index: int) -> NDArray[np.integer[Any]]:
        """Return the sorted set of a text's trigrams, computed on first use."""
        import numpy as np

        if index not in self._unique:
            ordered = np.sort(self.trigrams[index])
            first = np.ones(len(ordered), np.bool_)
            np.not_equal(ordered[1:], ordered[:-1], out=first[1:])
            self._unique[index] = ordered[first]
        return self._unique[index]

    def jaccard(self, one: int, other: int) -> float:
        """Return the Jaccard similarity of the trigram sets of two texts."""
        import numpy as np

        first, second = self.unique_trigrams(one), self.unique_trigrams(other)
        shared = len(np.intersect1d(first, second, assume_unique=True))
        return shared / (len(first) + len(second) - shared)


def signatures(texts: Sequence[str]) -> Signatures:
    """Compute the trigrams and bit signatures of flattened texts and compare all pairs, 64 bits at a time."""
    import numpy as np

    # Padded with a character that no text contains: a short text must not equal one with a blank there.
    padded = [text.ljust(3, "\0") for text in texts]
    codes = np.frombuffer("".join(padded).encode("utf-32-le", "surrogatepass"), np.uint32)
    if codes.max(initial=0) < NARROW:
        trigrams = (codes[:-2] << 20) | (codes[1:-1] << 10) | codes[2:]
    else:
        codes = codes.astype(np.uint64)
        trigrams = (codes[:-2] << 42) | (codes[1:-1] << 21) | codes[2:]
    ends = list(accumulate(map(len, padded)))
    # The last two trigrams that begin in a text reach into the next.
    spans = [slice(end - len(text), end - 2) for text, end in zip(padded, ends, strict=True)]
    bits = np.zeros((len(padded), _WORDS_PER_SIGNATURE * 64), np.bool_)
    positions = (trigrams % SIGNATURE_BITS).astype(np.int64)
    for row, span in zip(bits, spans, strict=True):
        row[positions[span]] = True
    # Not a matrix product, which numpy splits among threads that wait for each other on busy cores:
    # 87 ms in place of 2 for 200 passages.
    shared = np.zeros((len(padded), len(padded)), np.uint16)
    for words in np.packbits(bits, axis=1).view(np.uint64).T:
        shared += np.bitwise_count(words[:, None] & words)
    counts = shared.astype(np.float32)
    return Signatures([trigrams[span] for span in spans], counts.diagonal(), counts)


class QueryTerms:
    """Match the terms of a query in few passages.

    Analyzing a passage takes many times as long as a substring search for the surface_prefixes of terms, so it
    is done only for a passage that seems to have a term which no other has.
    """

    def __init__(self, query: Query) -> None:
        self._text, self._languages = query.text, query.languages
        self._possible: dict[str, frozenset[str]] = {}

    def mergeable(self, worse: Hit, better: Hit) -> bool:
        """Return True if a duplicate may be merged: documents with other titles, or other query terms, are kept apart."""
        one, other = worse.chunk, better.chunk
        if one.document != other.document and title_key(one.title) != title_key(other.title):
            return False
        added = self.possible_in(worse) - self.possible_in(better)
        return not added or not self.occur(added, worse)

    def occur(self, terms: frozenset[str], hit: Hit) -> bool:
        """Return True if any of these terms occurs in a passage."""
        text = _searched_text(hit.chunk)
        return not terms.isdisjoint(query_terms(text, languages=self._languages))

    def missing(self, hits: Iterable[Hit]) -> frozenset[str]:
        """Return the query terms that none of the passages has."""
        return frozenset(self._prefixes).difference(*map(self.possible_in, hits))

    def possible_in(self, hit: Hit) -> frozenset[str]:
        """Return a superset of the query terms in a passage, by substring search."""
        id = hit.chunk.id
        if id not in self._possible:
            text = fold(_searched_text(hit.chunk))
            self._possible[id] = frozenset(
                term
                for term, prefixes in self._prefixes.items()
                if any(prefix in text for prefix in prefixes)
            )
        return self._possible[id]

    @cached_property
    def _prefixes(self) -> dict[str, list[str]]:
        terms = dict.fromkeys(query_terms(self._text, languages=self._languages))
        return {
            term: surface_prefixes(term[:-1] if term[-1] in VARIABLE_ENDINGS else term)
            for term in terms
        }


def _searched_text(chunk: Chunk) -> str:
    """Return text, headings and path: the date of a diary entry may occur in the path only."""
    return "\n".join((chunk.path, chunk.title, *chunk.headings, *chunk.merged, chunk.own_text))


@dataclass(frozen=True, slots=True)
class ExactDuplicates:
    """Merge passages whose texts differ in white space only; the best one is shown, the others are its `similar`.

    Documents with different titles, or with different query terms, are never merged.
    """

    def __call__(self, query: Query, hits: Hits, tools: Tools) -> Hits:
        if query.all:
            return hits
        return merge_pairs(query, hits, equal_pairs([hit.chunk.text for hit in hits]))


ROUNDING_ERROR = 1e-6
"""A product of floats may be this much below the integer that it represents."""


def _compared_text(hit: Hit) -> str:
    return hit.chunk.own_text if not hit.chunk.is_boilerplate else hit.chunk.text


@dataclass(frozen=True, slots=True)
class NearDuplicates:
    """Merge passages whose trigram sets have a Jaccard similarity of 0.7 or more.

    The best one is shown, the others are its `similar`. Documents with different titles, or with different query terms, are
    never merged.
    """

    overlap: Annotated[float, Within(ABOVE_ZERO, 1)] = 0.7
    """Minimum Jaccard similarity of two near duplicates; 1 keeps all that differ."""

    def __call__(self, query: Query, hits: Hits, tools: Tools) -> Hits:
        if len(hits) < 2 or query.all:
            return hits
        return merge_pairs(query, hits, self._near_pairs(hits))

    def _near_pairs(self, hits: Hits) -> Iterator[tuple[int, int]]:
        """Yield the indexes of each hit and of the better ones that it is a near duplicate of."""
        import numpy as np

        texts = signatures([normalize(_compared_text(hit)) for hit in hits])
        # Two sets with similarity j differ in 1 - j of their union, which is at most the size of either
        # one / j: the signatures alone rule out nearly all pairs. The length of a text is an upper bound
        # of the size of its set, which is computed for few.
        longest = np.array([len(trigrams) for trigrams in texts.trigrams])
        differing = texts.differing
        near = differing <= self._max_difference(np.minimum(longest[:, None], longest))
        for worse, better in np.argwhere(np.tril(near, -1)).tolist():
            smaller = min(len(texts.unique_trigrams(worse)), len(texts.unique_trigrams(better)))
            if differing[worse, better] > self._max_difference(smaller):
                continue
            if texts.jaccard(worse, better) >= self.overlap:
                yield worse, better

    def _max_difference(self, size: Any) -> Any:
        """Return the most trigrams in which near duplicates differ, given the size of the smaller set."""
        return size * (1 / self.overlap - 1) + ROUNDING_ERROR


@dataclass(frozen=True, slots=True)
class SemanticDuplicates:
    """Merge passages whose cosine similarity is 0.95 or more.

    The best one is shown, the others are its `similar`. Documents with different titles, or with different query terms, are
    never merged. A lower threshold drops answers with the default model: two passages of one chapter easily reach 0.85. On 150 queries about the Kubernetes
    pages 0.85 cost .026 nDCG@10 (.719 against .745 without the stage) and 5 of 100 answers among the first ten;
    0.95 costs .001 and none.
    """

    cosine: Annotated[float, Within(ABOVE_ZERO, 1)] = 0.95
    """Minimum cosine similarity of two semantic duplicates; 1 keeps all."""

    def __call__(self, query: Query, hits: Hits, tools: Tools) -> Hits:
        if tools.embedder is None or self.cosine == 1 or query.all:
            return hits
        by_id = tools.snapshot.vectors.get(
            tools.embedder.fingerprint, [hit.chunk.id for hit in hits]
        )
        if len(by_id) < 2:
            return hits
        import numpy as np

        embedded = [index for index, hit in enumerate(hits) if hit.chunk.id in by_id]
        vectors = np.stack([by_id[hits[index].chunk.id] for index in embedded])
        near = np.tril(np.vecdot(vectors[:, None], vectors) >= self.cosine, -1)
        pairs = np.argwhere(near).tolist()
        return merge_pairs(query, hits, ((embedded[one], embedded[other]) for one, other in pairs))


@dataclass(frozen=True, slots=True)
class Diversity:
    """Reorder results by 0.7 × score - 0.3 × similarity to the most similar result above (MMR). Off by default.

    A hit that is moved behind a lower score gets a score just below that one.
    """

    relevance: Annotated[float, Within(0, 1)] = 0.7
    """Weight of a hit's own score: 1 changes nothing, 0 uses dissimilarity only."""

    def __call__(self, query: Query, hits: Hits, tools: Tools) -> Hits:
        if len(hits) < 3:
            return hits
        import numpy as np

        similarity = pairwise_similarity(hits, tools)
        value = self.relevance * np.array([hit.score for hit in hits])
        closest = np.full(len(hits), -1.0)
        chosen: list[Hit] = []
        index, limit = 0, inf
        for _ in hits:
            hit = hits[index]
            score = min(hit.score, limit)
            if score != hit.score:
                hit = hit.rescored(
                    score, "diversity", "next_below(previous)", previous=chosen[-1].score
                )
            chosen.append(hit)
            limit = max(min(0.0, score), nextafter(score, -inf))
            value[index] = -inf
            closest = np.maximum(closest, similarity[index])
            index = int(np.argmax(value - (1 - self.relevance) * closest))
        return best_first(chosen)


def pairwise_similarity(hits: Hits, tools: Tools) -> Matrix:
    """Return the cosine of each pair's vectors, or the Jaccard similarity of trigrams where one has none."""
    import numpy as np

    model = tools.embedder.fingerprint if tools.embedder else ""
    by_id = tools.snapshot.vectors.get(model, [hit.chunk.id for hit in hits]) if model else {}
    embedded = [index for index, hit in enumerate(hits) if hit.chunk.id in by_id]
    similarity: Matrix = np.zeros((len(hits), len(hits)), np.float32)
    if len(embedded) < len(hits):
        similarity = signatures([normalize(hit.chunk.own_text) for hit in hits]).approximate_jaccard
    if embedded:
        vectors = np.stack([by_id[hits[index].chunk.id] for index in embedded])
        similarity[np.ix_(embedded, embedded)] = np.vecdot(vectors[:, None], vectors)
    return similarity


VISIBLE_HITS = 5
"""Hits that are seen with the default limit: with more, a replaced passage would often not be shown."""
RARE_SHARE = 0.1
"""Share of the hits that contain a rare term, at most: that a common one is missing says little. Hand-set; not measured."""
PROSE_WEIGHT, ENOUGH_CHARS = 8.0, 200
"""By how much the log-odds of a passage with enough text may be lower, and the characters above which more text makes no difference.
Hand-set; not measured."""
MIN_ODDS = 1e-9
"""Keeps the logarithm of a score of 0 or 1 finite."""
_LINK = re.compile(r"\[\[[^\[\]\n]{1,500}\]\]|\[[^\[\]]{0,500}\]\([^()\s]{0,2000}\)")


@dataclass(frozen=True, slots=True)
class Prose:
    """Give the higher scores of a document to its passages with more text, whose own words were compared with the query.

    The embedding of a passage begins with title and headings. Of a passage with hardly any other text, such as a line at the end
    of a note, it is the embedding of the title, and nearer to a query about the note than the passage that answers it.
    Links do not count as text, so that a table of contents is shown only where there is nothing else. Documents keep
    their ranks: only passages of one document exchange scores.
    """

    def __call__(self, query: Query, hits: Hits, tools: Tools) -> Hits:
        groups: dict[DocumentId, list[Hit]] = {}
        for hit in hits:
            groups.setdefault(hit.chunk.document, []).append(hit)
        changed: dict[str, Hit] = {}
        for group in groups.values():
            if len(group) > 1:
                for hit, score in zip(
                    sorted(group, key=_preference), [member.score for member in group], strict=True
                ):
                    if hit.score != score:
                        changed[hit.chunk.id] = hit.rescored(
                            score, "prose", "score_of_the_document", score_of_the_document=score
                        )
        if not changed:
            return hits
        return best_first(changed.get(hit.chunk.id, hit) for hit in hits)


def _preference(hit: Hit) -> tuple[float, str]:
    share = min(1.0, prose_length(hit.chunk.own_text) / ENOUGH_CHARS)
    return -(_log_odds(hit.score) + PROSE_WEIGHT * share), hit.chunk.id


def prose_length(text: str) -> int:
    """Return the number of characters outside of links."""
    return len(_LINK.sub("", text)) if "[" in text else len(text)


def _log_odds(score: float) -> float:
    return log(max(score, MIN_ODDS) / max(1 - score, MIN_ODDS))


@dataclass(frozen=True, slots=True)
class PerDocument:
    """Keep the best passages of each document, up to a limit.

    If only a few documents match (for example, a diary kept in one file), a document's lowest-ranked kept passage
    gives way to one that contains a rare query term missing from all kept passages.
    """

    max_passages: Annotated[int, Within(1)] = 2
    """Maximum number of passages per document."""

    def __call__(self, query: Query, hits: Hits, tools: Tools) -> Hits:
        counts: Counter[DocumentId] = Counter()
        kept: list[Hit] = []
        rest: list[Hit] = []
        for hit in hits:
            counts[hit.chunk.document] += 1
            (kept if counts[hit.chunk.document] <= self.max_passages else rest).append(hit)
        if rest and self.max_passages > 1 and len(kept) <= VISIBLE_HITS:
            kept = with_rare_term(kept, rest, QueryTerms(query))
        return tuple(kept)


def with_rare_term(kept: list[Hit], rest: list[Hit], terms: QueryTerms) -> list[Hit]:
    """Replace the last passage of a document by one with a rare query term that all kept ones lack."""
    missing = terms.missing(kept)
    if not missing:
        return kept
    every = (*kept, *rest)
    frequency = Counter(chain.from_iterable(map(terms.possible_in, every)))

    def rarest_term(hit: Hit) -> float:
        return min((frequency[term] for term in terms.possible_in(hit) & missing), default=inf)

    candidate = min(rest, key=rarest_term)
    rarity = rarest_term(candidate)
    if rarity > max(1, len(every) * RARE_SHARE):
        return kept
    *_, last = (hit for hit in kept if hit.chunk.document == candidate.chunk.document)
    others = [hit for hit in kept if hit is not last]
    only_in_last = terms.possible_in(last) & terms.missing(others)
    if any(frequency[term] <= rarity for term in only_in_last):
        return kept
    if not terms.occur(missing, candidate):
        return kept
    return list(best_first([*others, candidate]))
