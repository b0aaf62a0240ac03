"""Cut passages at the token limit of the embedding model, with tokens counted by the model's own tokenizer."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace

from marklight.ingest.chunk import Draft
from marklight.ingest.parse import Parsed
from marklight.ingest.split import Span, split, trimmed
from marklight.model import Kind, trail
from marklight.text.markdown import embedding_text

_SPECIAL_TOKENS = 16
"""Reserve for special tokens and a model's own prefix. A byte is at most one token, so a passage with fewer bytes than
the limit minus this is not counted."""
_TARGET_SHARE = 0.9
"""Parts are cut for a little less than the limit, because tokens are not spread evenly over the text."""

Place = tuple[int, int, Span]
"""A passage: number of its document, number of its draft, and its span."""


def cut_to_token_limit(
    documents: Sequence[Parsed],
    drafts: Sequence[Sequence[Draft]],
    count_tokens: Callable[[Sequence[str]], list[int]],
    token_limit: int,
    overlap_chars: int,
) -> list[list[Draft]]:
    """Return the drafts with every passage over the token limit cut into passages within it."""
    fitted = [list(own) for own in drafts]
    unchecked: list[Place] = [
        (at, number, span)
        for at, own in enumerate(fitted)
        for number, draft in enumerate(own)
        for span in draft.spans
    ]
    while unchecked:
        counted: list[Place] = []
        texts = []
        for at, number, span in unchecked:
            text = _passage(documents[at], fitted[at][number], span)
            if len(text.encode("utf-8", "replace")) + _SPECIAL_TOKENS > token_limit:
                counted.append((at, number, span))
                texts.append(text)
        counts = count_tokens(texts) if texts else []
        over = [
            (place, count)
            for place, count in zip(counted, counts, strict=True)
            if count > token_limit
        ]
        # Title and headings stand before the text of every passage and count as well.
        prefixes = [
            _passage(documents[at], fitted[at][number], None) for (at, number, _), _ in over
        ]
        prefix_counts = count_tokens(prefixes) if prefixes else []
        unchecked = []
        cuts: dict[tuple[int, int], dict[Span, list[Span]]] = defaultdict(dict)
        shortened: set[tuple[int, int]] = set()
        for ((at, number, span), count), prefix_count in zip(over, prefix_counts, strict=True):
            draft = fitted[at][number]
            parts = [span]
            if prefix_count > token_limit // 2:
                if (at, number) not in shortened:
                    fitted[at][number] = _shorten_headings(draft, token_limit / 2 / prefix_count)
                    shortened.add((at, number))
            elif draft.text is not None:
                fitted[at][number] = replace(draft, text=draft.text[: len(draft.text) // 2])
            elif span.end - span.start > 1:
                share = (token_limit - prefix_count) / (count - prefix_count)
                size = max(1, int((span.end - span.start) * share * _TARGET_SHARE))
                code = _long_code(documents[at], span, size)
                if code and count_tokens([_passage(documents[at], draft, code)])[0] <= token_limit:
                    parts = _split_around(documents[at], span, code)
                else:
                    overlap = min(overlap_chars, size // 4)
                    parts = split(documents[at], span, size, size // 4, overlap)
                cuts[at, number][span] = parts
            else:
                continue  # one character with too many tokens: no cut can help
            unchecked.extend((at, number, part) for part in parts)
        for (at, number), parts_of in cuts.items():
            spans = fitted[at][number].spans
            spans[:] = [part for span in spans for part in parts_of.get(span, (span,))]
    return fitted


def _passage(parsed: Parsed, draft: Draft, span: Span | None) -> str:
    """Return the text to embed; without a span only title and headings."""
    if span is None:
        return embedding_text(draft.title, draft.headings, "")
    text = parsed.text[span.start : span.end] if draft.text is None else draft.text
    return embedding_text(draft.title, draft.headings, text)


def _long_code(parsed: Parsed, span: Span, size: int) -> Span | None:
    """Return the first code block that parts of this size would cut; None where it is the whole span."""
    text, starts, blocks = parsed.text, parsed.starts, parsed.structure.blocks
    first = bisect_left(blocks, span.start, key=lambda block: starts[block.line])
    last = bisect_left(blocks, span.end, key=lambda block: starts[block.line])
    for at in range(first, last):
        end = starts[blocks[at + 1].line] if at + 1 < len(blocks) else len(text)
        code = trimmed(text, starts[blocks[at].line], min(end, span.end))
        if blocks[at].kind is Kind.CODE and size < code.end - code.start < span.end - span.start:
            return code
    return None


def _split_around(parsed: Parsed, span: Span, code: Span) -> list[Span]:
    """Return the text before a code block, the block, and the text after it."""
    text = parsed.text
    parts = trimmed(text, span.start, code.start), code, trimmed(text, code.end, span.end)
    return [part for part in parts if part.end > part.start]


def _shorten_headings(draft: Draft, share: float) -> Draft:
    """Keep the innermost heading only, the most specific one; if that is all there is, cut title and heading."""
    if len(draft.headings) > 1:
        return replace(draft, headings=draft.headings[-1:])
    max_chars = max(1, int(len(trail(draft.title, draft.headings)) * share * _TARGET_SHARE) // 2)
    return replace(
        draft,
        title=draft.title[:max_chars],
        headings=tuple(heading[:max_chars] for heading in draft.headings),
    )
