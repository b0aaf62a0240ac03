"""Suggestions ("did you mean"): find the names most similar to one that does not exist, by matching characters (difflib)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from difflib import SequenceMatcher, get_close_matches
from pathlib import PurePosixPath

MAX_SUGGESTIONS = 3
"""Names that are suggested. Hand-set; not measured."""
MIN_SIMILARITY = 0.75
"""Share of matching characters: `auht` and `auth`, `deploy` and `deployment`, but not `nonsense` and
`license`. Hand-set by such examples."""
MAX_COMPARED = 20_000
"""Names that one is compared with, which takes some tenths of a second."""

_WORD = re.compile(r"[^\W_]+")


def similar_paths(path: str, paths: Iterable[str]) -> list[str]:
    """Return paths with a similar file name, the most similar first.

    Folders and extensions are shared by many paths and do not count. Only if too many files have the
    name, such as `index.md`, whole paths are compared.
    """
    by_name: dict[str, list[str]] = {}
    for other in paths:
        by_name.setdefault(_file_name(other), []).append(other)
    similar = {
        other.casefold(): other
        for name in _close_matches(_file_name(path), by_name)
        for other in by_name[name]
    }
    if len(similar) > MAX_SUGGESTIONS:
        # It rejects most of thousands by their letters alone, in a thirtieth of the time of `_similarity`.
        return [similar[other] for other in _close_matches(path.casefold(), similar)]
    return sorted(similar.values(), key=lambda other: -_similarity(path, other))


def paths_with_words(name: str, paths: Iterable[str]) -> list[str]:
    """Return paths whose file name has all words of a name, the shortest first: `priya` gives `People/Priya Raman.md`."""
    words = set(_WORD.findall(_file_name(name)))
    matching = [path for path in paths if words and words <= set(_WORD.findall(_file_name(path)))]
    return sorted(matching, key=lambda path: (len(path), path))[:MAX_SUGGESTIONS]


def similar_keys(name: str, keys: Mapping[str, str]) -> list[str]:
    """Return the keys with the most similar names, the most similar first; `keys` maps names to keys."""
    by_folded_name: dict[str, str] = {}
    for other, key in keys.items():
        by_folded_name.setdefault(other.casefold(), key)
    matches = _close_matches(name.strip().casefold(), by_folded_name)
    return list(dict.fromkeys(by_folded_name[other] for other in matches))


def _close_matches(name: str, names: Iterable[str]) -> list[str]:
    return get_close_matches(name, names, n=MAX_SUGGESTIONS, cutoff=MIN_SIMILARITY)


def _file_name(path: str) -> str:
    return PurePosixPath(path.casefold()).stem


def _similarity(path: str, other: str) -> float:
    return SequenceMatcher(None, path.casefold(), other.casefold()).ratio()
