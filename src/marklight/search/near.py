"""Names that somebody may have meant: those that differ from what was written by a slip, not by half."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from difflib import SequenceMatcher, get_close_matches
from pathlib import PurePosixPath

_WORD = re.compile(r"[^\W_]+")
MOST = 3
"""Names that are offered."""
LIKE = 0.75
"""Of their characters that two names share: `auht` and `auth`, `deploy` and `deployment`; not `nonsense` and `license`."""


def near_paths(written: str, paths: Iterable[str]) -> list[str]:
    """Files whose own name is like the one written, whatever folder they are in, the likest first.

    Folders and endings are what all paths of a library share, so they make none like another. They decide
    only where so many files have the name that it tells nothing, as `index.md` does.
    """
    named: dict[str, list[str]] = {}
    for path in paths:
        named.setdefault(_own_name(path), []).append(path)
    found = {
        path.casefold(): path for name in _like(_own_name(written), named) for path in named[name]
    }
    if len(found) > MOST:
        # Most of thousands are told to be unlike by their letters alone, a thirtieth of the time.
        return [found[path] for path in _like(written.casefold(), found)]
    return sorted(found.values(), key=lambda path: -_share(written, path))


def paths_with(written: str, paths: Iterable[str]) -> list[str]:
    """Files whose own name has all the words written, the shortest first: `priya` and `People/Priya Raman.md`."""
    wanted = set(_WORD.findall(_own_name(written)))
    found = [path for path in paths if wanted and wanted <= set(_WORD.findall(_own_name(path)))]
    return sorted(found, key=lambda path: (len(path), path))[:MOST]


def near_keys(written: str, called: Mapping[str, str]) -> list[str]:
    """What is called like the words written, by the name of each; the likest first, each once."""
    wanted = written.strip().casefold()
    folded: dict[str, str] = {}
    for name, key in called.items():
        folded.setdefault(name.casefold(), key)
    return list(dict.fromkeys(folded[name] for name in _like(wanted, folded)))


def _like(name: str, known: Iterable[str]) -> list[str]:
    return get_close_matches(name, known, n=MOST, cutoff=LIKE)


def _own_name(path: str) -> str:
    return PurePosixPath(path.casefold()).stem


def _share(written: str, path: str) -> float:
    return SequenceMatcher(None, written.casefold(), path.casefold()).ratio()
