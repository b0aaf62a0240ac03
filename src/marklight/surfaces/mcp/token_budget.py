"""Token limit of answers in text: whole results first, the last one truncated, omitted ones listed by reference."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from marklight.errors import Message
from marklight.formatting import counted, quoted
from marklight.text.tokens import count_tokens, fits, truncate_to_tokens

MIN_PASSAGE_TOKENS = 15
"""A passage is not shown with fewer: its reference is more useful than a part of a sentence."""
MAX_LISTED = 5
"""References that the line about omitted results lists."""
LISTED_SHARE = 20
"""Several take at most this part of the budget: a twentieth."""


def call(ref: str | Sequence[str]) -> str:
    """Return the call of get_document that reads one or several references."""
    return f"get_document ref={ref!r}"


Reader = Callable[[str | Sequence[str]], str]
"""Returns the call that shows results in full, by one or several references."""


class Block(NamedTuple):
    """One result: its header lines, the passage, the reference to it, and the lines below the passage."""

    head: str
    passage: str
    ref: str
    foot: str = ""

    def __str__(self) -> str:
        passage = quoted(self.passage) if self.passage else ""
        return "\n".join(filter(None, (self.head, passage, self.foot)))


def fit(
    blocks: Sequence[Block],
    notes: Sequence[str],
    tokens: int,
    reader: Reader = call,
    omitted: Message | None = None,
) -> str:
    """Join as many whole results as fit, the next one truncated, then a line on omitted results and the notes.

    `omitted` is the notice about results that the library omitted, which are counted with those omitted here.
    """
    text = _join(
        [*map(str, blocks)], [*notes, *([f"note: {omitted.for_assistant}"] if omitted else [])]
    )
    if fits(text, tokens):
        return text
    refs = omitted.refs if omitted else ()
    # Notes are dropped before results.
    for kept_notes in (notes, notes[:1], []):
        text = _join([*map(str, blocks)], [*_omission_note([], tokens, refs, reader), *kept_notes])
        if blocks and fits(text, tokens):
            return text
    for kept_notes in (notes, notes[:1], []):
        for whole in range(len(blocks) - 1, -1, -1):
            text = _compose(blocks, whole, kept_notes, tokens, refs, reader)
            if text and fits(text, tokens):
                return text
    return truncate(_join([], [*_omission_note(blocks, tokens, refs, reader), *notes]), tokens)


def truncate(text: str, tokens: int) -> str:
    """Truncate a text to a token budget, at the end of a sentence where there is room for one."""
    return text if fits(text, tokens) else truncate_to_tokens(text, tokens)


def _compose(
    blocks: Sequence[Block],
    whole: int,
    notes: Sequence[str],
    tokens: int,
    omitted: Sequence[str],
    reader: Reader,
) -> str:
    shown, rest = [str(block) for block in blocks[:whole]], blocks[whole:]
    closing = [f"note: [{whole + 1}] is truncated; {reader(rest[0].ref)} shows it in full"]
    closing += _omission_note(rest[1:], tokens, omitted, reader)
    free = tokens - count_tokens(_join([*shown, rest[0].head], [*closing, *notes])) - 1
    if free >= min(MIN_PASSAGE_TOKENS, count_tokens(quoted(rest[0].passage))):
        part = rest[0]._replace(passage=truncate_quoted(rest[0].passage, free), foot="")
        return _join([*shown, str(part)], [*closing, *notes])
    if not shown:
        return ""
    return _join(shown, [*_omission_note(rest, tokens, omitted, reader), *notes])


def _omission_note(
    blocks: Sequence[Block],
    tokens: int,
    omitted: Sequence[str],
    reader: Reader,
) -> list[str]:
    refs = [*(block.ref for block in blocks), *omitted]
    if not (count := len(refs)):
        return []
    number = min(count, MAX_LISTED)
    while number > 1 and count_tokens(reader(refs[:number])) > tokens // LISTED_SHARE:
        number -= 1
    listed = refs[0] if number == 1 else refs[:number]
    more = f" and {count - number} more" if count > number else ""
    return [
        f"note: {counted(count, 'result')} omitted to stay within {tokens} tokens{more}: {reader(listed)}"
    ]


def _join(blocks: Sequence[str], notes: Sequence[str]) -> str:
    return "\n\n".join([*blocks, *(["\n".join(notes)] if notes else [])])


def truncate_quoted(text: str, tokens: int) -> str:
    """Truncate a text at the end of a sentence, so that it fits a token budget once it is quoted."""
    return truncate_to_tokens(text, tokens, quoted)


def continue_with(ref: str, first: int, last: int) -> str:
    """Return the notice how to read the rest of a truncated document."""
    rest = f"{ref}:{first}-{last}"
    return f"truncated; continue with ref={rest!r}"


def lines_that_fit(lines: Sequence[str], tokens: int) -> Sequence[str]:
    """Return the lines that fit once quoted, preferably up to the end of a sentence."""
    used, count = -1, 0
    for line in lines:
        used += count_tokens(quoted(line)) + 1
        if used > tokens:
            break
        count += 1
    for fewer in range(count, count * 2 // 3, -1):
        if not lines[fewer - 1].strip() or lines[fewer - 1].rstrip().endswith(_SENTENCE_ENDS):
            return lines[:fewer]
    return lines[:count]


_SENTENCE_ENDS = (".", "!", "?", ":", "```", "。", "！", "？")
