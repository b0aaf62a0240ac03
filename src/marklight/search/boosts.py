"""Boost hits: exact matches, recent documents, documents in the link community of the best hits, and documents of the current collection.

Scores are probabilities in every fusion, so that a boost has the same effect in each: it multiplies them by its factor.
`python -m benchmarks.boosts` compares this with other formulas. Exact matches come first: titles, aliases, file names, headings
and keywords that equal the query, and names in code.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from math import nextafter
from typing import Annotated, ClassVar, NamedTuple

from marklight.answer import Hit, Hits, best_first
from marklight.lazy import dataclass, lazy_pattern
from marklight.model import Chunk, DocumentId
from marklight.ports import Tools
from marklight.query import Mode, Query
from marklight.settings import Within
from marklight.text.analyzer import code_terms, normalize
from marklight.text.markdown import only_embeds

DAY_SECONDS = 86_400
FACTORS = ((7, 1.2), (30, 1.1))
"""Maximal age in days and factor, most recent first. Hand-set; the development sets have no dates to measure it."""


LEADING_HITS = 3
"""Best hits whose communities count. Hand-set; not measured."""
HELD = 0.9
"""Score up to which a factor holds exactly; above, scores are compressed linearly, so that none exceeds 1 and different ones stay
different. With documents declared recent at random, those that answer twice as often as others, nDCG@10 is that of the plain
product (anthropic-docs .884, cranfield .582); it is .882 and .580 if a boost multiplies odds, and .880 and .572 without one."""


def boost(hits: Hits, factors: Mapping[DocumentId, float], by: str) -> Hits:
    """Multiply the scores of documents by their factors, best first.

    Nothing changes where all factors are equal: scores are probabilities, and a folder that was copied
    yesterday makes no passage more likely.
    """
    if all(factor == 1.0 for factor in factors.values()):
        return hits
    by_hit = [factors.get(hit.chunk.document, 1.0) for hit in hits]
    if len(set(by_hit)) < 2:
        return hits
    return best_first(
        hit if factor == 1.0 else _boosted(hit, factor, by)
        for hit, factor in zip(hits, by_hit, strict=True)
    )


def _boosted(hit: Hit, factor: float, by: str) -> Hit:
    score = boosted_score(hit.score, factor)
    if score == hit.score:
        return hit
    if score == hit.score * factor:
        return hit.rescored(score, by, "before × factor", before=hit.score, factor=factor)
    formula = "1 - (1 - before) × (1 - held) / (1 - held / factor)"
    return hit.rescored(score, by, formula, before=hit.score, factor=factor, held=HELD)


def boosted_score(score: float, factor: float) -> float:
    """Return the score times a factor; a product above `HELD` is compressed to stay within 1."""
    if score * factor <= HELD or factor <= 1:
        return score * factor
    return 1 - (1 - score) * (1 - HELD) / (1 - HELD / factor)


@dataclass(frozen=True, slots=True)
class Recency:
    """Multiply the scores of documents dated within the last week by 1.2, within the last month by 1.1."""

    strength: Annotated[float, Within(0, 10)] = 1.0
    """Strength of the boost; 0.5 halves it, 0 turns it off."""

    def __call__(self, query: Query, hits: Hits, tools: Tools) -> Hits:
        if not self.strength:
            return hits
        dates = tools.snapshot.documents.dates({hit.chunk.document for hit in hits})
        factors = {id: self._factor(tools.now - date) for id, date in dates.items()}
        return boost(hits, factors, by="recency")

    def _factor(self, age_seconds: float) -> float:
        """Return the factor for an age; a date in the future counts as new."""
        for days, factor in FACTORS:
            if age_seconds <= days * DAY_SECONDS:
                return 1.0 + self.strength * (factor - 1.0)
        return 1.0


@dataclass(frozen=True, slots=True)
class Community:
    """Boost documents in the same community (group of documents that link to each other) as the best results, by 1.1.

    A community with a single document among the hits is not boosted.
    """

    boost: Annotated[float, Within(1, 10)] = 1.1
    """Factor; 1 turns it off."""

    def __call__(self, query: Query, hits: Hits, tools: Tools) -> Hits:
        if self.boost == 1:
            return hits
        communities = tools.snapshot.links.communities({hit.chunk.document for hit in hits})
        sizes = Counter(communities.values())
        leading = {hit.chunk.document for hit in hits[:LEADING_HITS]}
        boosted = {
            community
            for id, community in communities.items()
            if id in leading and sizes[community] > 1
        }
        factors = {id: self.boost for id, community in communities.items() if community in boosted}
        return boost(hits, factors, by="community")


@dataclass(frozen=True, slots=True)
class CurrentCollection:
    """Multiply the scores of documents in the current collection by 1.2."""

    boost: Annotated[float, Within(0, 10)] = 1.2
    """Factor; 1 turns it off."""

    def __call__(self, query: Query, hits: Hits, tools: Tools) -> Hits:
        if not query.current_collection:
            return hits
        current = {
            hit.chunk.document for hit in hits if hit.chunk.collection == query.current_collection
        }
        return boost(hits, dict.fromkeys(current, self.boost), by="current_collection")


STAGE = "exact_title"
MAX_MATCHES = 3
"""Title matches that are ranked first. Hand-set; not measured."""
MAX_TITLES_READ = 200
"""Titles and headings that are read: a heading such as `Examples` may occur in every document."""
COMPRESSED_ABOVE = 0.9
"""Scores above it are compressed into half the range where there is an exact title, to make room above them.
Hand-set; not measured."""
COMPRESSION = f"{COMPRESSED_ABOVE} + (before - {COMPRESSED_ABOVE}) / 2"
MAX_COMPLETED = 20
"""Titles that begin with the query as typed; the shortest are read."""
PREFIX_LEVEL, TYPED_SHARE = 2 / 6, 1 / 6 - 1 / 7
"""Start of the range of titles that begin with the query as typed, and what the share of the title that is typed adds:
together with a hit's own share less than the sixth that the range is wide."""
HEADING_LEVEL, ALIAS_LEVEL, TITLE_LEVEL = 3 / 6, 4 / 6, 5 / 6
"""Start of the range of each kind of title, as a share of the room between the best score and 1: in sixths,
so that titles come before other names, and those before headings."""
OWN_SHARE = 1 / 7
"""Share of a hit's own score that is added within its range: less than the sixth that the range is wide."""
RAISED = "best + (1 - best) × (level + before / 7)"

MIN_KEYWORD_SCORE = 2 / 6
"""Lowest score of a document with the query among its keywords, above the default threshold. Without it, of
FastAPI's pages with two words of other pages for a keyword, 2 of 155 were found by these: most such queries
seem to have no answer, as the keyword does not occur in the text."""
KEYWORD = "max(before, 1 / 3 + before / 7)"
HITS_BEFORE_KEYWORDS, MAX_KEYWORD_HITS = 3, 2
"""Hits that stay before documents with the keyword, and how many of those are raised: together the first five."""
MAX_KEYWORD_DOCUMENTS = 200
"""Documents that are listed: a word such as `howto` may be a keyword of all."""


@dataclass(frozen=True, slots=True)
class ExactTitle:
    """Rank passages whose title equals the query first, and add them if they were not found.

    Order: document title, then alias or file name, then section heading. Documents that have the query as a
    frontmatter keyword are moved into the top five.
    """

    adds_passages: ClassVar[bool] = True
    """Adds the first passage of a document or section without hits."""

    def __call__(self, query: Query, hits: Hits, tools: Tools) -> Hits:
        if query.mode is Mode.CODE:
            return hits
        matches = title_matches(query, hits, tools)[:MAX_MATCHES]
        if query.typed_text and len(matches) < MAX_MATCHES:
            matches = _with_completed_titles(matches, query, hits, tools)[:MAX_MATCHES]
        return with_keyword_matches(query, _raised(hits, matches), tools)


class Match(NamedTuple):
    """A document or section whose title equals the query, by its best hit or else its first passage."""

    level: float
    hit: Hit

    @property
    def own(self) -> float:
        """Return the hit's score, clipped to 0 to 1."""
        return min(1.0, max(0.0, self.hit.score))

    @property
    def share(self) -> float:
        """Return the share of the room between the best score and 1."""
        return self.level + OWN_SHARE * self.own


def _raised(hits: Hits, matches: Sequence[Match]) -> Hits:
    if not matches:
        return hits
    ids = {match.hit.chunk.id for match in matches}
    others = [_compressed(hit) for hit in hits if hit.chunk.id not in ids]
    # The scores of the matches count as well: a match must not end lower than it was.
    best = max(hit.score for hit in (*others, *(_compressed(match.hit) for match in matches)))
    return best_first(
        (
            *others,
            *(
                replace(match.hit, exact_match=True).rescored(
                    best + (1.0 - best) * match.share,
                    STAGE,
                    RAISED,
                    best=best,
                    level=match.level,
                    before=match.own,
                )
                for match in matches
            ),
        )
    )


def title_matches(query: Query, hits: Hits, tools: Tools) -> list[Match]:
    """Return documents, and sections of other documents, whose title equals the query; titles and best hits first."""
    titles = query.title_candidates
    wanted = {normalize(title) for title in titles}
    named = [
        one
        for title in titles
        for one in tools.snapshot.documents.find_by_title(title, query.filters, MAX_TITLES_READ)
    ]
    whole = {one.chunk_id for one in named if one.score == 1.0}
    chunks = tools.snapshot.documents.chunks(list(dict.fromkeys(one.chunk_id for one in named)))
    documents = {chunk.document for chunk in chunks if chunk.id in whole}
    matches: dict[str, Match] = {}
    for chunk in chunks:
        if chunk.id in whole:
            hit, level = _best_hit(hits, chunk, ()), ALIAS_LEVEL
            if normalize(chunk.title) in wanted:
                level = TITLE_LEVEL
        elif chunk.document not in documents:
            hit, level = _best_hit(hits, chunk, _section(chunk, wanted)), HEADING_LEVEL
            if hit.chunk.text.lstrip().startswith("![[") and only_embeds(hit.chunk.text):
                continue  # the embedded document has the text
        else:
            continue
        if tools.exists(chunk.document):
            matches.setdefault(hit.chunk.id, Match(level, hit))
    return sorted(matches.values(), key=lambda match: (-match.share, match.hit.chunk.id))


def _with_completed_titles(
    matches: list[Match], query: Query, hits: Hits, tools: Tools
) -> list[Match]:
    """Add the documents with a title, alias or file name that begins with the query as typed; best hits, then short titles first."""
    documents = {match.hit.chunk.document for match in matches}
    found: list[Match] = []
    for title in tools.snapshot.documents.titles_with_prefix(query.typed_text, MAX_COMPLETED):
        named = tools.snapshot.documents.find_by_title(title, query.filters, MAX_TITLES_READ)
        ids = [one.chunk_id for one in named if one.score == 1.0]
        for chunk in tools.snapshot.documents.chunks(ids):
            if chunk.document not in documents and tools.exists(chunk.document):
                documents.add(chunk.document)
                share = len(query.typed_text) / max(1, len(title))
                level = PREFIX_LEVEL + TYPED_SHARE * min(1.0, share)
                found.append(Match(level, _best_hit(hits, chunk, ())))
    return [*matches, *sorted(found, key=lambda match: (-match.share, match.hit.chunk.id))]


def _best_hit(hits: Hits, first: Chunk, section: tuple[str, ...]) -> Hit:
    """Return the best hit of the document below these headings, or its first passage."""
    for hit in hits:
        if hit.chunk.document != first.document:
            continue
        if not section or hit.chunk.id == first.id:
            return hit
        if hit.chunk.headings[: len(section)] == section:
            return hit
    return Hit(first, 0.0)


def _section(chunk: Chunk, wanted: set[str]) -> tuple[str, ...]:
    """Return the headings down to the wanted one; all and one more if it was merged into another."""
    for depth, heading in enumerate(chunk.headings, 1):
        if normalize(heading) in wanted:
            return chunk.headings[:depth]
    return (*chunk.headings, "")


def _compressed(hit: Hit) -> Hit:
    if hit.score <= COMPRESSED_ABOVE:
        return hit
    score = COMPRESSED_ABOVE + (hit.score - COMPRESSED_ABOVE) / 2
    return hit.rescored(score, STAGE, COMPRESSION, before=hit.score)


def with_keyword_matches(query: Query, hits: Hits, tools: Tools) -> Hits:
    """Raise the best documents with the query among their keywords to rank 4 or higher."""
    raised: dict[str, Hit] = {}
    for hit in islice(_keyword_matches(query, hits, tools), MAX_KEYWORD_HITS):
        score = max(hit.score, MIN_KEYWORD_SCORE + OWN_SHARE * max(0.0, hit.score))
        formula, inputs = KEYWORD, {"before": max(0.0, hit.score)}
        fourth = hits[HITS_BEFORE_KEYWORDS].score if len(hits) > HITS_BEFORE_KEYWORDS else 0.0
        if score < fourth:
            score = nextafter(fourth, 1.0)
            formula, inputs = "next_above(fourth)", {"fourth": fourth}
        if score != hit.score:
            hit = replace(hit, exact_match=True).rescored(score, STAGE, formula, **inputs)
        raised[hit.chunk.id] = hit
    if not raised:
        return hits
    return best_first((*raised.values(), *(hit for hit in hits if hit.chunk.id not in raised)))


def _keyword_matches(query: Query, hits: Hits, tools: Tools) -> Iterator[Hit]:
    """Yield each document with the keyword by its best hit, best first; then the others by their first passage."""
    if not tools.snapshot.metadata.has_key("keywords"):
        return
    filters = query.filters
    conditions = [(*filters.where, ("keywords", title)) for title in query.title_candidates]
    listed = (
        tools.snapshot.metadata.matching_documents(
            replace(filters, where=where), MAX_KEYWORD_DOCUMENTS
        )
        for where in conditions
    )
    documents = {id: None for ids in listed for id in ids if tools.exists(id)}
    for hit in hits:
        if hit.chunk.document in documents:
            del documents[hit.chunk.document]
            yield hit
    # With filters on passages, the first passage of a document need not pass.
    for id in documents if not filters.restrict_passages else ():
        yield from (Hit(first, 0.0) for first in tools.snapshot.documents.chunks_around(id, 0, 0))


MIN_NAME_SCORE = 1 / 3
"""Lowest score of a passage with the name: above the default threshold, below any confident result. The same as that
of a document with the query among its keywords."""
RAISED_BY_NAME = "max(before, 1 / 3 + before / 7)"
MAX_NAMED_PASSAGES = 5
"""Passages with a name up to which they are kept, as more are no answer. Hand-set; not measured."""
MAX_NAMES = 3
"""Names of a query that are looked up. Hand-set; not measured."""

_NAME = lazy_pattern(r"(?<![\w$])[A-Za-z_$]\w*(?:[a-z0-9][A-Z]|[A-Za-z0-9]_[A-Za-z0-9])\w*")
"""A name of several words, in camel case or with underscores, as no word of prose is written."""
_TOKEN = lazy_pattern(r"[A-Za-z_$][\w$]*")


@dataclass(frozen=True, slots=True)
class ExactName:
    """Keep passages whose code has a name of the query, in any convention: `getUserById` finds `get_user_by_id`.

    Only names that occur as a whole count, and only if few passages have them; these get at least a score of 1/3. Of 240
    queries with such names, the right document is first for 212 instead of 159, and 4 instead of 49 get no answer.
    """

    adds_passages: ClassVar[bool] = True
    """Adds passages that only the code index has found."""

    def __call__(self, query: Query, hits: Hits, tools: Tools) -> Hits:
        names = _NAME.findall(query.text)[:MAX_NAMES] if query.mode is Mode.HYBRID else []
        if not names:
            return hits
        by_id = {hit.chunk.id: hit for hit in hits}
        for name in names:
            for hit in _name_matches(name, query, tools):
                own = by_id.get(hit.chunk.id, hit)
                before = max(0.0, own.score)
                score = max(before, MIN_NAME_SCORE + OWN_SHARE * before)
                if score != own.score:
                    by_id[hit.chunk.id] = own.rescored(
                        score, "exact_name", RAISED_BY_NAME, before=before
                    )
        return best_first(by_id.values())


def _name_matches(name: str, query: Query, tools: Tools) -> list[Hit]:
    """Return the best passages whose code has the name as a whole, not yet scored."""
    limit = 4 * MAX_NAMED_PASSAGES  # others have only parts of the name
    candidates = tools.snapshot.lexical.search_code(code_terms(name), query.filters, limit)
    chunks = tools.snapshot.documents.chunks([candidate.chunk_id for candidate in candidates])
    wanted = _folded(name)
    matching = [chunk for chunk in chunks if wanted in map(_folded, _TOKEN.findall(chunk.code))]
    if len(matching) > MAX_NAMED_PASSAGES:
        return []  # a name such as `FastAPI`, which says little about where the answer is
    return [Hit(chunk, 0.0) for chunk in matching if tools.exists(chunk.document)]


def _folded(name: str) -> str:
    """Return a name without case and underscores, which naming conventions differ in."""
    return name.replace("_", "").lower()
