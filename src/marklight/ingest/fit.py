"""Passages within the model's token limit, by the model's own tokenizer."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace

from marklight.ingest.cut import Span, pieces, trimmed
from marklight.ingest.draft import Draft
from marklight.ingest.parse.form import Parsed
from marklight.model import Kind, trail
from marklight.text import embedding_text

_MARGIN = 16
"""Room for special tokens and a model's own prefix, on top of at most one token for each byte."""
_AIM = 0.9
"""Pieces are cut for a little less than the limit, because tokens are not spread evenly."""


def fit(
    documents: Sequence[Parsed],
    drafts: Sequence[Sequence[Draft]],
    count_tokens: Callable[[Sequence[str]], list[int]],
    token_limit: int,
    overlap_chars: int,
) -> list[list[Draft]]:
    """The drafts with every span that has too many tokens cut into ones that have not."""
    fitted = [list(made) for made in drafts]
    doubtful = [
        (at, number, span)
        for at, made in enumerate(fitted)
        for number, draft in enumerate(made)
        for span in draft.spans
    ]
    while doubtful:
        asked, texts = [], []
        for at, number, span in doubtful:
            text = _passage(documents[at], fitted[at][number], span)
            if len(text.encode("utf-8", "replace")) + _MARGIN > token_limit:
                asked.append((at, number, span))
                texts.append(text)
        counts = count_tokens(texts) if texts else []
        over = [
            (place, count)
            for place, count in zip(asked, counts, strict=True)
            if count > token_limit
        ]
        names = [_passage(documents[at], fitted[at][number], None) for (at, number, _), _ in over]
        around = count_tokens(names) if names else []
        doubtful = []
        cut: dict[tuple[int, int], dict[Span, list[Span]]] = defaultdict(dict)
        shortened: set[tuple[int, int]] = set()
        for ((at, number, span), count), of_names in zip(over, around, strict=True):
            draft = fitted[at][number]
            parts = [span]
            if of_names > token_limit // 2:
                if (at, number) not in shortened:
                    fitted[at][number] = _shortened(draft, token_limit / 2 / of_names)
                    shortened.add((at, number))
            elif draft.text is not None:
                fitted[at][number] = replace(draft, text=draft.text[: len(draft.text) // 2])
            elif span.end - span.start > 1:
                room = (token_limit - of_names) / (count - of_names)
                size = max(1, int((span.end - span.start) * room * _AIM))
                unit = _long_code(documents[at], span, size)
                if unit and count_tokens([_passage(documents[at], draft, unit)])[0] <= token_limit:
                    parts = _apart(documents[at], span, unit)
                else:
                    overlap = min(overlap_chars, size // 4)
                    parts = pieces(documents[at], span, size, size // 4, overlap)
                cut[at, number][span] = parts
            else:
                continue  # one sign with too many tokens: no cut can help
            doubtful.extend((at, number, part) for part in parts)
        for (at, number), parts_of in cut.items():
            spans = fitted[at][number].spans
            spans[:] = [part for span in spans for part in parts_of.get(span, (span,))]
    return fitted


def _passage(parsed: Parsed, draft: Draft, span: Span | None) -> str:
    """What will be embedded; without a span only what stands before every passage."""
    if span is None:
        return embedding_text(draft.title, draft.headings, "")
    text = parsed.document.text[span.start : span.end] if draft.text is None else draft.text
    return embedding_text(draft.title, draft.headings, text)


def _long_code(parsed: Parsed, span: Span, size: int) -> Span | None:
    """The first code block that pieces of this size would cut; none where it is all there is."""
    text, starts, blocks = parsed.document.text, parsed.starts, parsed.structure.blocks
    first = bisect_left(blocks, span.start, key=lambda block: starts[block.line])
    last = bisect_left(blocks, span.end, key=lambda block: starts[block.line])
    for at in range(first, last):
        end = starts[blocks[at + 1].line] if at + 1 < len(blocks) else len(text)
        unit = trimmed(text, starts[blocks[at].line], min(end, span.end))
        if blocks[at].kind is Kind.CODE and size < unit.end - unit.start < span.end - span.start:
            return unit
    return None


def _apart(parsed: Parsed, span: Span, unit: Span) -> list[Span]:
    """What stands before a unit, the unit, and what comes after it."""
    text = parsed.document.text
    around = trimmed(text, span.start, unit.start), unit, trimmed(text, unit.end, span.end)
    return [each for each in around if each.end > each.start]


def _shortened(draft: Draft, share: float) -> Draft:
    """The same passages under shorter names; the innermost heading says most, so it stays."""
    if len(draft.headings) > 1:
        return replace(draft, headings=draft.headings[-1:])
    room = max(1, int(len(trail(draft.title, draft.headings)) * share * _AIM) // 2)
    return replace(
        draft,
        title=draft.title[:room],
        headings=tuple(heading[:room] for heading in draft.headings),
    )
