"""Hits to an answer of the size that was asked for."""

from __future__ import annotations

import re
from dataclasses import replace

from marklight.answer import CHARACTERS_PER_TOKEN, Answer, Hit

_SENTENCE_END = re.compile(r"[.!?。！？](?=\s)|\n\s*\n")


def within_budget(answer: Answer) -> Answer:
    """The best hits that fit the token budget, the last one cut at a sentence; what is left out is said."""
    max_tokens = answer.query.max_tokens
    if max_tokens is None:
        return answer
    room = max_tokens * CHARACTERS_PER_TOKEN
    kept: list[Hit] = []
    cut = 0
    for hit in answer.hits:
        if len(hit.chunk.text) <= room:
            kept.append(hit)
            room -= len(hit.chunk.text)
            continue
        if room > 0:
            text = _cut(hit.chunk.text, room)
            kept.append(replace(hit, chunk=replace(hit.chunk, text=text)))
            cut = 1
        break
    left_out = len(answer.hits) - len(kept)
    if not cut and not left_out:
        return answer
    results = "1 result" if left_out == 1 else f"{left_out} results"
    said = f"{results} left out" if left_out else "the last result cut"
    notice = f"{said} to stay within {max_tokens} tokens; `marklight get` shows a passage whole"
    return replace(answer, hits=tuple(kept), notices=(*answer.notices, notice))


def _cut(text: str, room: int) -> str:
    ends = [found.end() for found in _SENTENCE_END.finditer(text[: room + 1])]
    end = ends[-1] if ends else text.rfind(" ", 0, room + 1)
    return text[: end if end > 0 else room].rstrip() + " …"
