"""Find a git repository, verify that nothing leads out of its folder, list its refs and reachable commits.

Containment: an unpacked folder can lead git to another repository of the user, by a `.git` file or link, by `commondir`, by
alternates, or by links among objects and refs. A path that leads out is accepted only with a back link that git wrote at the
other end: the file `gitdir` of a worktree, or `core.worktree` of a submodule. Otherwise the user decides, by an entry for the
folder in git's `safe.directory`.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from marklight.errors import HistoryError, RepositoryOutside
from marklight.ingest.history import git
from marklight.ingest.history.commits import CommitObject, read_commits
from marklight.ingest.read import first_bytes

MAX_BYTES = 100_000_000
"""Size limit of git's own files: the file `shallow` has 41 bytes for each commit."""
MAX_PATH_BYTES = 10_000
REF_NAMESPACES = ("refs/heads", "refs/remotes", "refs/tags")
INDEXED_PATHS = ("HEAD", "packed-refs", "shallow", "objects", "refs", "reftable")
"""Files and folders of a git directory whose content is indexed or decides what is indexed."""


@dataclass(frozen=True, slots=True)
class Repository(git.Location):
    """A git repository that passed `verify_containment`."""

    def tips(self) -> frozenset[str]:
        """Return the commits of branches, tags and HEAD; fast enough for every query."""
        output = git.run(
            self, "for-each-ref", "--format=%(objectname)", *REF_NAMESPACES, seconds=git.QUICK
        )
        tips = set(output.decode().split())
        try:
            # Mostly the name of a branch; a commit hash where HEAD is detached.
            head = first_bytes(self.own / "HEAD", MAX_BYTES).decode("utf-8", "replace").strip()
        except OSError:
            head = ""
        return frozenset(tips | ({head} if is_hash(head) else set()))

    def shallow_edge(self) -> frozenset[str]:
        """Return the commits at which a shallow clone ends; none in a full clone."""
        try:
            return frozenset(first_bytes(self.store / "shallow", MAX_BYTES).decode("ascii").split())
        except (FileNotFoundError, UnicodeDecodeError):
            return frozenset()
        except OSError as error:  # a pipe, on which git itself would block
            raise HistoryError(
                f"git cannot read the repository at {self.folder}: {error}"
            ) from None

    def has_objects(self, hashes: Collection[str]) -> bool:
        """Return true if all of these objects exist."""
        lines = "".join(f"{each}\n" for each in hashes).encode()
        output, code, _ = git.try_run(self, "cat-file", "--batch-check", given=lines)
        return code == 0 and b" missing\n" not in output

    def reachable(self, tips: Iterable[str], without: Iterable[str] = ()) -> tuple[list[str], str]:
        """Return the commits reachable from `tips` and not from `without`, newest first, and git's error if it stopped."""
        revisions = [*tips, *(f"^{each}" for each in without)]
        lines = "".join(f"{each}\n" for each in revisions).encode()
        arguments = ("rev-list", "--ignore-missing", "--stdin")
        output, code, messages = git.try_run(self, *arguments, given=lines)
        return output.decode().split(), git.error_line(messages) if code else ""

    def reachable_around_damage(self, tips: Iterable[str]) -> list[str]:
        """Return the reachable commits, reading them one by one and skipping damaged ones, where git stops at the first."""
        order = [whole for each in sorted(tips) if (whole := self.full_hash(each))]
        seen = set(order)
        for commit in read_commits(self, order):
            if isinstance(commit, CommitObject):
                order.extend(new := [each for each in commit.parents if each not in seen])
                seen.update(new)
        return order

    def refs_at(self, hashes: Collection[str]) -> dict[str, list[str]]:
        """Return the branches and tags that point at these commits."""
        if not hashes:
            return {}
        columns = "--format=%(objectname) %(*objectname) %(refname:short)"
        points = [f"--points-at={each}" for each in hashes]
        output, _, _ = git.try_run(self, "for-each-ref", columns, *points, *REF_NAMESPACES)
        refs: dict[str, list[str]] = {}
        for line in output.decode("utf-8", "backslashreplace").splitlines():
            direct, peeled, name = line.split(" ", 2)
            refs.setdefault(peeled or direct, []).append(name)
        return refs

    def full_hash(self, short: str) -> str:
        """Return the commit with this hash prefix; empty where there is none or more than one."""
        output, code, _ = git.try_run(
            self, "rev-parse", "--verify", "--quiet", f"{short}^{{commit}}"
        )
        return "" if code else output.decode().strip()


def find(folder: Path) -> Repository | None:
    """Return the repository around a folder; HistoryError where git refuses to read it or it leads elsewhere."""
    arguments = ("rev-parse", "--git-common-dir", "--absolute-git-dir")
    output, _, messages = git.try_run(folder, *arguments, seconds=git.QUICK)
    if not output:
        if "not a git repository" in messages or not folder.is_dir():
            return None
        raise git.unreadable(folder, messages)
    store, *rest = os.fsdecode(output).removesuffix("\n").split("\n")
    if len(rest) != 1:
        raise HistoryError(f"The path of the repository around {folder} contains a line break")
    resolved, own = folder.resolve(), Path(rest[0]).resolve()
    # Not what git calls the root of the files: `core.worktree` could name any folder above.
    root = own if resolved.is_relative_to(own) else _root(resolved)
    repository = Repository(root, (resolved / store).resolve(), own)
    verify_containment(repository)
    return repository


def _root(folder: Path) -> Path:
    """Return the nearest folder upward with a `.git`."""
    around = (folder, *folder.parents)
    return next((each for each in around if os.path.lexists(each / ".git")), folder)


def is_hash(text: str) -> bool:
    """Return true for a full SHA-1 or SHA-256 object name."""
    return len(text) in (40, 64) and all(character in "0123456789abcdef" for character in text)


def verify_containment(place: git.Location) -> None:
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
        link = own / os.fsdecode(first_bytes(own / "gitdir", MAX_PATH_BYTES)).rstrip("\r\n")
        return link.parent.resolve() if link.name == ".git" else None
    except (OSError, ValueError):
        return None


def _core_worktree(place: git.Location) -> Path | None:
    """Return the folder of a submodule, by the setting in its git directory."""
    arguments = ("config", "--null", "--get", "core.worktree")
    output, code, _ = git.try_run(place, *arguments, seconds=git.QUICK)
    return None if code else (place.own / os.fsdecode(output.removesuffix(b"\0"))).resolve()


def _verify_content(place: git.Location) -> None:
    """Follow links among objects and refs, and alternates, as long as they stay inside."""
    paths = [str(place.own / "HEAD"), *(str(place.store / name) for name in INDEXED_PATHS)]
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
    lines = os.fsdecode(git.run(place, "count-objects", "-v")).removesuffix("\n").split("\n")
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
        f"The repository at {place.folder} is not indexed: {what} leads out of the folder, to {target}",
        hint or git.trust_hint(place.folder),
    )


def _is_safe(place: git.Location) -> bool:
    """Return true if the user listed exactly this folder in `safe.directory`.

    `*` is no decision on one folder, and the repository's own configuration does not count.
    """
    arguments = ("config", "--null", "--show-scope", "--type=path", "--get-all", "safe.directory")
    output, _, _ = git.try_run(place, *arguments, seconds=git.QUICK)
    fields = os.fsdecode(output).split("\0")
    folders: list[str] = []
    for scope, value in zip(fields[::2], fields[1::2], strict=False):
        if scope in ("system", "global"):
            # An empty value resets the list, as in git.
            folders = [*folders, value] if value else []
    return any(os.path.isabs(each) and Path(each).resolve() == place.folder for each in folders)
