"""Hits to an answer of the size that was asked for."""

from __future__ import annotations

from dataclasses import replace

from marklight import formatting
from marklight.answer import CHARACTERS_PER_TOKEN, Answer, Hit
from marklight.text import truncate_at_sentence

MOST_NAMED = 3
"""Places that a notice of what is left out names."""

SHOWS_WHOLE = "shows a passage whole: "


def within_budget(answer: Answer) -> Answer:
    """The best hits that fit the token budget, the last one cut at a sentence; what is left out is said."""
    max_tokens = answer.query.max_tokens
    if max_tokens is None:
        return answer
    room = max_tokens * CHARACTERS_PER_TOKEN
    kept: list[Hit] = []
    shortened = 0
    for hit in answer.hits:
        if len(hit.chunk.text) <= room:
            kept.append(hit)
            room -= len(hit.chunk.text)
            continue
        if room > 0:
            text = truncate_at_sentence(hit.chunk.text, room)
            kept.append(replace(hit, chunk=replace(hit.chunk, text=text)))
            shortened = 1
        break
    left_out = answer.hits[len(kept) :]
    if not shortened and not left_out:
        return answer
    results = "1 result" if len(left_out) == 1 else f"{len(left_out)} results"
    said = f"{results} left out" if left_out else "the last result cut"
    places = ", ".join(
        formatting.place(hit.chunk, answer.several_collections)
        for hit in (left_out or kept[-1:])[:MOST_NAMED]
    )
    notice = f"{said} to stay within {max_tokens} tokens; `marklight get` {SHOWS_WHOLE}{places}"
    return replace(answer, hits=tuple(kept), notices=(*answer.notices, notice))
