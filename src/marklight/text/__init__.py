"""Words, identifiers and digests: pure functions that documents, queries and all engines share."""

from marklight.text.code import identifiers, parts
from marklight.text.digests import bounded_key, digest
from marklight.text.forms import beginnings
from marklight.text.globs import demand_tame, matches_glob, too_wild
from marklight.text.markup import plain
from marklight.text.passages import passage, passage_of
from marklight.text.phrases import admits, is_phrase, phrase_words, together
from marklight.text.prose import STOP_WORDS, flat, fold, has_cjk, words
from marklight.text.questions import query_words, subject
from marklight.text.terms import terms, terms_recipe

__all__ = [
    "STOP_WORDS",
    "admits",
    "beginnings",
    "bounded_key",
    "demand_tame",
    "digest",
    "flat",
    "fold",
    "has_cjk",
    "identifiers",
    "is_phrase",
    "matches_glob",
    "parts",
    "passage",
    "passage_of",
    "phrase_words",
    "plain",
    "query_words",
    "subject",
    "terms",
    "terms_recipe",
    "together",
    "too_wild",
    "words",
]
