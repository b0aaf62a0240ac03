"""List documents: all that contain every word of a query, and those that search finds without them.

A document matches if each word of the query occurs in some of its passages, as keyword search finds it: stemmed, in the
text, title, headings or frontmatter; only passages that match the filters count. Other documents match if search
gives one of their passages a score of at least the confidence threshold.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import replace

from marklight.answer import Hit, Hits
from marklight.model import DocumentId
from marklight.ports import BOILERPLATE, DocumentMatch, Tools
from marklight.query import Filters, Mode, Query
from marklight.results import ListedDocument, ListedTask, Listing, MatchingLine, Sort
from marklight.search.features import filters_cover_query
from marklight.search.operators import no_match_reason
from marklight.search.pipeline import Pipeline
from marklight.search.probability import Confidence
from marklight.text.analyzer import (
    MAX_QUERY_TERMS,
    analyze,
    code_terms,
    identifier_parts,
    lines_with_phrase,
    query_analyses,
    query_terms,
)

RANKED = 100
"""Results of the search that gives documents their scores; documents beyond follow by number of passages."""

FEW_LINES = 3
"""Lines of a document that are shown if none has every word. Hand-set; not measured."""

_WORD = re.compile(r"\w+")

Matches = Mapping[DocumentId, DocumentMatch]


def list_matching(
    pipeline: Pipeline,
    query: Query,
    tools: Tools,
    sort: Sort | None,
    page: int,
    limit: int | None,
    lines: bool = False,
) -> Listing:
    """Return one page of the documents that match a query; without words, of those that match its filters."""
    hits: Hits = ()
    confident: Hits = ()
    threshold = 0.0
    if query.text.strip():
        query, hits, confident, threshold = _ranked(pipeline, query, tools)
    matches = {**_with_words(query, tools)}
    by_meaning: dict[DocumentId, list[Hit]] = {}
    for hit in confident:
        if hit.chunk.document not in matches and hit.score >= threshold:
            by_meaning.setdefault(hit.chunk.document, []).append(hit)
    for id, own in by_meaning.items():
        matches[id] = DocumentMatch(len(own), own[0].chunk.id)
    matches = {id: match for id, match in matches.items() if tools.exists(id)}
    best: dict[DocumentId, Hit] = {}
    for hit in hits:  # best first
        best.setdefault(hit.chunk.document, hit)
    has_words = bool(query.text.strip())  # a query may have filters only
    sort = sort or (Sort.RELEVANCE if has_words else Sort.PATH)
    dates = tools.snapshot.documents.dates(matches) if sort is Sort.DATE else {}

    def order(id: DocumentId) -> tuple[float, int, DocumentId]:
        if sort is Sort.DATE:
            return -dates[id], 0, id
        if sort is Sort.PATH or not has_words:
            return 0.0, 0, id
        return -best[id].score if id in best else 1.0, -matches[id].passages, id

    ids = sorted(matches, key=order)
    shown = ids[(page - 1) * limit : page * limit] if limit else ids if page == 1 else []
    documents = _listed(shown, matches, best if has_words else {}, by_meaning, query.filters, tools)
    if lines:
        documents = tuple(_with_lines(each, query, tools) for each in documents)
    return Listing(
        query=query,
        documents=documents,
        total=len(ids),
        passages=sum(match.passages for match in matches.values()),
        sort=sort,
        page=page,
        limit=limit,
        abstained=None if ids else no_match_reason(query, tools.snapshot, "document"),
    )


def term_groups(
    text: str, mode: Mode = Mode.HYBRID, languages: Sequence[str] = ("en",)
) -> list[tuple[str, ...]]:
    """Return the terms that a document must have, a group of alternatives for each word: its stem in each language.

    Of a compound identifier the parts are required: the document may write it another way.
    """
    words = _WORD.findall(text)
    if mode is Mode.CODE:
        groups = [[term] for term in dict.fromkeys(code_terms(text))]
        compound = {own[0] for word in words if len(own := code_terms(word)) > 1}
    else:
        first, *others = query_analyses(text, languages)
        same = [analysis for analysis in others if len(analysis) == len(first)]
        groups = [list(dict.fromkeys(terms)) for terms in zip(first, *same, strict=True)]
        groups += [[part] for part in identifier_parts(text)]
        groups = groups or [[term] for term in query_terms(text, languages=languages)]
        compound = {term for word in words if identifier_parts(word) for term in analyze(word)}
    required = [tuple(group) for group in groups if group[0] not in compound]
    return list(dict.fromkeys(required))[:MAX_QUERY_TERMS]


def _ranked(pipeline: Pipeline, query: Query, tools: Tools) -> tuple[Query, Hits, Hits, float]:
    """Return the query as rewritten, all ranked hits, those that search would show, and the threshold of a score."""
    names = list(pipeline.refine)
    at = names.index("confidence") if "confidence" in names else len(names)
    ranking = replace(pipeline, refine={name: pipeline.refine[name] for name in names[:at]})
    answer = ranking(replace(query, limit=RANKED), tools)
    confidence = pipeline.refine.get("confidence")
    threshold = query.min_confidence
    if not isinstance(confidence, Confidence):
        return answer.query, answer.hits, answer.hits, threshold or 0.0
    confident = confidence(answer.query, answer.hits, tools) if answer.hits else ()
    return (
        answer.query,
        answer.hits,
        confident,
        confidence.threshold if threshold is None else threshold,
    )


def _with_words(query: Query, tools: Tools) -> Matches:
    """Return the documents that contain all words of the query, as typed or as corrected."""
    if not query_terms(query.text, languages=query.languages) or filters_cover_query(query):
        return tools.snapshot.metadata.documents_with_terms([], "whole", query.filters)
    if query.mode is Mode.SEMANTIC:
        return {}
    if query.mode is Mode.CODE:
        return _in_field("code", query, tools)
    matches = _in_field("whole", query, tools)
    if not matches and (matches := _in_field(BOILERPLATE, query, tools)):
        tools.notify("These words occur only in text that many documents share")
    return matches


def _in_field(field: str, query: Query, tools: Tools) -> Matches:
    """Return the documents that contain all words in a field, in any of the spellings."""
    matches: dict[DocumentId, DocumentMatch] = {}
    for text in query.spellings:
        if groups := term_groups(text, query.mode, query.languages):
            listed = tools.snapshot.metadata.documents_with_terms(groups, field, query.filters)
            matches.update(
                (id, match)
                for id, match in listed.items()
                if id not in matches or match.passages > matches[id].passages
            )
    return matches


def _listed(
    ids: list[DocumentId],
    matches: Matches,
    best: Mapping[DocumentId, Hit],
    by_meaning: Mapping[DocumentId, list[Hit]],
    filters: Filters,
    tools: Tools,
) -> tuple[ListedDocument, ...]:
    """Read titles, places and dates of the documents on one page."""
    passages = {id: best[id].chunk.id if id in best else matches[id].best for id in ids}
    chunks = {
        chunk.document: chunk for chunk in tools.snapshot.documents.chunks(list(passages.values()))
    }
    dates = tools.snapshot.documents.dates(ids)
    return tuple(
        ListedDocument(
            document=id,
            title=chunks[id].title,
            passages=matches[id].passages,
            chunk_id=chunks[id].id,
            lines=chunks[id].lines,
            dated=dates[id],
            score=best[id].score if id in best else None,
            tasks=_tasks(id, filters, tools),
            by_meaning=id in by_meaning,
        )
        for id in ids
    )


def _with_lines(listed: ListedDocument, query: Query, tools: Tools) -> ListedDocument:
    """Return a document with its lines that match, each with the heading above it."""
    stored = tools.snapshot.documents.text_and_outline(listed.document)
    if stored is None:  # pragma: no cover - it was listed from the same snapshot
        return listed
    text, outline = stored
    lines = text.split("\n")
    numbers, more = matching_lines(lines, query)
    starts = [heading.lines[0] for heading in outline]

    def section(line: int) -> str:
        place = bisect_right(starts, line)
        return outline[place - 1].text if place else ""

    return replace(
        listed,
        matching_lines=tuple(
            MatchingLine(line, lines[line - 1].strip(), section(line)) for line in numbers
        ),
        more_lines=more,
    )


def matching_lines(lines: Sequence[str], query: Query) -> tuple[list[int], int]:
    """Return the numbers of the lines that match a query, and how many more have as many of its words.

    If phrases are required, these are the lines in which one begins; else all lines with every word. Where no line has
    every word, it is the first few of those with the most.
    """
    if phrases := [phrase for part in query.filters.parts() for phrase in part.phrases]:
        found = {index + 1 for phrase in phrases for index in lines_with_phrase(phrase, lines)}
        return sorted(found), 0
    groups = [term_groups(text, query.mode, query.languages) for text in query.spellings]
    shares = [_share(line, groups, query) for line in lines]
    most = max(shares, default=0.0)
    numbers = [number for number, share in enumerate(shares, 1) if most and share == most]
    kept = numbers if most == 1 else numbers[:FEW_LINES]
    return kept, len(numbers) - len(kept)


def _share(line: str, spellings: Sequence[Sequence[tuple[str, ...]]], query: Query) -> float:
    """Return the share of the words of a query that a line has, in the spelling with the most of them."""
    if query.mode is Mode.CODE:
        terms = set(code_terms(line))
    else:
        terms = {term for language in query.languages for term in analyze(line, language)}
        terms.update(identifier_parts(line))
    return max(
        (
            sum(not terms.isdisjoint(group) for group in groups) / len(groups)
            for groups in spellings
            if groups
        ),
        default=0.0,
    )


def _tasks(id: DocumentId, filters: Filters, tools: Tools) -> tuple[ListedTask, ...]:
    """Return the tasks of a document in the states that the filters require; empty without such a filter."""
    states = {
        value.lower()
        for part in filters.parts()
        for key, value in part.where
        if key.lower() == "task"
    }
    stored = tools.snapshot.documents.text_and_outline(id) if states else None
    if stored is None:
        return ()
    from marklight.text.markdown import find_tasks

    return tuple(
        ListedTask(task.line, task.text, task.done)
        for task in find_tasks(stored[0])
        if task.state in states
    )
