"""Text functions shared by documents, queries and all engines: analyzer, phrases, markup, globs, digests."""

from marklight.text.analyzer import (
    analyze,
    base_form,
    code_terms,
    fold,
    has_cjk,
    identifier_parts,
    navigational_words,
    normalize,
    query_terms,
    stop_words,
    surface_prefixes,
    trim_stop_words,
    vocabulary_fingerprint,
    vocabulary_terms,
)
from marklight.text.digests import bounded_key, digest
from marklight.text.globs import has_too_many_wildcards, matches_glob, validate_glob
from marklight.text.markdown import chunk_embedding_text, embedding_text, strip_markup
from marklight.text.phrases import contains_sequence, has_words, matches_phrases, phrase_terms
from marklight.text.sentences import sentence_ends, split_sentences, truncate_at_sentence

__all__ = [
    "analyze",
    "base_form",
    "bounded_key",
    "chunk_embedding_text",
    "code_terms",
    "contains_sequence",
    "digest",
    "embedding_text",
    "fold",
    "has_cjk",
    "has_too_many_wildcards",
    "has_words",
    "identifier_parts",
    "matches_glob",
    "matches_phrases",
    "navigational_words",
    "normalize",
    "phrase_terms",
    "query_terms",
    "sentence_ends",
    "split_sentences",
    "stop_words",
    "strip_markup",
    "surface_prefixes",
    "trim_stop_words",
    "truncate_at_sentence",
    "validate_glob",
    "vocabulary_fingerprint",
    "vocabulary_terms",
]
