"""Sentence splitter: find sentence boundaries in prose of Western and CJK punctuation."""

from __future__ import annotations

import re
from itertools import pairwise

_SENTENCE = r"[.!?…][\"'”’)\]]*\s+|[。！？]"
_SENTENCE_OR_LINE = re.compile(rf"{_SENTENCE}|\n")
_SENTENCE_OR_PARAGRAPH = re.compile(rf"{_SENTENCE}|\n\s*\n")


def sentence_ends(text: str, start: int, end: int) -> list[int]:
    """Return the offsets at which sentences end, after the white space that follows; a line break ends one too."""
    return [match.end() for match in _SENTENCE_OR_LINE.finditer(text, start, end)]


def split_sentences(text: str) -> list[str]:
    """Split a text into its sentences and lines, without those that are blank."""
    ends = [0, *sentence_ends(text, 0, len(text)), len(text)]
    parts = (text[first:last] for first, last in pairwise(ends))
    return [part for part in parts if part.strip()]


def truncate_at_sentence(text: str, max_chars: int) -> str:
    """Cut a text after its last sentence or paragraph that fits, else after a word, and append an ellipsis."""
    # With the character after the limit: it may be the white space that ends the last sentence.
    matches = _SENTENCE_OR_PARAGRAPH.finditer(text[: max_chars + 1])
    ends = [match.start() + len(match[0].rstrip()) for match in matches]
    end = max((end for end in ends if end <= max_chars), default=0)
    end = end or text.rfind(" ", 0, max_chars + 1)
    return text[: end if end > 0 else max_chars].rstrip() + " …"
