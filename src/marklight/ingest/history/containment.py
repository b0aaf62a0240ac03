"""Containment of a repository: its objects and refs are inside its folder, or git itself names the folder.

An unpacked folder can lead git to another repository of the user: by a `.git` file or link, by `commondir`, by alternates, or by
links among objects and refs. What leads out is believed only with a back link that git wrote at the other end: the file `gitdir`
of a worktree, or `core.worktree` of a submodule. Otherwise the user decides, by an entry for the folder in git's `safe.directory`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from marklight.errors import RepositoryOutside
from marklight.ingest.history import git
from marklight.ingest.read import first_bytes

READ = ("HEAD", "packed-refs", "shallow", "objects", "refs", "reftable")
"""Files and folders of a git directory whose content is indexed or decides what is."""
LONGEST_PATH = 10_000


def verify(place: git.Location) -> None:
    """Raise RepositoryOutside where a repository leads out of its folder to one that does not name the folder."""
    try:
        _verify_directories(place)
        _verify_content(place)
    except RepositoryOutside:
        if not _is_safe(place):
            raise


def _verify_directories(place: git.Location) -> None:
    root, own, store = place.folder, place.own, place.store
    if own.is_relative_to(root) and store.is_relative_to(root):
        return
    if own.parent == store / "worktrees":
        if _worktree(own) == root:
            return
        hint = "If this is your worktree and was moved: run `git worktree repair` in it"
        raise _outside(place, "its git directory", own, hint)
    if own.is_relative_to(root):
        raise _outside(place, "the file commondir in its git directory", store)
    if own != store or _core_worktree(place) != root:
        raise _outside(place, "its git directory", own)


def _worktree(own: Path) -> Path | None:
    """Return the folder of a linked worktree, by the back link in its git directory."""
    try:
        link = own / os.fsdecode(first_bytes(own / "gitdir", LONGEST_PATH)).rstrip("\r\n")
        return link.parent.resolve() if link.name == ".git" else None
    except (OSError, ValueError):
        return None


def _core_worktree(place: git.Location) -> Path | None:
    said, code, _ = git.attempt(
        place, "config", "--null", "--get", "core.worktree", seconds=git.QUICK
    )
    return None if code else (place.own / os.fsdecode(said.removesuffix(b"\0"))).resolve()


def _verify_content(place: git.Location) -> None:
    """Follow links among objects and refs, and alternates, as long as they stay inside."""
    paths = [str(place.own / "HEAD"), *(str(place.store / name) for name in READ)]
    # Alternates outside are rejected although they give objects without refs, as in `git clone --shared`: hashes of private commits
    # are no secret (lock files and submodules have them), and one of them in a ref is enough to read all of its history.
    if os.path.lexists(place.store / "objects" / "info" / "alternates"):
        for path in _alternates(place):
            _verify_inside(place, "objects/info/alternates", path)
            paths.append(os.path.realpath(path))
    seen = set(paths)
    for path in paths:
        for link in _links(path):
            _verify_inside(place, link, target := os.path.realpath(link))
            if target not in seen:
                seen.add(target)
                paths.append(target)


def _links(path: str) -> Iterator[str]:
    """Return all symbolic links at a path and below it; none is followed."""
    if os.path.islink(path):
        yield path
        return
    folders = [path]
    while folders:
        with suppress(OSError), os.scandir(folders.pop()) as entries:
            for entry in entries:
                if entry.is_symlink():
                    yield entry.path
                elif entry.is_dir(follow_symlinks=False):
                    folders.append(entry.path)


def _alternates(place: git.Location) -> list[str]:
    """Return the folders of objects that git reads beside the repository's own, those that they name in turn included."""
    said = os.fsdecode(git.ask(place, "count-objects", "-v"))
    lines = said.removesuffix("\n").split("\n")
    return [line.removeprefix("alternate: ") for line in lines if line.startswith("alternate: ")]


def _verify_inside(place: git.Location, what: str, path: str) -> None:
    target = Path(os.path.realpath(path))
    # Git quotes paths with odd characters, which are then not absolute.
    if not os.path.isabs(path) or not (
        target.is_relative_to(place.folder) or target.is_relative_to(place.store)
    ):
        raise _outside(place, what, path)


def _outside(
    place: git.Location, what: str, target: Path | str, hint: str = ""
) -> RepositoryOutside:
    return RepositoryOutside(
        f"the repository at {place.folder} is not read: {what} leads out of the folder, to {target}",
        hint or git.trust_hint(place.folder),
    )


def _is_safe(place: git.Location) -> bool:
    """Return true if the user listed exactly this folder as safe; `*` is no decision on one folder, and a repository's own word is none."""
    asked = ("config", "--null", "--show-scope", "--type=path", "--get-all", "safe.directory")
    said, _, _ = git.attempt(place, *asked, seconds=git.QUICK)
    fields = os.fsdecode(said).split("\0")
    folders: list[str] = []
    for scope, value in zip(fields[::2], fields[1::2], strict=False):
        if scope in ("system", "global"):
            # An empty value resets the list, as in git.
            folders = [*folders, value] if value else []
    return any(os.path.isabs(each) and Path(each).resolve() == place.folder for each in folders)
