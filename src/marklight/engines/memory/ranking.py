"""Every passage scored, then those that pass the filters put in order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from marklight.answer import Filters
from marklight.engines import covering
from marklight.engines.calling import entry_callings
from marklight.engines.covering import rarity
from marklight.engines.facts import (
    AUTHOR,
    FILES,
    TAG,
    any_glob,
    asked,
    facts,
    in_time,
    moment,
    parted,
    tag_key,
    time_bounds,
    within,
)
from marklight.engines.fields import WHOLE, document_words, passage_words, texts
from marklight.engines.memory.state import State
from marklight.engines.unit import demand_dimension, unit
from marklight.model import Chunk
from marklight.ports import Covered, Scored
from marklight.text import matches_phrases, normalize

if TYPE_CHECKING:
    from marklight.model import Vector

K1, B = 1.2, 0.75
"""BM25 as tantivy has it."""


def bm25(
    state: State, words: Sequence[str], boosts: Mapping[str, float], filters: Filters, limit: int
) -> list[Scored]:
    """By the words of these fields."""
    fields = _fields(state)
    scores = dict.fromkeys(fields, 0.0)
    for name, boost in boosts.items():
        average = sum(len(each[name]) for each in fields.values()) / max(1, len(fields))
        times = {id: Counter(each[name]) for id, each in fields.items()}
        for word in words:
            holders = [id for id in fields if times[id][word]]
            rare = rarity(len(fields), len(holders))
            for id in holders:
                often, length = times[id][word], kept_length(len(fields[id][name]))
                damping = often + K1 * (1 - B + B * length / average)
                scores[id] += boost * rare * (K1 + 1) * often / damping
    return best(state, {id: score for id, score in scores.items() if score > 0}, filters, limit)


def kept_length(length: int) -> int:
    """A field's length as tantivy keeps it in one byte, like Lucene: from 40 on by four bits of what is above 24."""
    above = length - 24
    step = max(0, above.bit_length() - 4) if above > 0 else 0
    return 24 + (above >> step << step) if step else length


def covered(state: State, words: Sequence[str], chunks: Sequence[str]) -> dict[str, Covered]:
    """By looking for each word in each passage."""
    fields, wanted = _fields(state), covering.looked_for(words)
    rarities = {
        word: covering.weight(len(fields), sum(word in each[WHOLE] for each in fields.values()))
        for word in wanted
    }
    rare, found = covering.rare(len(fields)), {}
    for id in chunks:
        own = fields.get(id, {})
        held = [word for word in wanted if word in own.get(WHOLE, ())]
        if held:
            titled = [word for word in held if word in own["title"]]
            found[id] = covering.covered(rarities, held, titled, rare)
    return found


def known(state: State, words: Sequence[str]) -> set[str]:
    """Those that any passage has."""
    every = {word for each in _fields(state).values() for word in each[WHOLE]}
    return every.intersection(words)


def semantic(
    state: State, vector: Vector, model: str, filters: Filters, limit: int
) -> list[Scored]:
    """By the cosine with this vector."""
    known, question = state.vectors.get(model, {}), unit(vector)
    for row in known.values():
        demand_dimension(question, len(row), model)
    scores = {
        chunk.id: float(known[chunk.digest] @ question)
        for chunk in state.chunks()
        if chunk.digest in known
    }
    return best(state, scores, filters, limit)


def named(state: State, name: str, filters: Filters, limit: int) -> list[Scored]:
    """The first passage that passes of each document and section that is called so."""
    scores: dict[str, float] = {}
    for entry in state.entries.values():
        passing = [each for each in entry.chunks if passes(state, each, filters)]
        for calling in entry_callings(entry):
            meant = [each for each in passing if calling.first <= each.ordinal <= calling.last]
            if meant and calling.name == normalize(name):
                first = min(meant, key=lambda each: each.ordinal).id
                scores[first] = max(calling.score, scores.get(first, 0.0))
    return best(state, scores, filters, limit)


def _fields(state: State) -> dict[str, Mapping[str, list[str]]]:
    """The words of every passage, field by field."""
    fields: dict[str, Mapping[str, list[str]]] = {}
    for entry in state.entries.values():
        shared = document_words(entry.document)
        fields.update({each.id: passage_words(shared, each) for each in entry.chunks})
    return fields


def best(state: State, scores: Mapping[str, float], filters: Filters, limit: int) -> list[Scored]:
    """Those that pass, ties in the order of their ids."""
    allowed = {chunk.id for chunk in state.chunks() if passes(state, chunk, filters)}
    found = [Scored(id, score) for id, score in scores.items() if id in allowed]
    return sorted(found, key=lambda each: (-each.score, each.chunk))[: max(0, limit)]


def passes(state: State, chunk: Chunk, filters: Filters) -> bool:
    """Whether a passage may answer."""
    document = state.entries[chunk.document].document
    known = facts(document)
    spoken = {language.lower() for language in chunk.languages}
    when = moment(document.date, document.file.mtime_ns)
    files, authors = parted(filters)
    return (
        (not filters.collections or chunk.collection in filters.collections)
        and (not filters.within or within(chunk.collection, chunk.path, filters.within))
        and (not filters.paths or any_glob(chunk.path, filters.paths))
        and not any_glob(chunk.path, filters.exclude)
        and (not filters.tags or any((TAG, tag_key(tag)) in known for tag in filters.tags))
        and all(fact in known for fact in asked(filters))
        and (not files or any(key == FILES and any_glob(value, files) for key, value in known))
        and (not authors or any(key == AUTHOR and _has(value, authors) for key, value in known))
        and in_time(when, time_bounds(filters))
        and (not filters.languages or any(each.lower() in spoken for each in filters.languages))
        and (not filters.documents or chunk.document in filters.documents)
        and matches_phrases(filters.phrases, filters.without, texts(chunk))
        and (not filters.also or passes(state, chunk, filters.also))
    )


def _has(value: str, parts: Sequence[str]) -> bool:
    return any(part in value for part in parts)
