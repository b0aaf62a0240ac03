"""Detect duplicates: shingling with character trigrams, Jaccard similarity, which passages may be merged, and merging them."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from marklight.answer import Hit, Hits
from marklight.model import Chunk
from marklight.query import Query
from marklight.text import fold, query_terms, surface_prefixes, title_key

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

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
            own = np.sort(self.trigrams[index])
            first = np.ones(len(own), np.bool_)
            np.not_equal(own[1:], own[:-1], out=first[1:])
            self._unique[index] = own[first]
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
    for own, span in zip(bits, spans, strict=True):
        own[positions[span]] = True
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
