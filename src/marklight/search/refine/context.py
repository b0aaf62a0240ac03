"""Show more of the document around each hit."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf

from marklight.answer import Hit, Hits, Query
from marklight.ports import Tools
from marklight.search.widen import Leaves
from marklight.settings import demand_within
from marklight.text.lines import DocumentLines, Lines


@dataclass(frozen=True, slots=True)
class Context:
    """Neighbours on both sides, or the whole section, as the asker wants; each text once."""

    most_characters: int = 20_000
    """How much one hit may show; of a longer section what is nearest to the passage."""

    def __post_init__(self) -> None:
        demand_within("search.context", self, most_characters=(1, inf))

    def __call__(self, query: Query, hits: Hits, tools: Tools) -> Hits:
        if not query.context and not query.expand_context:
            return hits
        leaves = Leaves(tools.snapshot)
        shown: list[Hit] = []
        cut = 0
        for at, hit in enumerate(hits):
            if len(shown) == query.limit:
                shown += hits[at:]
                break
            if any(_shows(other, hit) for other in shown):
                continue
            wide, whole = self._widened(query, hit, leaves)
            shown.append(wide)
            cut += not whole
        if cut:
            results = "1 result is" if cut == 1 else f"{cut} results are"
            tools.notify(
                f"{results} cut to {self.most_characters:,} characters around what was found;"
                " search.context.most_characters changes that"
            )
        return tuple(shown)

    def _widened(self, query: Query, hit: Hit, leaves: Leaves) -> tuple[Hit, bool]:
        """The hit with what stands around it, and whether that is all that was asked for."""
        chunk, leaf = hit.chunk, leaves[hit.chunk.document]
        if leaf is None:
            return hit, True
        page = leaf.page
        level = "section" if query.expand_context else "neighbours"
        wanted = leaves.lines(chunk, level, query.context)
        lines = _within(page, wanted, chunk.lines, self.most_characters)
        text = page.between(*lines)
        if len(text) > max(self.most_characters, len(chunk.text)):
            return hit, False  # a part of a very long line
        return replace(hit, chunk=replace(chunk, lines=lines, text=text)), lines == wanted


def _shows(shown: Hit, hit: Hit) -> bool:
    """Whether a passage can be read in what is shown of its document already."""
    return shown.chunk.document == hit.chunk.document and hit.chunk.text in shown.chunk.text


def _within(page: DocumentLines, wanted: Lines, own: Lines, most: int) -> Lines:
    """As many of the wanted lines as there is room for, as much before the passage as after it."""
    if page.length(wanted) <= most:
        return wanted
    before = page.start(own[0]) - page.start(wanted[0])
    after = page.length((own[1], wanted[1])) - page.length((own[1], own[1]))
    room = max(0, most - page.length(own))
    left = min(before, max(room // 2, room - after))
    first, last = own
    while first > wanted[0] and page.start(own[0]) - page.start(first - 1) <= left:
        first -= 1
    while last < wanted[1] and page.length((first, last + 1)) <= most:
        last += 1
    return first, last
