"""Show more of the document: sections instead of passages, neighbouring passages, or the whole section."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, ClassVar

from marklight.answer import Hit, Hits, best_first
from marklight.ports import Tools
from marklight.query import Query
from marklight.search.context import OpenDocuments, parent_passage
from marklight.settings import Within

if TYPE_CHECKING:
    from marklight.text.lines import DocumentLines, Lines


@dataclass(frozen=True, slots=True)
class Parents:
    """Return each section once, with the score of its best passage; only with `--parents`."""

    adds_passages: ClassVar[bool] = True
    """Returns passages with the ids of sections."""

    def __call__(self, query: Query, hits: Hits, tools: Tools) -> Hits:
        if not query.parents:
            return hits
        documents = OpenDocuments(tools.snapshot)
        sections: dict[str, Hit] = {}
        for hit in hits:
            section = parent_passage(hit.chunk, documents)
            sections.setdefault(section.id, replace(hit, chunk=section))
        return best_first(sections.values())


@dataclass(frozen=True, slots=True)
class Context:
    """Add neighbours on both sides, or the whole section, as `--context` and `--expand-context` request."""

    max_characters: Annotated[int, Within(1)] = 20_000
    """Maximum length of a result with context; a longer section is cut around the passage."""

    def __call__(self, query: Query, hits: Hits, tools: Tools) -> Hits:
        if not query.context and not query.expand_context:
            return hits
        documents = OpenDocuments(tools.snapshot)
        shown: list[Hit] = []
        cut = 0
        for index, hit in enumerate(hits):
            if len(shown) == query.limit:
                shown += hits[index:]
                break
            if any(_contains(other, hit) for other in shown):
                continue
            expanded, complete = self._expanded(query, hit, documents)
            shown.append(expanded)
            cut += not complete
        if cut:
            results = "1 result is" if cut == 1 else f"{cut} results are"
            tools.notify(
                f"{results} cut to {self.max_characters:,} characters around the passage;"
                " search.context.max_characters changes that"
            )
        return tuple(shown)

    def _expanded(self, query: Query, hit: Hit, documents: OpenDocuments) -> tuple[Hit, bool]:
        """Return the hit with its context, and True if the context is complete."""
        chunk, document = hit.chunk, documents[hit.chunk.document]
        if document is None:
            return hit, True
        page = document.page
        level = "section" if query.expand_context else "neighbours"
        wanted = documents.lines(chunk, level, query.context)
        lines = _within(page, wanted, chunk.lines, self.max_characters)
        text = page.between(*lines)
        if len(text) > max(self.max_characters, len(chunk.text)):
            return hit, False  # a part of a very long line
        return replace(
            hit, chunk=replace(chunk, lines=lines, text=text, boilerplate=())
        ), lines == wanted


def _contains(shown: Hit, hit: Hit) -> bool:
    """Return True if the text of a passage is part of a shown one of the same document."""
    return shown.chunk.document == hit.chunk.document and hit.chunk.text in shown.chunk.text


def _within(page: DocumentLines, wanted: Lines, own: Lines, most: int) -> Lines:
    """Return as many of the wanted lines as fit, as much before the passage as after it."""
    if page.length(wanted) <= most:
        return wanted
    before = page.start(own[0]) - page.start(wanted[0])
    after = page.length((own[1], wanted[1])) - page.length((own[1], own[1]))
    available = max(0, most - page.length(own))
    left = min(before, max(available // 2, available - after))
    first, last = own
    while first > wanted[0] and page.start(own[0]) - page.start(first - 1) <= left:
        first -= 1
    while last < wanted[1] and page.length((first, last + 1)) <= most:
        last += 1
    return first, last
