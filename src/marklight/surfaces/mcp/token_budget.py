"""Fit text into a token budget: whole results first, the last one truncated, omitted ones listed by reference."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from marklight.answer import CHARACTERS_PER_TOKEN, SHOWS_WHOLE
from marklight.formatting import quoted
from marklight.text.lines import truncate_at_sentence

MIN_PASSAGE_BYTES = 60
"""A passage is not shown with fewer: its reference is more useful than a part of a sentence."""
MAX_LISTED = 5
"""References that the line about omitted results lists."""


def max_bytes(tokens: int) -> int:
    """Return the number of bytes in a token budget, by the estimate that all budgets use."""
    return tokens * CHARACTERS_PER_TOKEN


def size(text: str) -> int:
    """Return the size of a text in bytes of UTF-8.

    Tokenizers split bytes: in English a token has three to four characters, in Russian two, in Chinese one.
    """
    return len(text.encode("utf-8", "replace"))


def call(ref: str | Sequence[str]) -> str:
    """Return the call of get_document that reads one or several references."""
    return f"get_document ref={ref!r}"


class Block(NamedTuple):
    """One result: its header lines, the passage, and the reference to it."""

    head: str
    passage: str
    ref: str

    def __str__(self) -> str:
        return f"{self.head}\n{quoted(self.passage)}" if self.passage else self.head


def fit(
    blocks: Sequence[Block],
    notes: Sequence[str],
    tokens: int,
    reader: Callable[[str | Sequence[str]], str] = call,
) -> str:
    """Join as many whole results as fit, the next one truncated, then a line on omitted results and the notes.

    `reader` returns the call that shows results in full.
    """
    limit = max_bytes(tokens)
    text = _join([*map(str, blocks)], notes)
    if size(text) <= limit:
        return text
    # Results that the library omitted are counted with those omitted here.
    others = [note for note in notes if SHOWS_WHOLE not in note]
    omitted = Omitted.from_notes(notes)
    # Notes are dropped before results.
    for kept_notes in (others, others[:1], []):
        for whole in range(len(blocks) - 1, -1, -1):
            text = _compose(blocks, whole, kept_notes, tokens, omitted, reader)
            if text and size(text) <= limit:
                return text
    return truncate(_join([], [*_omission_note(blocks, tokens, omitted, reader), *others]), tokens)


def truncate(text: str, tokens: int) -> str:
    """Truncate a text to a token budget, at the end of a sentence where there is room for one."""
    limit = max_bytes(tokens)
    if size(text) <= limit:
        return text
    ellipsis = size(" …")
    if limit <= ellipsis:
        return text.encode()[:limit].decode("utf-8", "ignore")
    return _shortened(text, limit, lambda part: part)


class Omitted(NamedTuple):
    """Results that the library omitted from its answer, and their references."""

    number: int = 0
    refs: tuple[str, ...] = ()

    @classmethod
    def from_notes(cls, notes: Sequence[str]) -> Omitted:
        """Parse the notice of the library."""
        for note in notes:
            if match := _OMITTED.search(note):
                return cls(int(match[1]), tuple(match[2].split(", ")))
        return cls()


_OMITTED = re.compile(rf"(\d+) results? left out .*{SHOWS_WHOLE}(.*)$")


def _compose(
    blocks: Sequence[Block],
    whole: int,
    notes: Sequence[str],
    tokens: int,
    omitted: Omitted,
    reader: Callable[[str | Sequence[str]], str],
) -> str:
    shown, rest = [str(block) for block in blocks[:whole]], blocks[whole:]
    closing = [f"[{whole + 1}] is truncated; {reader(rest[0].ref)} shows it in full"]
    closing += _omission_note(rest[1:], tokens, omitted, reader)
    used = size(_join([*shown, rest[0].head], [*closing, *notes])) + len("\n")
    free = max_bytes(tokens) - used
    if free >= min(MIN_PASSAGE_BYTES, size(quoted(rest[0].passage))):
        part = rest[0]._replace(passage=truncate_quoted(rest[0].passage, free))
        return _join([*shown, str(part)], [*closing, *notes])
    if not shown:
        return ""
    return _join(shown, [*_omission_note(rest, tokens, omitted, reader), *notes])


def _omission_note(
    blocks: Sequence[Block],
    tokens: int,
    omitted: Omitted,
    reader: Callable[[str | Sequence[str]], str],
) -> list[str]:
    count, refs = len(blocks) + omitted.number, [*(block.ref for block in blocks), *omitted.refs]
    if not count:
        return []
    listed = refs[0] if len(refs) == 1 else refs[:MAX_LISTED]
    more = f" and {count - MAX_LISTED} more" if count > MAX_LISTED else ""
    results = "1 result" if count == 1 else f"{count} results"
    return [f"{results} omitted to stay within {tokens} tokens{more}: {reader(listed)}"]


def _join(blocks: Sequence[str], notes: Sequence[str]) -> str:
    return "\n\n".join([*blocks, *(["\n".join(notes)] if notes else [])])


def truncate_quoted(text: str, limit: int) -> str:
    """Truncate a text at the end of a sentence, so that it fits a number of bytes once it is quoted."""
    return _shortened(text, limit, quoted)


def _shortened(text: str, limit: int, finished: Callable[[str], str]) -> str:
    """Truncate a text, so that `finished`, which lengthens lines and escapes, fits a number of bytes."""
    length = min(limit, len(text))
    while True:
        part = truncate_at_sentence(text, max(0, length))
        used = size(finished(part))
        if used <= limit or length <= 0:
            return part
        length = min(length, len(part))
        # Characters differ in size, so the excess is estimated, and the result measured again.
        length -= max(1, (used - limit) * length // used)


def truncate_extract(
    extract: Mapping[str, Any], ref: str, overhead: int, tokens: int
) -> dict[str, Any]:
    """Keep as many whole lines of an extract as fit besides `overhead` bytes; add a notice how to continue."""
    content, first = extract["content"], extract["lines"][0]
    if size(quoted(content)) + overhead <= max_bytes(tokens):
        return dict(extract)
    last = extract["lines"][1]
    notice = _continuation(ref, last, last)
    limit = max(0, max_bytes(tokens) - overhead - size(notice) - len("\n\nnote: "))
    lines = _lines_that_fit(content.split("\n"), limit)
    if lines:
        next_line = first + len(lines)
        kept = "\n".join(lines)
        notice = _continuation(ref, next_line, last)
    else:
        # The first line alone is too long, and references have whole lines.
        next_line, kept = first + 1, truncate_quoted(content.split("\n")[0], limit)
        rest = f"{ref}:{next_line}-{last}"
        more = f"; continue after it with ref={rest!r}" if next_line <= last else ""
        notice = f"line {first} is truncated; a larger max_tokens shows it in full{more}"
    return {
        **extract,
        "content": kept,
        "lines": [first, max(first, next_line - 1)],
        "notices": [*extract["notices"], notice],
    }


def _continuation(ref: str, first: int, last: int) -> str:
    rest = f"{ref}:{first}-{last}"
    return f"truncated; continue with ref={rest!r}"


def _lines_that_fit(lines: Sequence[str], limit: int) -> Sequence[str]:
    """Return the lines that fit once quoted, preferably up to the end of a sentence."""
    used, count = -1, 0
    for line in lines:
        used += size(quoted(line)) + 1
        if used > limit:
            break
        count += 1
    for fewer in range(count, count * 2 // 3, -1):
        if not lines[fewer - 1].strip() or lines[fewer - 1].rstrip().endswith(_SENTENCE_ENDS):
            return lines[:fewer]
    return lines[:count]


_SENTENCE_ENDS = (".", "!", "?", ":", "```", "。", "！", "？")
