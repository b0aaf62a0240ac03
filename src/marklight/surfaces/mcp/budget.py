"""Text of a search within so many tokens: the last result cut at a sentence, what is left out named."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from marklight.escaping import quoted
from marklight.search.context import SHOWS_WHOLE
from marklight.surfaces.mcp.wording import room_of
from marklight.text import truncate_at_sentence

LEAST_OF_A_PASSAGE = 60
"""Signs: of less than a sentence nobody learns anything, its place says more."""
MOST_NAMED = 5
"""Places that the line about what is left out names."""


class Block(NamedTuple):
    """One result: lines of ours, the passage as it stands in the document, and the reference to it."""

    head: str
    passage: str
    ref: str

    def __str__(self) -> str:
        return f"{self.head}\n{quoted(self.passage)}" if self.passage else self.head


def within(
    blocks: Sequence[Block], notes: Sequence[str], tokens: int, by: str = "get_document"
) -> str:
    """As many results as fit whole, the next one cut, then what is left out and the notes.

    `by` is what shows one whole.
    """
    room = room_of(tokens)
    text = _joined([*map(str, blocks)], notes)
    if len(text) <= room:
        return text
    # What the library left out already is told with what is left out here.
    others = [note for note in notes if SHOWS_WHOLE not in note]
    beyond = Beyond.of(notes)
    # A little of an answer is worth more than all that can be said about it.
    for said in (others, others[:1], []):
        for whole in range(len(blocks) - 1, -1, -1):
            text = _composed(blocks, whole, said, tokens, beyond, by)
            if text and len(text) <= room:
                return text
    text = _joined([], [*_left_out(blocks, tokens, beyond, by), *others])
    return truncate_at_sentence(text, room - len(" …")) if room > len(" …") else text[:room]


class Beyond(NamedTuple):
    """Results that the library left out of its answer: how many, and the places that it names."""

    number: int = 0
    refs: tuple[str, ...] = ()

    @classmethod
    def of(cls, notes: Sequence[str]) -> Beyond:
        """As one of the notes tells them."""
        for note in notes:
            if found := _LEFT_OUT.search(note):
                return cls(int(found[1]), tuple(found[2].split(", ")))
        return cls()


_LEFT_OUT = re.compile(rf"(\d+) results? left out .*{SHOWS_WHOLE}(.*)$")


def _composed(
    blocks: Sequence[Block], whole: int, notes: Sequence[str], tokens: int, beyond: Beyond, by: str
) -> str:
    shown, rest = [str(block) for block in blocks[:whole]], blocks[whole:]
    closing = [f"[{whole + 1}] is cut; {by} {rest[0].ref!r} shows it whole"]
    closing += _left_out(rest[1:], tokens, beyond, by)
    around = len(_joined([*shown, rest[0].head], [*closing, *notes])) + len("\n")
    free = room_of(tokens) - around
    if free >= min(LEAST_OF_A_PASSAGE, len(quoted(rest[0].passage))):
        part = rest[0]._replace(passage=cut_quoted(rest[0].passage, free))
        return _joined([*shown, str(part)], [*closing, *notes])
    return _joined(shown, [*_left_out(rest, tokens, beyond, by), *notes]) if shown else ""


def _left_out(blocks: Sequence[Block], tokens: int, beyond: Beyond, by: str) -> list[str]:
    count, refs = len(blocks) + beyond.number, [*(block.ref for block in blocks), *beyond.refs]
    if not count:
        return []
    named = ", ".join(map(repr, refs[:MOST_NAMED]))
    more = f" and {count - MOST_NAMED} more" if count > MOST_NAMED else ""
    results = "1 result" if count == 1 else f"{count} results"
    return [f"{results} left out to stay within {tokens} tokens; {by} shows {named}{more}"]


def _joined(blocks: Sequence[str], notes: Sequence[str]) -> str:
    return "\n\n".join([*blocks, *(["\n".join(notes)] if notes else [])])


def cut_quoted(text: str, room: int) -> str:
    """Cut a text at the end of a sentence, so that it has at most `room` characters once it is quoted."""
    most = room
    while True:
        part = truncate_at_sentence(text, max(0, most))
        beyond = len(quoted(part)) - room
        if beyond <= 0 or most <= 0:
            return part
        # Quotation marks and escapes may stand anywhere in it, so what is too much is taken off and measured again.
        most = min(most, len(part)) - beyond


def shortened(extract: Mapping[str, Any], ref: str, around: int, tokens: int) -> dict[str, Any]:
    """Keep as many whole lines of an extract as fit, quoted and with `around` characters besides, and
    add a notice with the reference that continues it."""
    content, first = extract["content"], extract["lines"][0]
    if len(quoted(content)) + around <= room_of(tokens):
        return dict(extract)
    last = extract["lines"][1]
    told = f"cut to stay within {tokens} tokens; get_document {f'{ref}:{last}-{last}'!r} goes on"
    room = max(0, room_of(tokens) - around - len(told) - len("\nnote: "))
    lines = _that_fit(content.split("\n"), room)
    if lines:
        at = first + len(lines)
        kept = "\n".join(lines)
        told = f"cut to stay within {tokens} tokens; get_document {f'{ref}:{at}-{last}'!r} goes on"
    else:
        # One line is longer than all that may be said, and a reference names whole lines.
        at, kept = first + 1, cut_quoted(content.split("\n")[0], room)
        more = f"; get_document {f'{ref}:{at}-{last}'!r} goes on after it" if at <= last else ""
        told = f"line {first} is cut; a larger max_tokens shows it whole{more}"
    cut_at = [first, max(first, at - 1)]
    return {
        **extract,
        "content": kept,
        "lines": cut_at,
        "notices": [*extract["notices"], told],
    }


def _that_fit(lines: Sequence[str], room: int) -> Sequence[str]:
    """Return as many as fit once they are quoted, without the beginning of a sentence that goes on after them."""
    used, count = -1, 0
    for line in lines:
        used += len(quoted(line)) + 1
        if used > room:
            break
        count += 1
    for fewer in range(count, count * 2 // 3, -1):
        if not lines[fewer - 1].strip() or lines[fewer - 1].rstrip().endswith(_ENDS):
            return lines[:fewer]
    return lines[:count]


_ENDS = (".", "!", "?", ":", "```", "。", "！", "？")
"""How a line ends that nothing is missing from."""
