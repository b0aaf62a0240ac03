"""Compose an answer within a token budget: whole units, the leading document first, and what was left out.

The budget is that of the text for assistants, with the lines above passages, so every surface shows the same passages.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from marklight.answer import Hit, Hits
from marklight.errors import Message
from marklight.formatting import counted, headed_place, place_text, quoted, similar_line
from marklight.lazy import dataclass
from marklight.model import Chunk, Unit
from marklight.query import Query
from marklight.search.context import OpenDocuments, with_rests
from marklight.text.lines import Lines
from marklight.text.tokens import count_tokens, truncate_to_tokens
from marklight.text.units import TABLE, has_marks

if TYPE_CHECKING:
    from marklight.levels import OutlinedPage

LEADING_SHARE = 0.5
"""Share of the budget that the leading document may take before others. With .3 to .7, 117 or 118 of 140 questions about four
vaults and 34 to 37 of 60 queries for 20 tasks are answered in 2,000 tokens: the middle of a range without a clear best value."""
FAR_BELOW = 0.1
"""Share of the best score below which a result gives way to the sections around better ones. With .02 to .2, the number
of these 200 that are answered varies by 2, and tokens fall from 1,600 to 1,330; with .3, six fewer are."""
NOTES_TOKENS = 100
"""Room for notes below the passages, such as places that are left out; at most a quarter of the budget."""
REST_TOKENS = 35
"""Room for a line that says where a passage goes on."""
MAX_PLACES_NAMED = 3
"""Places that a notice about omitted results names."""
SCORE_TOKENS = 12
"""Room for number, score and blank line around a result."""


_LAST = (sys.maxsize, sys.maxsize)


class Composition(NamedTuple):
    """The results that are shown, and those that are left out."""

    shown: Hits
    omitted: Hits = ()
    """Results for which there is no room."""
    far_below: int = 0
    """Number of results whose score is far below the best."""


@dataclass(slots=True)
class _Extract:
    """Contiguous lines of a document: its best passage in them, and their text."""

    best: Hit
    lines: Lines
    text: str
    tokens: int
    """Tokens of the text, as quoted, and of the lines above it."""

    def covers(self, hit: Hit) -> bool:
        """Return true if the text of a passage of the document is shown."""
        first, last = hit.chunk.lines
        within = self.lines[0] <= first and last <= self.lines[1]
        # Of a very long line, a passage may be a part.
        return within and (first != last or hit.chunk.text.strip() in self.text)

    def hit(self, page: OutlinedPage | None) -> Hit:
        """Return the passage with the lines around it, below the headings that contain all of them."""
        chunk = self.best.chunk
        if page is None or self.text == chunk.text:
            return self.best
        headings = chunk.headings[: page.depth(self.lines)]
        grown = replace(chunk, headings=headings, lines=self.lines, text=self.text, boilerplate=())
        return self.best.with_chunk(grown)


def compose(
    passages: Hits, query: Query, several_collections: bool, documents: OpenDocuments | None = None
) -> Composition:
    """Choose what a token budget is used for; without one, all passages are shown.

    The best passage comes first, with its list, table or procedure, its section and the sections around it, then other matching
    passages of its document, as long as they fit into the document's share of the budget. All other results follow in their
    order, each with its unit; what is left completes the sections of all of them. Passages of a document that touch become
    one result. With a limit by the caller, that many passages are shown, and their units as far as there is room.
    """
    if query.max_tokens is None or not passages:
        return Composition(passages if documents is None else with_rests(passages, documents))
    answer = _Composer(query.max_tokens, several_collections, documents)
    least = FAR_BELOW * max(hit.score for hit in passages) if query.fills_budget else 0.0
    near = tuple(hit for hit in passages if hit.score >= least)
    if not answer.show(near[0], with_unit=query.fills_budget):
        return Composition(answer.cut(near[0]), near[1:], len(passages) - len(near))
    if query.fills_budget:
        answer.lead(near)
    for hit in near:
        answer.show(hit, with_unit=query.fills_budget)
    if query.fills_budget:
        for hit in near:
            answer.complete_sections(hit)
    else:
        answer.complete_units()
    omitted = tuple(hit for hit in near if not answer.is_shown(hit))
    return Composition(
        answer.results(leading_first=query.fills_budget), omitted, len(passages) - len(near)
    )


class _Composer:
    """Adds passages to an answer while there is room."""

    def __init__(self, budget: int, several: bool, documents: OpenDocuments | None) -> None:
        self.extracts: list[_Extract] = []
        self._heads: dict[str, int] = {}
        self._counted: dict[OutlinedPage, dict[int, int]] = {}
        self._budget, self._several, self._documents = budget, several, documents
        self._left = budget - min(NOTES_TOKENS, budget // 4)

    def lead(self, passages: Hits) -> None:
        """Complete the section of the best passage, and show other matching passages of its document."""
        best = passages[0]
        reserve = self._budget * (1 - LEADING_SHARE)
        self.complete_sections(best, reserve)
        others = [hit for hit in passages[1:] if hit.chunk.document == best.chunk.document]
        for hit in (*others, *self._further(best)):
            self.show(hit, reserve)
        self._go_on(best, reserve)

    def show(self, hit: Hit, reserve: float = 0, *, with_unit: bool = True) -> bool:
        """Show a passage, with its unit if there is room; some of the budget is reserved."""
        if self.is_shown(hit):
            return True
        if not with_unit:
            return self._add(hit, hit.chunk.lines, (), reserve)
        unit = self._unit(hit.chunk)
        return self._extend(hit, unit, reserve) or (
            unit != hit.chunk.lines and self._extend(hit, hit.chunk.lines, reserve)
        )

    def complete_sections(self, hit: Hit, reserve: float = 0) -> None:
        """Extend a shown passage to the sections around it while there is room."""
        page = self._page(hit.chunk)
        if page and self.is_shown(hit):
            for section in page.around(hit.chunk.lines):
                if not self._extend(hit, section, reserve):
                    break

    def _go_on(self, hit: Hit, reserve: float) -> None:
        """Extend a shown passage to paragraphs and units after it, in the smallest section that is not shown whole."""
        page = self._page(hit.chunk)
        shown = next((one for one in self._of_document(hit) if one.covers(hit)), None)
        if page is None or shown is None:
            return
        section = next(page.around(shown.lines), shown.lines)
        for end in page.onwards(shown.lines[1], section[1]):
            if not self._extend(hit, (shown.lines[0], end), reserve):
                break

    def complete_units(self) -> None:
        """Extend the passages to their units while there is room."""
        for extract in list(self.extracts):
            unit = self._unit(extract.best.chunk)
            if unit != extract.lines:
                self._extend(extract.best, unit, 0)

    def is_shown(self, hit: Hit) -> bool:
        """Return true if a passage is part of the answer."""
        return any(extract.covers(hit) for extract in self._of_document(hit))

    def cut(self, hit: Hit) -> Hits:
        """Return a passage cut at a sentence, where there is no room for a whole one."""
        room = max(self._left - self._above(hit) - REST_TOKENS, self._budget // 4)
        text = truncate_to_tokens(hit.chunk.text, room, quoted)
        first, last = hit.chunk.lines
        end = min(last, first + text.count("\n"))
        chunk = replace(hit.chunk, text=text, lines=(first, end), boilerplate=())
        at_line_end = hit.chunk.text.startswith(f"{text.removesuffix(' …')}\n")
        rest = None
        if self._documents is not None:
            rest = Unit("text", (min(last, end + at_line_end), last))
        return (replace(hit, chunk=chunk, continues=rest),)

    def results(self, *, leading_first: bool) -> Hits:
        """Return the results; after the best one, those of its document in its own order, then the others."""
        first, *rest = self.extracts
        if leading_first:
            leading = first.best.chunk.document
            rest.sort(key=lambda one: one.lines if one.best.chunk.document == leading else _LAST)
        hits = tuple(one.hit(self._page(one.best.chunk)) for one in (first, *rest))
        if self._documents is None:
            return hits
        return with_rests(tuple(map(self._without_shown, hits)), self._documents)

    def _without_shown(self, hit: Hit) -> Hit:
        """Return a result without those further passages of its document that are part of the answer."""
        left = tuple(other.chunk.id for other in self._further(hit) if not self.is_shown(other))
        return hit.with_further(left) if len(left) != len(hit.further) else hit

    def _further(self, hit: Hit) -> list[Hit]:
        """Return the passages of the document of a result that match too."""
        if not hit.further or self._documents is None:
            return []
        chunks = self._documents.snapshot.documents.chunks(hit.further)
        return [Hit(chunk, hit.score, None) for chunk in chunks]

    def _page(self, chunk: Chunk) -> OutlinedPage | None:
        return None if self._documents is None else self._documents[chunk.document]

    def _unit(self, chunk: Chunk) -> Lines:
        """Return the lines of a passage and of the units that it begins and ends in."""
        first, last = chunk.lines
        page = self._page(chunk) if has_marks(chunk.text) else None
        if page:
            begun, ended = page.unit(first), page.unit(last)
            first = min(first, begun.lines[0]) if begun else first
            last = max(last, ended.lines[1]) if ended else last
        return first, last

    def _of_document(self, hit: Hit) -> list[_Extract]:
        document = hit.chunk.document
        return [extract for extract in self.extracts if extract.best.chunk.document == document]

    def _tokens(self, page: OutlinedPage, lines: Lines, most: float) -> int:
        """Return the tokens of quoted lines; the count ends above a maximum."""
        known, tokens = self._counted.setdefault(page, {}), 0
        for line in range(lines[0], lines[1] + 1):
            if line not in known:
                known[line] = _quoted_tokens(_shown(page, line))
            tokens += known[line]
            if tokens > most:
                break
        return tokens

    def _extend(self, hit: Hit, lines: Lines, reserve: float) -> bool:
        """Show lines around a passage, joined with the extracts that they touch; return false if there is no room."""
        page = self._page(hit.chunk)
        joined = [one for one in self._of_document(hit) if page and _touch(one.lines, lines, page)]
        first = min([lines[0], *(one.lines[0] for one in joined)])
        last = max([lines[1], *(one.lines[1] for one in joined)])
        return self._add(hit, (first, last), joined, reserve)

    def _add(self, hit: Hit, lines: Lines, joined: Sequence[_Extract], reserve: float) -> bool:
        """Show lines of a document in place of some extracts; return false if there is no room."""
        best = joined[0].best if joined else hit
        above, freed = self._above(best), sum(one.tokens for one in joined)
        room, text = self._left - reserve + freed - above, hit.chunk.text
        page = self._page(hit.chunk) if joined or lines != hit.chunk.lines else None
        if page:
            tokens, text = self._tokens(page, lines, room), ""
            if tokens <= room:
                text = "\n".join(_shown(page, line) for line in range(lines[0], lines[1] + 1))
                text = page.page.below_header(lines, text)
                header = text.split("\n")[: text.count("\n") - (lines[1] - lines[0])]
                tokens += sum(map(_quoted_tokens, header))
        else:
            tokens = sum(map(_quoted_tokens, text.split("\n")))
        if tokens > room:
            return False
        self._left += freed - above - tokens
        extract = _Extract(best, lines, text, above + tokens)
        at = self.extracts.index(joined[0]) if joined else len(self.extracts)
        self.extracts = [one for one in self.extracts if one not in joined]
        self.extracts.insert(at, extract)
        return True

    def _above(self, hit: Hit) -> int:
        """Return the tokens of the lines that stand above a passage."""
        id = hit.chunk.id
        if id not in self._heads:
            lines = headed_place(hit.chunk, self._several), similar_line(hit, self._several)
            self._heads[id] = SCORE_TOKENS + sum(map(count_tokens, lines))
        return self._heads[id]


def omission_notices(
    composition: Composition, max_tokens: int | None, several_collections: bool
) -> list[Message]:
    """Return notices about the results that are left out."""
    notices = []
    if omitted := composition.omitted:
        refs = tuple(
            place_text(hit.chunk.document, several_collections, hit.chunk.lines) for hit in omitted
        )
        statement = f"{counted(len(refs), 'result')} left out to stay within {max_tokens} tokens"
        places = ", ".join(refs[:MAX_PLACES_NAMED])
        notices.append(
            Message(
                f"{statement}; `marklight get` shows a passage: {places}",
                f"{statement}: {places}",
                kind="omitted",
                refs=refs,
            )
        )
    if number := composition.far_below:
        statement = f"{counted(number, 'result')} with far lower scores left out"
        notices.append(
            Message(f"{statement}; --limit shows them", f"{statement}; limit shows them")
        )
    return notices


def _shown(page: OutlinedPage, number: int) -> str:
    """Return a line of a document, a row of a table without padding."""
    line = page.page.line(number)
    if "|" not in line or not ("  " in line or "----" in line):
        return line
    from marklight.text.markdown import compact_row

    unit = page.unit(number)
    return compact_row(line) if unit and unit.kind == TABLE else line


def _quoted_tokens(line: str) -> int:
    """Return the tokens of a line, with the mark before it and the end of the line."""
    return count_tokens(line) + 2


def _touch(one: Lines, other: Lines, page: OutlinedPage) -> bool:
    """Return true if there is nothing but blank lines between two ranges of lines."""
    before, after = sorted((one, other))
    return after[0] <= before[1] + 1 or not page.page.between(before[1] + 1, after[0] - 1).strip()
