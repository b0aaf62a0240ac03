"""Spelling correction: split and join compounds as the library writes them, complete prefixes, suggest words for typos."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import islice, pairwise
from typing import NamedTuple

from marklight.lazy import dataclass, lazy_pattern
from marklight.lexical import term_weight
from marklight.ports import FULL_COVERAGE, Snapshot, Tools
from marklight.query import Filters, Mode, Query
from marklight.text.analyzer import (
    ENGLISH,
    MAX_QUERY_TERMS,
    MAX_TERM_LETTERS,
    analyze,
    fold,
    has_cjk,
    query_analyses,
    stop_words,
    words_of,
)
from marklight.text.languages import documents_by_language

MIN_COMPOUND, MAX_COMPOUND = 3, 30
"""Letters of a word that is split. Hand-set; not measured."""
MAX_SPLITS = 4
"""Ways to split a word that are looked up in passages. Hand-set; not measured."""
READ_PASSAGES = 20
"""Best passages with both parts that are read to see how they are written. Hand-set; not measured."""
MIN_TRANSPOSED, MIN_MISSING, MIN_ONE_EDIT, MIN_TWO_EDITS = 4, 5, 7, 8
"""Letters of a word from which on a transposition, a missing letter, any single edit and two edits are corrected.

What resembles a shorter word is mostly another word. With the queries of four other datasets, FastAPI's
documentation had a suggestion for 28 typos and for 7 other words; with any single edit from four letters
on, two of any kind from eight, and word endings, for 31 and 55.
"""
MAX_COMPARED = 500
"""Most frequent terms with the same prefix that are compared for two edits. Hand-set; not measured."""

MAX_MISSING_WORDS = 3
"""Words missing from the library for which another spelling or a suggestion is looked up. Hand-set; not measured."""
MAX_NAMED = 5
"""Absent words that a notice names. Hand-set; not measured."""
MIN_DIGITS = 3
"""Digits of a number that is reported as absent: a smaller one is a count. Hand-set; not measured."""
MIN_PREFIX = 2
"""Letters of a word that is completed. Hand-set; not measured."""
MIN_FREQUENCY_RATIO = 3
"""A word that occurs is completed only to one that occurs in so many times more documents. With 1, complete queries of
one of eight development sets lose .008 of nDCG@10 while they are typed (keyword search, 60 queries each); with 3 none does.
Queries with half of their last word: .776 with 1, .779 with 3, .776 with 10, on the four sets it was chosen on."""
_LAST_WORD = lazy_pattern(r"(?<![\w.@-])[^\W\d_]+$")

_WORD = lazy_pattern(r"[^\W_]+(?:['’][^\W_]+)*")
_IDENTIFIER = lazy_pattern(r"[^\W_]+(?:_+[^\W_]+)+")
_LITERAL = lazy_pattern(
    r"(?<![\w.@/:-])(?:(?=\S*\w\w)\w+(?:[/:-]+\w+)*(?:[.@]\w+(?:[/:-]+\w+)*)+|[^\W\d_]+(?:-\w+)*-\w*\d\w*)"
)
"""A host name, file name, address, version, or a code such as ERR-4471; no abbreviation such as `e.g.`."""
_PART = lazy_pattern(r"[^\W_]+")
_LETTERS = "abcdefghijklmnopqrstuvwxyz"
_HYPHENS = r"-‐‑_./'’"
"""Characters between the parts of a compound: `Wi-Fi`, `Node.js`, `TCP/IP`, `drop_down`, `za'atar`."""
_WITH_APOSTROPHE = lazy_pattern(r"(?<!\w)[^\W\d_]{2,}['’][^\W\d_]{3,}(?!\w)")
"""A name such as `za'atar`; in `don't`, `Ada's` and `l'eau` an apostrophe is at either end."""


@dataclass(frozen=True, slots=True)
class Spelling:
    """Also search for other spellings: `wifi` finds `Wi-Fi`, `e-mail` finds `email`. Suggest a correction for typos such as `kuberntes`.

    Spellings are added only for words that the library does not contain as typed; the query is still searched as typed.
    A single word that no passage contains is completed or corrected: `kuber` and `kuberntes` find Kubernetes. In a longer
    query the correction is suggested: of 180 queries about other topics, two more had results if it was searched. While somebody types (`--prefix`), the last
    word is also searched as the beginning of a word that occurs in far more documents than it does.
    A notice names the other words and identifiers that the library does not contain.
    """

    def __call__(self, query: Query, tools: Tools) -> Query:
        if query.mode not in (Mode.HYBRID, Mode.KEYWORD):
            return query
        query = _with_completion(query, tools)
        documents = (ENGLISH, *tools.snapshot.metadata.languages())
        if query.languages[0] not in documents:
            return query  # words of another language are no misspellings of those of the library
        typed = _query_words(query.text)
        compounds = [*_join_compounds(query.text, typed), *_without_apostrophes(query.text)]
        identifiers = _matches(_IDENTIFIER, query.text)
        words = (word.folded for word in (*typed, *compounds, *identifiers))
        indexed = _in_index(words, tools.snapshot, query.languages)
        corrections = {
            compound: compound.folded
            for compound in _non_overlapping(word for word in compounds if word.folded in indexed)
            if not _occurs_as_typed(compound, tools.snapshot)
        }
        unknown = (word for word in (*identifiers, *typed) if word.folded not in indexed)
        missing = _non_overlapping([*corrections, *unknown])[len(corrections) :]
        absent = [word for word in missing if word in identifiers]
        for word in [word for word in missing if word not in identifiers][:MAX_MISSING_WORDS]:
            spelling = _other_spelling(word, query, tools)
            if spelling:
                corrections[word] = spelling
            elif spelling is None:
                absent.append(word)
        is_invented = query.text == query.hypothesis  # its words are no search terms
        if not is_invented and _is_in_language_of_documents(query, tools.snapshot):
            absent = _absent(absent, corrections, query, tools)
            _report_absent(absent, tools)
            share = _idf_share(absent, typed, tools.snapshot)
            query = replace(query, absent_share=share) if share else query
        return _with_corrections(query, corrections)


def _is_in_language_of_documents(query: Query, snapshot: Snapshot) -> bool:
    """Return true if any document is in the language of a query; else hardly any of its words occurs."""
    total = snapshot.status.counts("").documents
    return query.languages[0] in documents_by_language(snapshot.metadata.languages(), total)


def _other_spelling(word: QueryWord, query: Query, tools: Tools) -> str | None:
    """Return the spelling to search for in place of a word, empty if it is only suggested, or None if there is none."""
    if split := split_compound(word.folded, tools.snapshot):
        return split
    if not word.is_plain:
        return None
    suggestion = suggest(word.folded, tools.snapshot, query.languages)
    if not suggestion:
        return None
    absent = f'No passage contains "{word.text}"'
    if len(query.text.split()) == 1:  # like a word that is completed
        tools.notify(f'{absent}. Searching for "{suggestion}"')
        return suggestion
    tools.notify(f'{absent}. Did you mean "{suggestion}"?')
    return ""


def _absent(
    words: Sequence[QueryWord], corrected: Iterable[QueryWord], query: Query, tools: Tools
) -> list[QueryWord]:
    """Return the words that no document contains, and the host names, files, versions and codes."""
    terms = [word for word in words if _is_term(word, query)]
    known = [*corrected]
    literals = [
        word
        for word in _non_overlapping([*known, *_matches(_LITERAL, query.text)])[len(known) :]
        if _is_term(word, query) and not _occurs(word, tools.snapshot)
    ]
    return _non_overlapping([*literals, *_in_no_document(terms, tools.snapshot)])


def _report_absent(absent: Sequence[QueryWord], tools: Tools) -> None:
    """Add a notice with the words that no document contains."""
    quoted = [f'"{word.text}"' for word in sorted(absent)]
    if len(quoted) > MAX_NAMED:
        quoted[MAX_NAMED:] = [f"{len(quoted) - MAX_NAMED} other words"]
    if quoted:
        *first, last = quoted
        listed = f"{', '.join(first)} or {last}" if first else last
        tools.notify(f"No document contains {listed}")


def _idf_share(
    absent: Sequence[QueryWord], words: Sequence[QueryWord], snapshot: Snapshot
) -> float:
    """Return the share of the idf of a query that its absent words have."""
    if not absent:
        return 0.0
    content = (word for word in words if word.folded not in stop_words())
    others = _non_overlapping([*absent, *content])[len(absent) :]
    frequencies = snapshot.vocabulary.document_frequencies([word.folded for word in others])
    documents = snapshot.status.counts("").documents
    missing = len(absent) * term_weight(documents, 0)
    found = sum(term_weight(documents, frequencies.get(word.folded, 0)) for word in others)
    return missing / (missing + found)


def _is_term(word: QueryWord, query: Query) -> bool:
    """Exclude single letters, small numbers, parts of a date that documents have, and a word that somebody is typing."""
    has_digits = word.folded[-1].isdigit()
    if query.prefix and word.end == len(query.text):
        return False
    if has_digits and query.dated_reading:
        return False
    return len(word.folded) >= (MIN_DIGITS if word.folded.isdigit() else MIN_PREFIX)


def _in_no_document(words: Sequence[QueryWord], snapshot: Snapshot) -> list[QueryWord]:
    """Drop the words that occur in a path, or in text of a document that is in no passage."""
    if not words:
        return []
    in_text = snapshot.vocabulary.document_frequencies([word.folded for word in words])
    in_paths = snapshot.documents.words_of_paths()
    return [word for word in words if word.folded not in in_text and word.folded not in in_paths]


def _occurs(literal: QueryWord, snapshot: Snapshot) -> bool:
    """Return true if a passage has a literal as it is typed, or paths have its parts."""
    phrase = Filters(phrases=(literal.text,))
    if snapshot.metadata.matching_documents(phrase, 1):
        return True
    return words_of([literal.text]) <= snapshot.documents.words_of_paths()


class QueryWord(NamedTuple):
    """A word of a query, or adjacent words read as one compound."""

    start: int
    end: int
    text: str
    folded: str
    hyphenated: bool = True
    """False if its parts are separated by a space."""

    @property
    def is_plain(self) -> bool:
        """Return true for a single word of letters: no number, no identifier such as `getUser`."""
        return self.folded.isalpha() and (self.text[1:].islower() or self.text.isupper())


def _with_corrections(query: Query, corrections: dict[QueryWord, str]) -> Query:
    if not corrections:
        return query
    text = query.text
    for word in sorted(corrections, reverse=True):  # from the end, so that offsets stay valid
        text = text[: word.start] + corrections[word] + text[word.end :]
    return replace(
        query,
        other_spellings=(text, *query.other_spellings),
        added_words=(*corrections.values(), *query.added_words),
    )


def _with_completion(query: Query, tools: Tools) -> Query:
    """Complete the last word if somebody is typing it, or if it is the only word and no passage contains it.

    A word without passages is replaced by its most likely completion: the most frequent one (most popular completion,
    Bar-Yossef and Kraus, WWW 2011).
    """
    text = query.text.rstrip() if not query.prefix else query.text
    is_single = len(text.split()) == 1
    if not (query.prefix or is_single) or not text or text[-1].isspace():
        return query
    match = _LAST_WORD.search(text)
    word = fold(match[0]) if match else ""
    is_indexed = bool(word) and word in _in_index([word], tools.snapshot, query.languages)
    if not query.prefix and (is_indexed or split_compound(word, tools.snapshot)):
        return query
    completion = complete(word, tools.snapshot, query.languages) if len(word) >= MIN_PREFIX else ""
    if not match or not completion:
        is_unknown = is_single and not _in_index([fold(text)], tools.snapshot, query.languages)
        return replace(query, text=text, typed_text=text if is_unknown else "")
    completed = text[: match.start()] + completion
    query = replace(query, typed_text=text, added_words=(completion,))
    if is_indexed:
        return replace(query, text=text, other_spellings=(completed,))
    if not query.prefix:
        tools.notify(f'No passage contains "{match[0]}". Searching for "{completion}"')
    return replace(query, text=completed, raw_text=query.raw_text or query.text)


def complete(word: str, snapshot: Snapshot, languages: Sequence[str] = (ENGLISH,)) -> str:
    """Return the word of the library that begins with a word and occurs in the most documents, far more than it does.

    Inflections of one word are counted together. With half of the last word, nDCG@10 of keyword search on four
    development sets is .659 with one completion, .647 with 3 and .640 with 6.
    """
    if has_cjk(word):
        return ""
    frequency = snapshot.vocabulary.document_frequencies([word]).get(word, 0)
    longer = snapshot.vocabulary.terms_with_prefix(
        word, len(word) + 1, MAX_TERM_LETTERS, MAX_COMPARED
    )
    counts: dict[tuple[str, ...], int] = {}
    words: dict[tuple[str, ...], str] = {}
    for term, count in longer.items():
        stems = tuple(analyze(term))
        counts[stems] = counts.get(stems, 0) + count
        words.setdefault(stems, term)
    stem = tuple(analyze(word))
    likely = (
        stems
        for stems in counts
        if stems not in ((), stem) and counts[stems] > MIN_FREQUENCY_RATIO * frequency
    )
    best = sorted(likely, key=lambda stems: (-counts[stems], words[stems]))
    # Terms are counted in whole documents, and some of their text may be in no passage.
    chosen = [words[stems] for stems in best[:2]]
    indexed = _in_index(chosen, snapshot, languages)
    return next((term for term in chosen if term in indexed), "")


def _query_words(text: str) -> list[QueryWord]:
    """Return the words of a query, without those with an apostrophe."""
    return [word for word in _matches(_WORD, text) if word.folded.isalnum()]


def _matches(pattern: re.Pattern[str], text: str) -> list[QueryWord]:
    """Return the matches of a pattern in a query, without those with CJK characters."""
    matches = islice(pattern.finditer(text), MAX_QUERY_TERMS)
    words = (QueryWord(match.start(), match.end(), match[0], fold(match[0])) for match in matches)
    return [word for word in words if not has_cjk(word.folded)]


def _join_compounds(text: str, words: Sequence[QueryWord]) -> list[QueryWord]:
    """Join three or two words with hyphens between them, or two with a space, into one word each."""
    compounds = []
    for count in (3, 2):
        for parts in zip(*(words[at:] for at in range(count)), strict=False):
            gaps = [text[left.end : right.start] for left, right in pairwise(parts)]
            hyphenated = all(len(gap) == 1 and gap in _HYPHENS for gap in gaps)
            spaced = gaps == [" "] and all(map(_may_be_part, parts))
            folded = "".join(part.folded for part in parts)
            if (
                (hyphenated or spaced)
                and analyze(folded)
                and not any(
                    _splits_number(left.folded, right.folded) for left, right in pairwise(parts)
                )
            ):
                start, end = parts[0].start, parts[-1].end
                compounds.append(QueryWord(start, end, text[start:end], folded, hyphenated))
    return compounds


def _without_apostrophes(text: str) -> list[QueryWord]:
    """Return names with an apostrophe as one word each: `zaatar` for `za'atar`."""
    return [
        QueryWord(match.start(), match.end(), match[0], fold(re.sub("['’]", "", match[0])))
        for match in islice(_WITH_APOSTROPHE.finditer(text), MAX_QUERY_TERMS)
    ]


def _may_be_part(word: QueryWord) -> bool:
    """Exclude stop words and single letters: `index of` is not `indexof`, nor `take n` `taken`."""
    return len(word.folded) > 1 and word.folded not in stop_words()


def _splits_number(left: str, right: str) -> bool:
    """Return true between two digits: `1.20` is another number than `120`."""
    return left[-1].isdigit() and right[0].isdigit()


def _non_overlapping(words: Iterable[QueryWord]) -> list[QueryWord]:
    """Drop words that overlap an earlier one."""
    kept: list[QueryWord] = []
    for word in words:
        if all(word.end <= other.start or other.end <= word.start for other in kept):
            kept.append(word)
    return kept


def _in_index(
    words: Iterable[str], snapshot: Snapshot, languages: Sequence[str] = (ENGLISH,)
) -> set[str]:
    """Return the words whose terms, by the rules of any of the languages, all occur in the index; stop words always do."""
    terms = {
        word: [set(analysis) for analysis in query_analyses(word, languages)] for word in words
    }
    every = set[str]().union(*(own for analyses in terms.values() for own in analyses))
    indexed = snapshot.lexical.existing_terms(list(every))
    return {word for word, analyses in terms.items() if any(own <= indexed for own in analyses)}


def _occurs_as_typed(compound: QueryWord, snapshot: Snapshot) -> bool:
    """Return true if the library writes a compound as typed; with a space, if one passage has both words.

    Otherwise `fine-tuning` would be searched for as `finetuning` too, which some documents write: on
    Anthropic's documentation that lost .003 of nDCG@10.
    """
    if compound.hyphenated:
        left, right, *_ = _PART.findall(fold(compound.text))
        return bool(_find_adjacent(left, right, snapshot))
    terms = analyze(compound.text)
    best = [
        hit.chunk_id
        for hit in snapshot.lexical.search(terms, {"whole": 1.0}, Filters(), READ_PASSAGES)
    ]
    coverages = snapshot.lexical.term_coverage(terms, best).values()
    return any(coverage.anywhere > FULL_COVERAGE for coverage in coverages)


def split_compound(word: str, snapshot: Snapshot) -> str:
    """Return a word as the library writes it in two parts; empty if it does not."""
    if not MIN_COMPOUND <= len(word) <= MAX_COMPOUND:
        return ""
    splits = [
        (word[:at], word[at:])
        for at in range(1, len(word))
        if not _splits_number(word[:at], word[at:])
    ]
    indexed = _in_index((part for split in splits for part in split), snapshot)
    likely = sorted(
        (split for split in splits if indexed.issuperset(split)),
        key=lambda split: -min(map(len, split)),
    )
    adjacent = (_find_adjacent(left, right, snapshot) for left, right in likely[:MAX_SPLITS])
    return next(filter(None, adjacent), "")


def _find_adjacent(left: str, right: str, snapshot: Snapshot) -> str:
    """Return two words as the best passages write them with one character between, the second in any inflection.

    A stop word is part of a compound only with a hyphen: `sign-in`, but not `a part`.
    """
    terms = [*analyze(left), *analyze(right)]
    if not terms:
        return ""
    space = "" if stop_words().intersection((left, right)) else r"\s"
    pattern = re.compile(rf"(?<![^\W_]){re.escape(left)}[{_HYPHENS}{space}]([^\W_]+)")
    best = snapshot.lexical.search(terms, {"whole": 1.0}, Filters(), READ_PASSAGES)
    for chunk in snapshot.documents.chunks([hit.chunk_id for hit in best]):
        text = "\n\n".join((chunk.title, *chunk.headings, *chunk.merged, chunk.text))
        for match in pattern.finditer(fold(text)):
            if analyze(match[1]) == analyze(right) and (analyze(right) or match[1] == right):
                return " ".join(match[0].split())
    return ""


def suggest(word: str, snapshot: Snapshot, languages: Sequence[str] = (ENGLISH,)) -> str:
    """Return the most frequent indexed word within one edit of a typo, or two if it is long; empty if there is none.

    Edits are generated and looked up, as comparing with all words of a library (up to 200,000) is slow.
    """
    edits = one_edit(word)
    if edits & stop_words():
        return ""
    counts = snapshot.vocabulary.document_frequencies(sorted(_not_inflections(word, edits)))
    if not counts and len(word) >= MIN_TWO_EDITS:
        # Of two edits seldom one is in the first third of a word, so that is the prefix.
        similar = snapshot.vocabulary.terms_with_prefix(
            word[: len(word) // 3], len(word) - 2, len(word) + 2, MAX_COMPARED
        )
        counts = {
            term: similar[term]
            for term in _not_inflections(word, similar)
            if _is_subsequence(word, term)
        }
    # Terms are counted in whole documents, and some of their text may be in no passage.
    indexed = _in_index(counts, snapshot, languages)
    return min(indexed, key=lambda term: (-counts[term], term), default="")


def one_edit(word: str) -> set[str]:
    """Return all strings one transposition away and, for longer words, one insertion, substitution or deletion.

    Except in a transposition the first letter is kept: what differs there is mostly another word.
    """
    halves = [(word[:at], word[at:]) for at in range(len(word))]
    edits: set[str] = set()
    if len(word) >= MIN_TRANSPOSED:
        edits |= {
            left + right[1] + right[0] + right[2:] for left, right in halves if len(right) > 1
        }
    if len(word) >= MIN_MISSING:
        edits |= {left + letter + right for left, right in halves[1:] for letter in _LETTERS}
    if len(word) >= MIN_ONE_EDIT:
        edits |= {left + letter + right[1:] for left, right in halves[1:] for letter in _LETTERS}
        edits |= {left + right[1:] for left, right in halves[1:]}
    return edits - {word}


def _not_inflections(word: str, terms: Iterable[str]) -> list[str]:
    """Drop terms that differ by a suffix only: `parse` and `parser` are both right."""
    return [term for term in terms if not term.startswith(word) and not word.startswith(term)]


def _is_subsequence(word: str, other: str) -> bool:
    """Return true if one is the other with extra letters and no wrong one: `authentification`."""
    short, long = sorted((word, other), key=len)
    remaining = iter(long)
    return all(letter in remaining for letter in short)
