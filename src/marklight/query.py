"""Define the immutable data types of a query: filters, search mode and query."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, NamedTuple

from marklight.lazy import dataclass, lazy_pattern
from marklight.model import DocumentId, json_keys

if TYPE_CHECKING:
    from marklight.text.snippets import QueryTerms


class CollectionGlob(NamedTuple):
    """A glob for the paths of one collection."""

    collection: str
    glob: str

    def __str__(self) -> str:
        return f"{self.collection}/{self.glob.removeprefix('/')}"


PathPattern = str | CollectionGlob
"""A glob for paths of all collections, or of one."""


@dataclass(frozen=True, slots=True)
class Filters:
    """Restrict a search to some documents and passages: any value of a field may match, all fields must."""

    collections: tuple[str, ...] = ()
    paths: tuple[PathPattern, ...] = ()
    """Globs; `**` crosses folders."""
    exclude: tuple[PathPattern, ...] = ()
    """Paths or globs to leave out."""
    tags: tuple[str, ...] = ()
    """A tag includes the tags nested below it."""
    where: tuple[tuple[str, str], ...] = ()
    """Frontmatter keys and values; all must match."""
    after: str | None = None
    before: str | None = None
    """ISO dates, both inclusive; compared with the document's date, else its file time."""
    dated: tuple[tuple[str, str], ...] = ()
    """First and last days of periods, ISO dates; any date of the document, in its path or in its title may match."""
    languages: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    """Globs of files that a commit changed, case-insensitive."""
    authors: tuple[str, ...] = ()
    """Substrings of a commit author's name or address, case-insensitive."""
    within: tuple[tuple[str, str], ...] = ()
    """Pairs of a collection and a folder in it; an empty folder means the whole collection."""
    documents: tuple[DocumentId, ...] = ()
    """Search only these documents."""
    phrases: tuple[str, ...] = ()
    """Phrases that must occur in the passage, its title or its headings; all must match."""
    without: tuple[str, ...] = ()
    """Words or phrases that must not occur."""
    also: Filters | None = None
    """More filters that must match as well: those of the query text beside those of the caller."""

    def __bool__(self) -> bool:
        return self != Filters()

    def parts(self) -> list[Filters]:
        """Return these filters and those that must match as well."""
        return [self, *(self.also.parts() if self.also else ())]

    @property
    def has_phrases(self) -> bool:
        """Return True if phrases must occur, those of the query text included."""
        return bool(self.phrases) or (self.also is not None and self.also.has_phrases)

    @property
    def restrict_passages(self) -> bool:
        """Return True if one passage of a document may match and another not."""
        return any(part.phrases or part.without or part.languages for part in self.parts())

    def to_dict(self) -> dict[str, Any]:
        """Return the filters that are set, for JSON."""
        values: dict[str, Any] = {}
        for name in self.__slots__:
            value = getattr(self, name)
            if name == "where":
                value = _by_key(value)
            elif isinstance(value, Filters):
                value = value.to_dict()
            elif name in ("paths", "exclude"):
                value = list(map(str, value))
            elif isinstance(value, tuple):
                value = [list(item) if isinstance(item, tuple) else item for item in value]
            if value:
                values[name] = value
        return values


PARAMETERS = {
    "path": "paths",
    "tag": "tags",
    "where": "where",
    "after": "after",
    "before": "before",
    "exclude": "exclude",
    "collection": "collections",
}
"""Fields of filters by the parameters of operations that set them."""
OPERATORS = {
    "tag": "tags",
    "collection": "collections",
    "lang": "languages",
    "language": "languages",
}
"""Fields of filters by the operators in a query text, such as `tag:x`, that add a value to them."""
SCOPE_KEYS = ("path", "collection", "after", "before", "task")
"""Operators that restrict where and when to search; their values are never search terms."""


def _by_key(pairs: tuple[tuple[str, str], ...]) -> dict[str, str | list[str]]:
    """Return one value per key, or a list where a key has several."""
    grouped: dict[str, list[str]] = {}
    for key, value in pairs:
        grouped.setdefault(key, []).append(value)
    return {key: values if len(values) > 1 else values[0] for key, values in grouped.items()}


class Mode(StrEnum):
    """Select the retrievers of a search."""

    HYBRID = "hybrid"
    SEMANTIC = "semantic"
    KEYWORD = "keyword"
    CODE = "code"


_FACTUAL = lazy_pattern(r"[a-z][A-Z]|\w_\w|`[^`]+`|\bv\d|\b\d+\.\d+|\"[^\"]+\"")
"""Identifiers, code, versions, decimal numbers and quoted phrases."""
_NAVIGATIONAL = lazy_pattern(
    r"\b(?:section|chapter|guide|tutorial|doc|documentation)s?\b|\[\[[^\[\]\n]{1,300}\]\]",
    re.IGNORECASE,
)
"""Words by which a query names a place in the documentation, and wikilinks."""


DEFAULT_LIMIT, MAX_LIMIT = 5, 100
TOKENS_PER_RESULT = 200
"""Tokens of a passage with its unit and the lines above it, rounded: a budget of 2,000 has room for ten results."""


def result_limit(limit: int | None, max_tokens: int | None) -> int:
    """Return the maximum number of results: that of the caller, else as many as a token budget may have room for."""
    fitting = (max_tokens or 0) // TOKENS_PER_RESULT
    return limit or min(max(DEFAULT_LIMIT, fitting), MAX_LIMIT)


@json_keys("text=as_typed kind expanded_with=added_terms filters=set_filters")
@dataclass(frozen=True, slots=True)
class Query:
    """A query with its options, and what the rewriting stages derive from it."""

    text: str
    """The words to search for, without operators."""
    limit: int = DEFAULT_LIMIT
    mode: Mode = Mode.HYBRID
    filters: Filters = field(default_factory=Filters)
    prefix: bool = False
    """The last word may be unfinished: search as you type."""
    hypothesis: str = ""
    """A hypothetical answer that vector search embeds in place of the query text (HyDE)."""
    min_confidence: float | None = None
    max_tokens: int | None = None
    fills_budget: bool = False
    """The token budget decides how many results are shown, not the limit."""
    rerank: bool | None = None
    """Switch the cross-encoder on or off; None uses the settings."""
    parents: bool = False
    """Replace passages by the sections that contain them."""
    context: int = 0
    """Neighbouring passages to show on each side."""
    expand_context: bool = False
    """Show the whole section."""
    all: bool = False
    """Return duplicates as results of their own, in place of `Hit.similar`."""
    collections: tuple[str, ...] = ()
    """The names that a path filter in the text may begin with: those of the collections, where there are several."""
    current_collection: str = ""
    """The collection of the current folder, where there are several."""

    # Derived by rewriting:

    languages: tuple[str, ...] = ("en",)
    """Languages by whose rules the text is analyzed: its own first, then English."""
    raw_text: str = ""
    """The text as typed, where it contained operators such as filters or phrases, or was longer than what is searched."""
    dated_reading: Query | None = None
    """Query with the dates in its text as a condition on documents, beside the reading as words."""
    other_spellings: tuple[str, ...] = ()
    """The text as the library writes it, `connect to Wi-Fi` for `connect to wifi`, and with its last word completed."""
    added_words: tuple[str, ...] = ()
    """The words of other spellings, as corrected or completed."""
    typed_text: str = ""
    """The text as typed, without operators, where its last word is the beginning of other words or of titles."""
    absent_share: float = 0.0
    """Share of the idf of the words that is of words which no document contains; these count most."""
    expanded_with: Mapping[str, float] = field(default_factory=dict)
    """Similar terms of the vocabulary added for vector search, with their cosine similarity."""

    @property
    def as_typed(self) -> str:
        """Return the text as typed, with operators."""
        return self.raw_text or self.text

    @property
    def added_terms(self) -> tuple[str, ...]:
        """Return the terms added to the query: synonyms and spelling corrections."""
        return tuple(dict.fromkeys((*self.added_words, *self.expanded_with)))

    @property
    def set_filters(self) -> dict[str, Any]:
        """Return the filters of the search."""
        return self.filters.to_dict()

    @property
    def kind(self) -> str:
        """Return factual, navigational or exploratory, by the surface form of the text: the first that matches."""
        if self.filters.phrases or _FACTUAL.search(self.text):
            return "factual"
        return "navigational" if _NAVIGATIONAL.search(self.text) else "exploratory"

    @property
    def spellings(self) -> tuple[str, ...]:
        """Return the text and, where they differ, as corrected and with its last word completed."""
        return tuple(dict.fromkeys((self.text, *self.other_spellings)))

    @property
    def terms(self) -> QueryTerms:
        """Return the terms of all spellings, by which the part of a passage is chosen that is shown."""
        from marklight.text.analyzer import query_terms
        from marklight.text.snippets import QueryTerms

        terms = frozenset(query_terms(*self.spellings, languages=self.languages))
        return QueryTerms(terms, self.languages, self.filters.has_phrases)

    @property
    def title_candidates(self) -> tuple[str, ...]:
        """Return the texts that may be a title: the text, its correction and the raw text."""
        return tuple(dict.fromkeys((*self.spellings, self.raw_text or self.text)))
