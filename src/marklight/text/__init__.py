"""Text functions shared by documents, queries and all engines: analyzer, phrases, markup, digests.

Globs, markup, line index, sentences and suggestions are imported from their modules, as few searches need them.
"""

from marklight.model import bounded_key, digest
from marklight.text.analyzer import (
    ENGLISH,
    MAX_QUERY_TERMS,
    STEMMERS,
    analyze,
    base_form,
    code_terms,
    contains_sequence,
    fold,
    has_cjk,
    has_words,
    identifier_parts,
    matches_phrases,
    normalize,
    phrase_terms,
    query_analyses,
    query_terms,
    stop_words,
    surface_prefixes,
    title_key,
    trim_stop_words,
    vocabulary_fingerprint,
    vocabulary_terms,
)

__all__ = [
    "ENGLISH",
    "MAX_QUERY_TERMS",
    "STEMMERS",
    "analyze",
    "base_form",
    "bounded_key",
    "code_terms",
    "contains_sequence",
    "digest",
    "fold",
    "has_cjk",
    "has_words",
    "identifier_parts",
    "matches_phrases",
    "normalize",
    "phrase_terms",
    "query_analyses",
    "query_terms",
    "stop_words",
    "surface_prefixes",
    "title_key",
    "trim_stop_words",
    "vocabulary_fingerprint",
    "vocabulary_terms",
]
