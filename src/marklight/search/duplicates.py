"""Merge duplicates and diversify: shingling with character trigrams, Jaccard similarity, cosine similarity, MMR.

Passages with the same text, and passages of documents with the same title that have similar texts or embeddings, are merged into
the best of them. Of each document, the best passages are shown, up to a limit.
"""

from __future__ import annotations

import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache, cached_property, lru_cache, partial
from itertools import chain, combinations
from math import inf, nextafter
from typing import TYPE_CHECKING, Annotated, NamedTuple

from marklight.answer import Hit, Hits, best_first, verdict
from marklight.lazy import dataclass
from marklight.model import Chunk, DocumentId
from marklight.ports import Embedder, Tools
from marklight.query import Query
from marklight.settings import ABOVE_ZERO, Within
from marklight.text.analyzer import fold, normalize, query_terms, surface_prefixes, title_key

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from marklight.model import Matrix

SIGNATURE_BITS = 2048
"""Bits of a signature. A passage of 1,000 characters has about 450 different trigrams, so most have a bit of
their own."""
MULTIPLIERS = (0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D)
"""Odd constants of xxHash, one for each character of a trigram: the sum of the products, 32 bits, is its hash."""
MAX_SIGNATURES = 4096
"""Signatures that are cached, with the texts some 5 MB: half of the passages of a search were found by one of
the hundred searches before it."""


ROUNDING_ERROR = 1e-6
"""A product of floats may be this much below the integer that it represents."""


DOCUMENTS_PER_RESULT = 2
"""Documents for each result whose hits are compared; if too few are left, those of twice as many, and so on."""

Pairs = Callable[[int, int], Iterable[tuple[int, int]]]
"""Returns the pairs of duplicates, a hit and one after it, in a range of hits; the first hits first."""


def merge_shown(query: Query, hits: Hits, tools: Tools, compare: Callable[[Hits], Pairs]) -> Hits:
    """Merge duplicates among the hits that can be shown, and return them before the others."""
    if tools.shown is None:
        return merge_duplicates(query, hits, compare)
    wanted = DOCUMENTS_PER_RESULT * tools.shown
    while True:
        end, documents = len(hits), set[DocumentId]()
        for index, hit in enumerate(hits):
            if len(documents) == wanted and hit.chunk.document not in documents:
                end = index
                break
            documents.add(hit.chunk.document)
        merged = merge_duplicates(query, hits[:end], compare)
        # Each document has a result at least.
        if end == len(hits) or len({hit.chunk.document for hit in merged}) > tools.shown:
            return merged + hits[end:]
        wanted *= 2


def merge_duplicates(query: Query, hits: Hits, compare: Callable[[Hits], Pairs]) -> Hits:
    """Merge each hit into the first better one that it duplicates and may be merged with.

    Passages of documents with the same title are compared, as those of copies and versions. Passages of one document are
    siblings, such as rows of a table or steps of a list: they are merged only if their texts are equal.
    One that was merged is nobody's better one.
    """
    titles, groups = dict[DocumentId, str](), defaultdict[str, list[Hit]](list)
    for hit in hits:
        chunk = hit.chunk
        title = titles.get(chunk.document)
        if title is None:
            title = titles[chunk.document] = title_key(chunk.title)
        groups[title].append(hit)
    partners = [group for group in groups.values() if _may_have_duplicates(group)]
    compared, terms = tuple(chain.from_iterable(partners)), QueryTerms(query)
    if not compared:
        return hits
    better_ids: dict[str, str] = {}
    duplicates, start = compare(compared), 0
    for group in partners:
        for one, other in duplicates(start, start + len(group)):
            better, worse = compared[one], compared[other]
            merged = better_ids.keys() & {better.chunk.id, worse.chunk.id}
            if not merged and not _siblings(better, worse) and terms.mergeable(worse, better):
                better_ids[worse.chunk.id] = better.chunk.id
        start += len(group)
    if not better_ids:
        return hits
    similar = defaultdict[str, list[Hit]](list)
    for hit in hits:
        if hit.chunk.id in better_ids:
            similar[better_ids[hit.chunk.id]].append(hit)
    kept = (hit for hit in hits if hit.chunk.id not in better_ids)
    return tuple(
        hit.merged_with(similar[hit.chunk.id]) if hit.chunk.id in similar else hit for hit in kept
    )


def _may_have_duplicates(group: Sequence[Hit]) -> bool:
    """Return true if some passages are of different documents, or have the same text."""
    first = group[0].chunk.document
    return any(hit.chunk.document != first for hit in group) or (
        len({hit.chunk.text_key for hit in group}) < len(group)
    )


def _siblings(one: Hit, other: Hit) -> bool:
    """Return true for passages of one document with different texts."""
    same_document = one.chunk.document == other.chunk.document
    return same_document and one.chunk.text_key != other.chunk.text_key


def trigram_hashes(text: str) -> NDArray[np.uint32]:
    """Return the sorted hashes of the different trigrams of a text, which is normalised first.

    Two trigrams of a text have the same hash in one of 20,000 texts.
    """
    import numpy as np

    # Padded with a character that no text contains: a short text must not equal one with a blank there.
    padded = normalize(text).ljust(3, "\0").encode("utf-32-le", "surrogatepass")
    codes = np.frombuffer(padded, np.uint32)
    first, second, third = map(np.uint32, MULTIPLIERS)
    hashes = codes[:-2] * first
    hashes += codes[1:-1] * second
    hashes += codes[2:] * third
    hashes.sort()
    is_new = np.ones(len(hashes), np.bool_)
    np.not_equal(hashes[1:], hashes[:-1], out=is_new[1:])
    different: NDArray[np.uint32] = hashes[is_new]
    return different


def trigram_set(text: str) -> set[int]:
    """Return the hashes of the different trigrams of a text; without numpy if it is not loaded, as in a first keyword search."""
    if "numpy" in sys.modules:
        return set(trigram_hashes(text).tolist())
    codes = [*map(ord, normalize(text).ljust(3, "\0"))]
    first, second, third = MULTIPLIERS
    return {
        one * first + two * second + three * third & 0xFFFFFFFF
        for one, two, three in zip(codes, codes[1:], codes[2:], strict=False)
    }


class Signature(NamedTuple):
    """The trigrams of a text as a bit set.

    Every trigram sets one bit. A bit that only one of two texts has set is a trigram that only this one
    has, so two texts differ in at most as many bits as trigrams.
    """

    bits: int
    size: int
    """Number of different trigrams."""


@lru_cache(maxsize=MAX_SIGNATURES)
def signature(text: str) -> Signature:
    """Return the signature of a text; the highest bits of a hash select its bit."""
    unused_bits = 33 - SIGNATURE_BITS.bit_length()
    if "numpy" not in sys.modules:
        hashes, digits = trigram_set(text), bytearray(b"0" * SIGNATURE_BITS)
        for number in hashes:
            digits[number >> unused_bits] = ord("1")
        return Signature(int(digits, 2), len(hashes))
    import numpy as np

    different = trigram_hashes(text)
    bits = np.zeros(SIGNATURE_BITS, np.bool_)
    bits[different >> unused_bits] = True
    return Signature(int.from_bytes(np.packbits(bits).tobytes()), len(different))


def near_texts(texts: Sequence[str], overlap: float) -> Pairs:
    """Compare texts by the Jaccard similarity of their trigrams: near duplicates have at least this one."""
    signatures, trigrams = (
        list(map(signature, texts)),
        cache(lambda index: trigram_set(texts[index])),
    )
    # Two sets with similarity j differ in 1 - j of their union, which is at most the size of either
    # one / j: the signatures alone rule out nearly all pairs.
    share = 1 / overlap - 1

    def near(start: int, end: int) -> Iterator[tuple[int, int]]:
        for one, other in combinations(range(start, end), 2):
            (bits, size), (other_bits, other_size) = signatures[one], signatures[other]
            limit = min(size, other_size) * share + ROUNDING_ERROR
            if (bits ^ other_bits).bit_count() <= limit:
                shared = len(trigrams(one) & trigrams(other))
                if shared / (size + other_size - shared) >= overlap:
                    yield one, other

    return near


class QueryTerms:
    """Match the terms of a query in few passages.

    Analyzing a passage takes many times as long as a substring search for the surface_prefixes of terms, so it
    is done only for a passage that seems to have a term which no other has.
    """

    def __init__(self, query: Query) -> None:
        self._text, self._languages = query.text, query.languages
        self._possible: dict[str, frozenset[str]] = {}

    def mergeable(self, worse: Hit, better: Hit) -> bool:
        """Return True if a duplicate may be merged: one with other query terms is kept."""
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
    def _prefixes(self) -> dict[str, tuple[str, ...]]:
        terms = dict.fromkeys(query_terms(self._text, languages=self._languages))
        return {term: surface_prefixes(term) for term in terms}


def _searched_text(chunk: Chunk) -> str:
    """Return text, headings and path: the date of a diary entry may occur in the path only."""
    return "\n".join((chunk.path, chunk.title, *chunk.headings, *chunk.merged, chunk.own_text))


@dataclass(frozen=True, slots=True)
class ExactDuplicates:
    """Merge passages whose texts differ in white space or boilerplate only; the best one is shown, the others are its `similar`.

    Documents with different titles, or with different query terms, are never merged.
    """

    def __call__(self, query: Query, hits: Hits, tools: Tools) -> Hits:
        if query.all or len({hit.chunk.text_key for hit in hits}) == len(hits):
            return hits
        return merge_shown(query, hits, tools, self._compare)

    def _compare(self, hits: Hits) -> Pairs:
        keys = [hit.chunk.text_key for hit in hits]
        return lambda start, end: (
            pair for pair in combinations(range(start, end), 2) if keys[pair[0]] == keys[pair[1]]
        )


@dataclass(frozen=True, slots=True)
class NearDuplicates:
    """Merge passages of documents with the same title whose trigram sets have a Jaccard similarity of 0.7 or more.

    The best one is shown, the others are its `similar`. Passages with different query terms are never merged.
    """

    overlap: Annotated[float, Within(ABOVE_ZERO, 1)] = 0.7
    """Minimum Jaccard similarity of two near duplicates; 1 keeps all that differ."""

    def __call__(self, query: Query, hits: Hits, tools: Tools) -> Hits:
        if query.all:
            return hits

        def compare(partners: Hits) -> Pairs:
            chunks = [hit.chunk for hit in tools.read(partners)]
            texts = [chunk.text if chunk.is_boilerplate else chunk.own_text for chunk in chunks]
            return near_texts(texts, self.overlap)

        return merge_shown(query, hits, tools, compare)


@dataclass(frozen=True, slots=True)
class SemanticDuplicates:
    """Merge passages of documents with the same title whose cosine similarity is 0.95 or more.

    The best one is shown, the others are its `similar`. Passages with different query terms are never merged. A lower threshold drops answers with the default model: two passages of one chapter easily reach 0.85. On 150 queries about the Kubernetes
    pages 0.85 cost .026 nDCG@10 (.719 against .745 without the stage) and 5 of 100 answers among the first ten;
    0.95 costs .001 and none.
    """

    cosine: Annotated[float, Within(ABOVE_ZERO, 1)] = 0.95
    """Minimum cosine similarity of two semantic duplicates; 1 keeps all."""

    def __call__(self, query: Query, hits: Hits, tools: Tools) -> Hits:
        if tools.embedder is None or self.cosine == 1 or query.all:
            return hits
        return merge_shown(query, hits, tools, partial(self._compare, tools, tools.embedder))

    def _compare(self, tools: Tools, embedder: Embedder, hits: Hits) -> Pairs:
        import numpy as np

        by_id = tools.snapshot.vectors.get(embedder.fingerprint, [hit.chunk.id for hit in hits])
        unknown = np.zeros(embedder.dimension, np.float32)
        # Not `np.stack`, which takes several times as long for few rows.
        rows = np.concatenate([by_id.get(hit.chunk.id, unknown) for hit in hits])
        vectors = rows.reshape(len(hits), -1)

        def near(start: int, end: int) -> Iterator[tuple[int, int]]:
            rows = vectors[start:end]
            pairs = np.argwhere(np.vecdot(rows[:, None], rows) >= self.cosine).tolist()
            return ((start + one, start + other) for one, other in pairs if one < other)

        return near


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
        hits = tools.read(hits)
        bits = [signature(hit.chunk.own_text).bits for hit in hits]
        for one, row in zip(bits, similarity, strict=True):
            row[:] = [(one & other).bit_count() / (one | other).bit_count() for other in bits]
    if embedded:
        vectors = np.stack([by_id[hits[index].chunk.id] for index in embedded])
        similarity[np.ix_(embedded, embedded)] = np.vecdot(vectors[:, None], vectors)
    return similarity


VISIBLE_HITS = 5
"""Hits that are seen with the default limit: with more, a replaced passage would often not be shown."""
RARE_SHARE = 0.1
"""Share of the hits that contain a rare term, at most: that a common one is missing says little. Hand-set; not measured."""


@dataclass(frozen=True, slots=True)
class PerDocument:
    """Keep the best passages of each document, up to a limit.

    If only a few documents match (for example, a diary kept in one file), a document's lowest-ranked kept passage
    gives way to one that contains a rare query term missing from all kept passages.
    """

    max_passages: Annotated[int, Within(1)] = 2
    """Maximum number of passages per document."""

    def __call__(self, query: Query, hits: Hits, tools: Tools) -> Hits:
        counts: dict[DocumentId, int] = {}
        kept: list[Hit] = []
        rest: list[Hit] = []
        for hit in hits:
            document = hit.chunk.document
            count = counts[document] = counts.get(document, 0) + 1
            (kept if count <= self.max_passages else rest).append(hit)
        further = defaultdict[DocumentId, list[str]](list)
        for hit in rest:
            if verdict(hit) != "weak":
                further[hit.chunk.document].append(hit.chunk.id)
        passages = tuple(
            hit.with_further(tuple(further[hit.chunk.document]))
            if hit.chunk.document in further
            else hit
            for hit in kept
        )
        if rest and self.max_passages > 1 and len(kept) <= VISIBLE_HITS:
            return with_rare_term(tools.read(passages), tuple(rest), QueryTerms(query), tools)
        return passages


def with_rare_term(kept: Hits, rest: Hits, terms: QueryTerms, tools: Tools) -> Hits:
    """Replace the last passage of a document by one with a rare query term that all kept ones lack."""
    missing = terms.missing(kept)
    if not missing:
        return kept
    rest = tools.read(rest)
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
    return best_first([*others, candidate])
