"""Suggestions ("did you mean"): find the names most similar to one that does not exist, by matching characters (difflib)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from difflib import SequenceMatcher, get_close_matches
from itertools import takewhile
from pathlib import PurePosixPath

MAX_SUGGESTIONS = 3
"""Names that are suggested. Hand-set; not measured."""
MIN_SIMILARITY = 0.75
"""Share of matching characters: `auht` and `auth`, `deploy` and `deployment`, but not `nonsense` and
`license`. Hand-set by such examples."""
MAX_COMPARED = 20_000
"""Names that one is compared with, which takes some tenths of a second."""

_WORD = re.compile(r"[^\W_]+")


def paths_with_same_end(path: str, paths: Iterable[str]) -> list[str]:
    """Return the paths that share most names at their end with a path, the shortest first; at least the file name.

    `docs/guide/auth` gives `guide/auth.md`: case and the extension of the file do not count.
    """
    wanted = _names_from_end(path)
    shared = {
        other: sum(
            1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(wanted, names, strict=False))
        )
        for other in paths
        if (names := _names_from_end(other))[0] == wanted[0]
    }
    most = max(shared.values(), default=0)
    best = (other for other, count in shared.items() if count == most)
    return sorted(best, key=lambda other: (len(other), other))[:MAX_SUGGESTIONS]


def _names_from_end(path: str) -> list[str]:
    return [_file_name(path), *reversed(path.casefold().strip("/").split("/")[:-1])]


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
        # It rejects most of thousands by their letters alone, in a thirtieth of the time.
        return [similar[other] for other in _close_matches(path.casefold(), similar)]
    name = path.casefold()
    ordered = sorted(similar, key=lambda other: -SequenceMatcher(None, name, other).ratio())
    return [similar[other] for other in ordered]


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
