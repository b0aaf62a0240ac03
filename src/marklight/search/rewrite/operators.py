"""Take filters out of the question: phrases in quotes, -without, tag:x, path:docs/**, after:2026-01."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any

from marklight.answer import Filters, Query
from marklight.dates import demand_moment, moment_bounds
from marklight.errors import UsageError
from marklight.ports import Tools
from marklight.text import has_cjk, has_words, query_terms, validate_glob

_QUOTED = r'(?:"[^"“”\n]{1,300}"|“[^"“”\n]{1,300}”)'
_WORD = re.compile(
    rf"(?<!\S)(?:(?P<phrase>{_QUOTED})|-(?P<without>{_QUOTED}|[^\W\d_][\w'’-]*)"
    rf"|(?P<key>[^\W\d_][\w.-]*):(?P<value>{_QUOTED}|[^\s\"“”]+))(?=[,.;:!?)]*(?:\s|$))"
)
"""What may mean a filter: alone between blanks, with at most the end of a sentence after it."""
_QUOTES = '"“”'
_LEAST_LETTERS = 3
"""Of a word to leave out: `-f` and `-rf` are options of some command."""
_FIELDS = {
    "tag": "tags",
    "path": "paths",
    "collection": "collections",
    "lang": "languages",
    "language": "languages",
}
MOST = 50
"""A text with more of what looks like filters was pasted; each would be tried on every document."""
_PLACES = ("path", "collection", "after", "before")
"""Keys whose values say where and when, never what is looked for."""


@dataclass(frozen=True, slots=True)
class Operators:
    """Everything that is not such a word is plain text, whatever signs it holds."""

    def __call__(self, query: Query, tools: Tools) -> Query:
        if sum(1 for _ in islice(_WORD.finditer(query.text), MOST + 1)) > MOST:
            tools.notify(
                f"more than {MOST} words of the question look like filters; all are taken as text"
            )
            return query
        found = _Found(tools)
        # Each word that is taken out leaves a blank; a phrase leaves its words.
        text = _WORD.sub(found.take, query.text)
        if found.absent and query_terms(_WORD.sub(" ", query.text)):
            # Among other words a message may be quoted that the documents write in another way.
            for phrase in found.absent:
                tools.notify(f'no passage contains "{phrase}"; its words are searched for instead')
        else:
            for phrase in found.absent:
                found.add("phrases", phrase)
        if found.filters == Filters():
            return query
        if found.filters.without and tools.snapshot.documents.find_by_title(
            query.text, query.filters, 1
        ):
            return query  # something is called so, with a dash before a word
        if not query_terms(text):
            text = " ".join(found.values)
        if not query_terms(text):
            if not found.placed:
                return query  # nothing but words to leave out, or values without words
            raise UsageError(
                f"{query.text.strip()!r} says where to look, but not what for", "Add words to it"
            )
        if found.filters.without:
            tools.notify(_left_out(found.filters.without))
        return replace(
            query,
            text=" ".join(text.split()),
            raw_text=query.raw_text or query.text,
            filters=_combined(query.filters, found.filters),
        )


@dataclass(slots=True)
class _Found:
    """The filters of a question, as one word after the other is taken out of it."""

    tools: Tools
    filters: Filters = field(default_factory=Filters)
    values: list[str] = field(default_factory=list)
    """What is looked for where nothing else is left."""
    placed: bool = False
    absent: list[str] = field(default_factory=list)
    """Phrases that stand nowhere in the library."""

    def take(self, word: re.Match[str]) -> str:
        """The text that takes its place: itself, where it is no filter."""
        if phrase := word["phrase"]:
            return self._phrase(phrase.strip(_QUOTES)) or phrase
        if without := word["without"]:
            return self._without(without) or word[0]
        key, value = word["key"].lower(), word["value"].rstrip(",;").strip(_QUOTES).strip()
        return " " if self._pair(key, value) else word[0]

    def _phrase(self, phrase: str) -> str:
        if not has_words(phrase):
            return ""
        if self.tools.snapshot.metadata.matching_documents(Filters(phrases=(phrase.strip(),)), 1):
            self.add("phrases", phrase.strip())
        else:
            self.absent.append(phrase.strip())
        return phrase

    def _without(self, given: str) -> str:
        phrase = given.strip(_QUOTES).strip()
        letters = sum(sign.isalpha() for sign in phrase)
        if not has_words(phrase) or (letters < _LEAST_LETTERS and not has_cjk(phrase)):
            return ""
        self.add("without", phrase)
        return " "

    def _pair(self, key: str, value: str) -> bool:
        """Whether it was a filter; what only looks like one, `std::vector` or `http://x`, is none."""
        if not value.strip("#") or value.startswith((":", "//")):
            return False
        if key in ("after", "before"):
            if not value[0].isdigit():
                return False
            day = demand_moment(value)
            more = Filters(after=day) if key == "after" else Filters(before=day)
            self.filters = _combined(self.filters, more)
        elif key in _FIELDS:
            self.add(_FIELDS[key], self._checked(key, value))
        elif key in ("author", "category") or self.tools.snapshot.metadata.has_key(key):
            self.add("where", (key, value))
        else:
            return False
        if key in _PLACES:
            self.placed = True
        else:
            self.values.append(value)
        return True

    def _checked(self, key: str, value: str) -> str:
        if key == "path":
            return validate_glob(value)
        if key == "tag":
            return value.removeprefix("#")
        listed = self.tools.snapshot.metadata.matching_documents
        if key == "collection" and not listed(Filters(collections=(value,)), 1):
            raise UsageError(
                f"no document is in a collection called {value!r}",
                "`marklight status` names the collections",
            )
        return value

    def add(self, name: str, value: object) -> None:
        both = (*getattr(self.filters, name), value)
        more: dict[str, Any] = {name: tuple(dict.fromkeys(both))}
        self.filters = replace(self.filters, **more)


def _combined(given: Filters, found: Filters) -> Filters:
    """Both together: of dates the narrower, of collections those that both name.

    A question never reaches what its caller has kept from it: of paths and tags both must pass.
    """
    apart = Filters(paths=found.paths if given.paths else (), tags=found.tags if given.tags else ())
    if apart:
        given = replace(given, also=apart)
        found = replace(
            found, paths=() if given.paths else found.paths, tags=() if given.tags else found.tags
        )
    if given.collections and found.collections:
        shared = tuple(each for each in found.collections if each in given.collections)
        if not shared:
            raise UsageError(
                f"collection:{found.collections[0]} is outside of {', '.join(given.collections)},"
                " which the search is limited to"
            )
        found = replace(found, collections=shared)
        given = replace(given, collections=())
    several: dict[str, Any] = {
        name: tuple(dict.fromkeys((*getattr(given, name), *getattr(found, name))))
        for name in ("collections", "paths", "tags", "where", "languages", "phrases", "without")
    }
    after = [each for each in (given.after, found.after) if each]
    before = [each for each in (given.before, found.before) if each]
    return replace(
        given,
        **several,
        after=max(after, key=lambda each: moment_bounds(each)[0], default=None),
        before=min(before, key=lambda each: moment_bounds(each)[1], default=None),
    )


def _left_out(without: tuple[str, ...]) -> str:
    named = ", ".join(f'"{each}"' for each in without)
    typed = " ".join(f'-"{each}"' if " " in each else f"-{each}" for each in without)
    them = "it" if len(without) == 1 else "them"
    return (
        f"left out passages with {named} ({typed}); write {them} without the dash to search for"
        f" {them}"
    )
