"""Which files belong to the library: one walk over the collections that obeys the ignore rules."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from operator import attrgetter
from pathlib import Path

from marklight.errors import UsageError
from marklight.ingest.ignore import IGNORE_FILES
from marklight.ingest.parse import PARSERS, with_defaults
from marklight.ingest.walk import Found, Walk, inside
from marklight.model import DocumentId, Failure

_PATH = attrgetter("path")


@dataclass(frozen=True, slots=True)
class Discovery:
    """All files of the library, and what could not be looked at."""

    found: Mapping[DocumentId, Found]
    unreadable: tuple[Failure, ...] = ()
    """Of a folder the path ends in a slash."""


@dataclass(frozen=True, slots=True)
class Discover:
    """Walks the collections; the deepest one owns a file."""

    parsers: Mapping[str, str] = field(default_factory=lambda: dict(PARSERS))
    """Files that fit no pattern here are no documents."""
    include: tuple[str, ...] = ()
    """Where given, only these count; patterns as in .gitignore."""
    exclude: tuple[str, ...] = ()
    """These never count, whatever is included."""
    hidden: bool = False
    """Whether names that begin with a dot count."""
    ignore_files: tuple[str, ...] = IGNORE_FILES
    """Files with rules for their folder; where two disagree the later name has the last word."""
    follow_outside: bool = False
    """Whether symbolic links may lead out of their collection."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "parsers", with_defaults(self.parsers))

    def __call__(self, collections: Mapping[str, Path]) -> Discovery:
        """Every document of these collections, sorted; a folder that is not there may come back."""
        roots, missing = _roots(collections)
        found: dict[DocumentId, Found] = {}
        unreadable = [Failure(DocumentId(name, "/"), why) for name, why in missing.items()]
        for name in sorted(roots):
            walk = self._walk(name, roots)
            found |= {item.id: item for item in sorted(walk.files(), key=_PATH)}
            unreadable.extend(walk.unreadable)
        return Discovery(found, tuple(unreadable))

    def why_ignored(self, path: Path, collections: Mapping[str, Path]) -> str | None:
        """Why a file is left out of the library, in words; nothing if it is not."""
        roots, _ = _roots(collections)
        asked = os.path.join(os.path.realpath(path.parent), path.name)
        owners = [name for name, root in roots.items() if inside(asked, root)]
        if not owners:
            return "it is in no collection"
        name = max(owners, key=lambda owner: len(roots[owner]))
        return self._walk(name, roots).why(asked)

    def _walk(self, name: str, roots: Mapping[str, str]) -> Walk:
        return Walk(self, name, roots[name], frozenset(roots.values()) - {roots[name]})


def _roots(collections: Mapping[str, Path]) -> tuple[dict[str, str], dict[str, str]]:
    """The real folders, and why others are none; without any there is nothing to walk."""
    roots: dict[str, str] = {}
    missing: dict[str, str] = {}
    for name, path in collections.items():
        root = os.path.realpath(path)
        if not os.path.isdir(root):
            what = "is not a folder" if os.path.exists(root) else "is not there"
            missing[name] = f"{path} {what}"
            continue
        if root in roots.values():
            raise UsageError(f"collection {name!r}: another one is the same folder, {path}")
        roots[name] = root
    if missing and not roots:
        name, why = next(iter(missing.items()))
        raise UsageError(f"collection {name!r}: {why}", "Name a folder that exists")
    return roots, missing


__all__ = ["Discover", "Discovery", "Found"]
