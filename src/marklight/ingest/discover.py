"""Which files belong to the library: one walk over the collections that obeys the ignore rules."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from marklight.errors import UsageError
from marklight.ingest.ignore import IGNORE_FILES
from marklight.ingest.names import inside
from marklight.ingest.parse import PARSERS, with_defaults
from marklight.ingest.walk import Found, Walk
from marklight.model import DocumentId, Failure
from marklight.ports import PathRange

Claims = dict[str, dict[str, str]]
"""By collection: what symbolic links lead to, and which of them is followed."""

ELSEWHERE = "it is in no collection"


@dataclass(frozen=True, slots=True)
class Discovery:
    """All files of the library or of a part of it, and what could not be looked at."""

    found: Mapping[DocumentId, Found]
    unreadable: tuple[Failure, ...] = ()
    """Of a folder the path ends in a slash."""
    spans: tuple[PathRange, ...] | None = None
    """What was looked at; None is everything."""
    stopped: PathRange | None = None
    """What came next when the time was over."""
    folders: tuple[str, ...] = ()
    """That were listed."""


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

    def __call__(
        self,
        collections: Mapping[str, Path],
        spans: Sequence[PathRange] | None = None,
        until: float | None = None,
        claimed: Claims | None = None,
    ) -> Discovery:
        """Every document of these collections, sorted; a folder that is not there may come back.

        Of some spans only, one after the other. With a time limit, a `time.monotonic`, they are
        everything, from wherever the last walk stopped.
        """
        roots, missing = _roots(collections)
        claimed = {} if claimed is None else claimed
        found: dict[DocumentId, Found] = {}
        unreadable = [Failure(DocumentId(name, "/"), why) for name, why in missing.items()]
        folders: list[str] = []
        seen: list[PathRange] = []
        for run in _runs(
            spans if spans is not None else [PathRange(name) for name in sorted(roots)]
        ):
            name = run[0].collection
            if name in roots:
                if run[0].first == "":
                    claimed[name] = {}
                walk = self._walk(name, roots, claimed.setdefault(name, {}))
                whole = run == [PathRange(name)]
                found |= {item.id: item for item in walk.files(None if whole else run, until)}
                unreadable.extend(walk.unreadable)
                folders.extend(walk.folders)
                if walk.stopped is not None:
                    seen += _before(run, walk.stopped)
                    next_one = PathRange(name, walk.stopped)
                    return Discovery(
                        found, tuple(unreadable), tuple(seen), next_one, tuple(folders)
                    )
            seen += run
        covered = tuple(seen) if spans is not None and until is None else None
        return Discovery(found, tuple(unreadable), covered, None, tuple(folders))

    def why_ignored(self, path: Path, collections: Mapping[str, Path]) -> str | None:
        """Why a file is left out of the library, in words; nothing if it is not."""
        roots, _ = _roots(collections)
        asked = os.path.join(os.path.realpath(path.parent), path.name)
        owners = [name for name, root in roots.items() if inside(asked, root)]
        if not owners:
            return ELSEWHERE
        name = max(owners, key=lambda owner: len(roots[owner]))
        return self._walk(name, roots, {}).bounds.why(asked)

    def _walk(self, name: str, roots: Mapping[str, str], claimed: dict[str, str]) -> Walk:
        others = frozenset(roots.values()) - {roots[name]}
        return Walk(self, name, roots[name], others, claimed)


def _runs(spans: Sequence[PathRange]) -> Iterator[list[PathRange]]:
    """Spans of one collection that ascend are walked together."""
    run: list[PathRange] = []
    for span in spans:
        last = run[-1] if run else None
        if last and (
            span.collection != last.collection or last.end is None or span.first < last.end
        ):
            yield run
            run = []
        run.append(span)
    if run:
        yield run


def _before(run: Sequence[PathRange], path: str) -> list[PathRange]:
    """What of these spans comes before a path."""
    cut = [span for span in run if span.first < path]
    return [
        span._replace(end=path) if span.end is None or span.end > path else span for span in cut
    ]


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
        if root != os.path.abspath(path):
            # A library resolves its collections when it is opened: this one was replaced since, perhaps by a `git pull`.
            missing[name] = f"{path} has become a symbolic link to {root}"
            continue
        if root in roots.values():
            raise UsageError(f"collection {name!r}: another one is the same folder, {path}")
        roots[name] = root
    if missing and not roots:
        name, why = next(iter(missing.items()))
        raise UsageError(f"collection {name!r}: {why}", "Name a folder that exists")
    return roots, missing


__all__ = ["Claims", "Discover", "Discovery", "Found"]
