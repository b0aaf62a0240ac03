"""Rank exact matches first: titles, aliases, file names, headings and keywords that equal the query, and literals of the query."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from math import nextafter
from typing import ClassVar, NamedTuple

from marklight.answer import Hit, Hits, best_first
from marklight.lazy import dataclass, lazy_pattern
from marklight.model import Chunk
from marklight.ports import FIELD_BOOSTS, ScoredChunk, Tools
from marklight.query import Mode, Query
from marklight.text.analyzer import code_terms, normalize, query_terms
from marklight.text.markdown import only_embeds

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
        return with_keyword_matches(query, _raised(hits, matches, "exact_title"), tools)


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


def _raised(hits: Hits, matches: Sequence[Match], by: str) -> Hits:
    """Return the hits with matches above all others, in the order of their levels and own scores."""
    if not matches:
        return hits
    ids = {match.hit.chunk.id for match in matches}
    others = [_compressed(hit, by) for hit in hits if hit.chunk.id not in ids]
    # The scores of the matches count as well: a match must not end lower than it was.
    best = max(hit.score for hit in (*others, *(_compressed(match.hit, by) for match in matches)))
    return best_first(
        (
            *others,
            *(
                replace(match.hit, exact_match=True).rescored(
                    best + (1.0 - best) * match.share,
                    by,
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


def _compressed(hit: Hit, by: str) -> Hit:
    if hit.score <= COMPRESSED_ABOVE:
        return hit
    score = COMPRESSED_ABOVE + (hit.score - COMPRESSED_ABOVE) / 2
    return hit.rescored(score, by, COMPRESSION, before=hit.score)


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
            hit = replace(hit, exact_match=True).rescored(score, "exact_title", formula, **inputs)
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


LITERAL_LEVEL = 2 / 6
"""Start of the range of passages with a literal of the query: below titles and headings, and above the default threshold."""
MAX_PASSAGES_WITH_LITERAL = 5
"""Passages with a literal up to which they come first: with more it says little about where the answer is. Hand-set; not measured."""
CANDIDATES = 4
"""Candidates per such passage: others have only parts of the literal. Hand-set; not measured."""
MAX_LITERALS = 3
"""Literals of a query that are looked up. Hand-set; not measured."""

_WORD = lazy_pattern(r"[^\s\"“”`'<>()\[\]{},;!?]+")
_LITERAL = lazy_pattern(
    r"(?=.*[^\W\d_]|\d+\.\d+\.)\S*(?:\w[./:\\@=+~$-]*[./:\\@_=][./:\\@_=$-]*\w|[a-z0-9][A-Z]|\d[A-Z]|[^\W\d_]-?\d)\S*"
)
"""A token that is no word of prose: with a dot, slash, colon, `@`, `=` or underscore inside, in camel case, or of letters and digits.

None are quantities and ordinals: `3.5`, `5kg`, `3rd`.
"""
_TOKEN = lazy_pattern(r"[A-Za-z_$][\w$]*")


@dataclass(frozen=True, slots=True)
class ExactName:
    """Rank passages first that have a literal of the query: an identifier, host name, path, version or error code.

    Only literals that occur as a whole count, and only if few passages have them. In code, names are found in any convention:
    `getUserById` finds `get_user_by_id`.
    """

    adds_passages: ClassVar[bool] = True
    """Adds passages that no retriever returned."""

    def __call__(self, query: Query, hits: Hits, tools: Tools) -> Hits:
        if query.mode is not Mode.HYBRID or query.hypothesis:
            return hits
        found = {
            chunk.id: chunk
            for literal in literals(query.text)
            for chunk in _passages_with(literal, query, tools)
        }
        if not found:
            return hits
        by_id = {hit.chunk.id: hit for hit in hits}
        matches = [
            Match(LITERAL_LEVEL, by_id.get(id) or Hit(chunk, 0.0)) for id, chunk in found.items()
        ]
        return _raised(
            hits, [match for match in matches if not match.hit.exact_match], "exact_name"
        )


def literals(text: str) -> list[str]:
    """Return the tokens of a query that are no words of prose."""
    tokens = (word.strip(".:/-") for word in _WORD.findall(text))
    return list(dict.fromkeys(token for token in tokens if _LITERAL.fullmatch(token)))[
        :MAX_LITERALS
    ]


def _passages_with(literal: str, query: Query, tools: Tools) -> list[Chunk]:
    """Return the passages that have a literal; none if there are many."""
    lexical, read = tools.snapshot.lexical, tools.snapshot.documents.chunks
    limit, terms = MAX_PASSAGES_WITH_LITERAL, query_terms(literal)
    best = lexical.search(terms, FIELD_BOOSTS, query.filters, CANDIDATES * limit)
    if sum(_has(chunk, literal) for chunk in read(_ids(best))) > limit:
        return []  # a common one such as `GitHub`: finding all of its passages takes 100 ms
    as_phrase = replace(query.filters, phrases=(*query.filters.phrases, literal))
    found = lexical.search(terms, FIELD_BOOSTS, as_phrase, limit + 1)
    in_code = lexical.search_code(code_terms(literal), query.filters, CANDIDATES * limit)
    matching = [chunk for chunk in read(_ids((*found, *in_code))) if _has(chunk, literal)]
    if max(len(found), len(matching)) > limit:
        return []
    return [chunk for chunk in matching if tools.exists(chunk.document)]


def _ids(candidates: Iterable[ScoredChunk]) -> list[str]:
    return list(dict.fromkeys(candidate.chunk_id for candidate in candidates))


def _has(chunk: Chunk, literal: str) -> bool:
    """Return true if a passage has a literal in its text, or in its code in any naming convention."""
    name = _without_convention(literal)
    return literal.lower() in chunk.text.lower() or name in map(
        _without_convention, _TOKEN.findall(chunk.code)
    )


def _without_convention(name: str) -> str:
    """Return a name without case and underscores, which naming conventions differ in."""
    return name.replace("_", "").lower()
