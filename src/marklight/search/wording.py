"""Which of a question's words candidates have: in which spelling, as they are typed, and in their paths."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache

from marklight.answer import Query
from marklight.model import Chunk
from marklight.ports import TermCoverage, Tools
from marklight.text import (
    analyze,
    contains_sequence,
    has_words,
    matches_phrases,
    query_terms,
    trim_stop_words,
)

NOTHING = TermCoverage(0.0, 0.0)
"""Of a passage that has none of them."""
_PHRASE, _ALL = 6, 0.999
"""Words of a question that may stand in a passage as they are typed, and the share that is all of them."""
_TOGETHER = 0.3
"""What several words that stand together count beside a single one. With 1 the right page of one link text
in ten is held back, as another has those words; with this the order on all sets is what it was."""
_PATHS = 4096
"""Documents whose words of the path are remembered."""


def length(text: str) -> int:
    """Words of the question; `PostgreSQL` is one, though it is also looked for in its parts."""
    whole = set(analyze(text))
    return 1 if len(whole) == 1 else len(set(query_terms(text)))


def forms(text: str) -> set[frozenset[str]]:
    """A question's words, and the same with the parts of names."""
    return {frozenset(analyze(text)), frozenset(query_terms(text))} - {frozenset()}


def share_in_path(path: str, asked: Iterable[frozenset[str]]) -> float:
    """Of the words that are asked for, in whichever form has more of them there."""
    own = _path_words(path)
    return max((len(each & own) / len(each) for each in asked), default=0.0)


@lru_cache(maxsize=_PATHS)
def _path_words(path: str) -> frozenset[str]:
    """Those of its folders and of the file's name; the ending tells nothing, as most have the same."""
    return frozenset().union(*map(_part_words, path.split("/")))


@lru_cache(maxsize=_PATHS)
def _part_words(part: str) -> frozenset[str]:
    """Of one of them: most folders are those of many documents."""
    return frozenset(query_terms(part))


def as_typed(
    text: str, chunks: Mapping[str, Chunk], covered: Mapping[str, TermCoverage]
) -> Mapping[str, float]:
    """Passages that have what was typed as it is typed: a single word, or several that stand together."""
    if length(text) == 1:
        return {id: share.anywhere for id, share in covered.items()}
    return _holders(text, chunks, covered)


def _holders(
    text: str, chunks: Mapping[str, Chunk], covered: Mapping[str, TermCoverage]
) -> dict[str, float]:
    """Passages in which the question stands as it is typed, the more telling the fewer documents do so.

    Of `when is the pen test` that is what it asks about. What is typed without blanks, as a version, a date or
    an address is, says where it stands by itself.
    """
    text = trim_stop_words(text)
    typed = len(text.split())
    if typed > _PHRASE:
        return {}
    if typed == 1:
        if not has_words(text):
            return {}
        held = [id for id, chunk in chunks.items() if matches_phrases((text,), (), _texts(chunk))]
        return {id: covered.get(id, NOTHING).anywhere for id in held}
    # Where a passage lacks a word there is no need to look at its text.
    whole = [id for id in chunks if covered.get(id, NOTHING).anywhere > _ALL]
    held = [id for id in whole if contains_sequence(text, "\0".join(_texts(chunks[id])).lower())]
    return dict.fromkeys(held, _TOGETHER / max(1, len({chunks[id].document for id in held})))


def _texts(chunk: Chunk) -> tuple[str, ...]:
    return (chunk.text, chunk.title, *chunk.headings, *chunk.merged)


def shares_of(
    query: Query, tools: Tools, chunks: Sequence[str]
) -> dict[str, Mapping[str, TermCoverage]]:
    """Of the question's words in each spelling; where nobody has any, of words that mean nearly the same.

    A passage with such a word has the question's as far as the two are near. Of single words that stood
    nowhere but whose nearest word did, one in seven was answered right, and their scores said nine in ten.
    """
    own = {text: _shares(text, tools, chunks) for text in query.spellings}
    if any(own.values()) or not query.expanded_with:
        return own
    near = (
        {
            id: TermCoverage(near * share.anywhere, near * share.title)
            for id, share in shares.items()
        }
        for term, near in query.expanded_with.items()
        for shares in (_shares(term, tools, chunks),)
    )
    return {query.text: in_any_spelling(near)}


def in_any_spelling(spelled: Iterable[Mapping[str, TermCoverage]]) -> Mapping[str, TermCoverage]:
    """In whichever spelling a passage has most."""
    found: Mapping[str, TermCoverage] = {}
    for each in spelled:
        found = _larger(found, each) if found else each
    return found


def _larger(
    one: Mapping[str, TermCoverage], two: Mapping[str, TermCoverage]
) -> dict[str, TermCoverage]:
    both = one.keys() | two.keys()
    return {id: TermCoverage(*map(max, one.get(id, NOTHING), two.get(id, NOTHING))) for id in both}


def _shares(text: str, tools: Tools, chunks: Sequence[str]) -> Mapping[str, TermCoverage]:
    """A passage that has a name as it is written, be it in other letters, need not have its parts."""
    whole, parted = analyze(text), query_terms(text)
    shares = tools.snapshot.lexical.term_coverage(parted, chunks)
    if not whole or len(whole) == len(parted):
        return shares
    named = tools.snapshot.lexical.term_coverage(whole, chunks)
    return _larger(shares, named)
