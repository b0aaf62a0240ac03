"""Documents to passages: cut along headings, small siblings together, long sections in pieces."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from marklight.errors import SettingsError
from marklight.ingest.contents import contents, lines_of
from marklight.ingest.draft import Draft, Sizes, drafts
from marklight.ingest.fit import fit
from marklight.ingest.parse.form import Parsed
from marklight.model import Chunk, Entry, Section
from marklight.text import digest, embedding_text

VERSION = "chunker 3"


@dataclass(frozen=True, slots=True)
class Chunker:
    """Cuts documents into passages of `min_chars` to `max_chars`, and groups them into parents."""

    min_chars: int = 200
    """Sections shorter than this are put together with their neighbours under the same heading."""
    max_chars: int = 1500
    """Longer sections are cut, between paragraphs where possible."""
    overlap_chars: int = 100
    """How much of the end of a piece the next piece of the same section repeats."""
    parent_chars: int = 2000
    """How long a parent, a run of neighbouring passages, may be."""

    def __post_init__(self) -> None:
        if not 0 <= self.overlap_chars < self.max_chars // 2 or not (
            0 <= self.min_chars <= self.max_chars <= self.parent_chars
        ):
            raise SettingsError(
                f"passages cannot have min_chars {self.min_chars}, max_chars {self.max_chars}, "
                f"overlap_chars {self.overlap_chars} and parent_chars {self.parent_chars}",
                "Each of min, max and parent is at least the one before; the overlap is under half of max",
            )

    @property
    def fingerprint(self) -> str:
        """Changes whenever a document would be cut differently."""
        sizes = (self.min_chars, self.max_chars, self.overlap_chars, self.parent_chars)
        return digest(VERSION, *map(str, sizes), size=8)

    def __call__(
        self,
        documents: Sequence[Parsed],
        count_tokens: Callable[[Sequence[str]], list[int]] | None = None,
        token_limit: int | None = None,
    ) -> list[Entry]:
        """Entries for many documents, so that tokens are counted in a few large calls."""
        sizes = Sizes(self.min_chars, self.max_chars, self.overlap_chars)
        made = [drafts(parsed, sizes) for parsed in documents]
        if count_tokens and token_limit:
            made = fit(documents, made, count_tokens, token_limit, self.overlap_chars)
        return [self._entry(parsed, found) for parsed, found in zip(documents, made, strict=True)]

    def _entry(self, parsed: Parsed, made: Sequence[Draft]) -> Entry:
        groups: list[list[tuple[Draft, int]]] = []
        extent, top = (0, 0), -1
        for draft in made:
            for number, span in enumerate(draft.spans):
                fits = span.end - extent[0] <= self.parent_chars
                # A parent that is large enough ends with its heading; none spans two titles.
                ended = (
                    number == 0
                    and draft.node.level <= 2
                    and extent[1] - extent[0] >= self.max_chars
                )
                if groups and top == draft.node.top and fits and not ended:
                    groups[-1].append((draft, number))
                    extent = (extent[0], span.end)
                else:
                    groups.append([(draft, number)])
                    extent, top = (_start(draft, number), span.end), draft.node.top
        chunks: list[Chunk] = []
        sections: list[Section] = []
        for group in groups:
            self._family(parsed, group, chunks, sections)
        return Entry(parsed.document, tuple(chunks), tuple(sections))

    def _family(
        self,
        parsed: Parsed,
        group: Sequence[tuple[Draft, int]],
        chunks: list[Chunk],
        sections: list[Section],
    ) -> None:
        """A parent and the passages in it."""
        document, starts = parsed.document, parsed.starts
        first, number = group[0]
        start = _start(first, number)
        end = group[-1][0].spans[group[-1][1]].end
        parent = digest("section", *document.id, *first.node.anchors, str(number), size=8)
        shared = first.headings
        for draft, _ in group:
            while shared != draft.headings[: len(shared)]:
                shared = shared[:-1]
        sections.append(
            Section(parent, shared, first.node.anchor, lines_of(starts, start, end), (start, end))
        )
        for draft, place in group:
            span = draft.spans[place]
            text = document.text[span.start : span.end] if draft.text is None else draft.text
            kind, code, languages = contents(parsed, span)
            chunks.append(
                Chunk(
                    id=digest(*document.id, *draft.node.anchors, str(place), size=8),
                    document=document.id,
                    ordinal=len(chunks),
                    title=draft.title,
                    headings=draft.headings,
                    anchor=draft.node.anchor,
                    lines=lines_of(starts, span.start, span.end),
                    kind=kind,
                    text=text,
                    parent=parent,
                    digest=digest(embedding_text(draft.title, draft.headings, text)),
                    merged=draft.merged,
                    code=code,
                    languages=languages,
                )
            )


def _start(draft: Draft, number: int) -> int:
    """Where a passage begins to be read: the first of a section at its heading."""
    start = draft.spans[number].start
    return start if number else min(start, draft.node.whole.start)
