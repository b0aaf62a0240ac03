"""A repository: where it is, its branches and tags, and which commits they reach."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path

from marklight.errors import HistoryError
from marklight.ingest.history import containment, git
from marklight.ingest.history.objects import Written, written
from marklight.ingest.read import first_bytes

MOST_BYTES = 100_000_000
"""Limit of the size of a file of git: the file `shallow` has 41 bytes for each commit."""
BRANCHES = ("refs/heads", "refs/remotes", "refs/tags")


@dataclass(frozen=True, slots=True)
class Repository(git.Location):
    """A git repository that nothing leads out of."""

    def tips(self) -> frozenset[str]:
        """What its branches, tags and HEAD name; cheap enough for every question."""
        said = git.ask(self, "for-each-ref", "--format=%(objectname)", *BRANCHES, seconds=git.QUICK)
        found = set(said.decode().split())
        try:
            # Mostly the name of a branch; a commit itself where HEAD is detached.
            head = first_bytes(self.own / "HEAD", MOST_BYTES).decode("utf-8", "replace").strip()
        except OSError:
            head = ""
        return frozenset(found | ({head} if is_hash(head) else set()))

    def shallow_edge(self) -> frozenset[str]:
        """Commits at which a shallow clone ends; none where it is whole."""
        try:
            return frozenset(
                first_bytes(self.store / "shallow", MOST_BYTES).decode("ascii").split()
            )
        except (FileNotFoundError, UnicodeDecodeError):
            return frozenset()
        except OSError as error:  # a pipe, which git itself would wait for
            raise HistoryError(
                f"git cannot read the repository at {self.folder}: {error}"
            ) from None

    def has_objects(self, hashes: Collection[str]) -> bool:
        """Whether it has all of these objects."""
        asked = "".join(f"{each}\n" for each in hashes).encode()
        said, code, _ = git.attempt(self, "cat-file", "--batch-check", given=asked)
        return code == 0 and b" missing\n" not in said

    def reachable(self, tips: Iterable[str], without: Iterable[str] = ()) -> tuple[list[str], str]:
        """Commits that these reach and those do not, newest first; and why git could not tell them all."""
        wanted = [*tips, *(f"^{each}" for each in without)]
        asked = "".join(f"{each}\n" for each in wanted).encode()
        arguments = ("rev-list", "--ignore-missing", "--stdin")
        said, code, words = git.attempt(self, *arguments, given=asked)
        return said.decode().split(), git.complaint(words) if code else ""

    def reachable_around_damage(self, tips: Iterable[str]) -> list[str]:
        """The same commit by commit, around those that are damaged: git itself stops at the first."""
        order = [whole for each in sorted(tips) if (whole := self.full_hash(each))]
        seen = set(order)
        for found in written(self, order):
            if isinstance(found, Written):
                order.extend(new := [each for each in found.parents if each not in seen])
                seen.update(new)
        return order

    def refs_at(self, hashes: Collection[str]) -> dict[str, list[str]]:
        """Branches and tags that mean exactly these commits."""
        if not hashes:
            return {}
        form = "--format=%(objectname) %(*objectname) %(refname:short)"
        points = [f"--points-at={each}" for each in hashes]
        said, _, _ = git.attempt(self, "for-each-ref", form, *points, *BRANCHES)
        found: dict[str, list[str]] = {}
        for line in said.decode("utf-8", "backslashreplace").splitlines():
            direct, peeled, name = line.split(" ", 2)
            found.setdefault(peeled or direct, []).append(name)
        return found

    def full_hash(self, short: str) -> str:
        """The commit that the beginning of a hash means; empty where it is none, or not the only one."""
        said, code, _ = git.attempt(self, "rev-parse", "--verify", "--quiet", f"{short}^{{commit}}")
        return "" if code else said.decode().strip()


def find(folder: Path) -> Repository | None:
    """Return the repository that holds a folder; HistoryError where git refuses to read it or it leads elsewhere."""
    questions = ("--git-common-dir", "--absolute-git-dir")
    said, _, words = git.attempt(folder, "rev-parse", *questions, seconds=git.QUICK)
    if not said:
        if "not a git repository" in words or not folder.is_dir():
            return None
        raise git.refusal(folder, words)
    store, *rest = os.fsdecode(said).removesuffix("\n").split("\n")
    if len(rest) != 1:
        raise HistoryError(f"the repository around {folder} has a line break in its path")
    here, own = folder.resolve(), Path(rest[0]).resolve()
    # Not what git calls the root of the files: `core.worktree` could name any folder above.
    root = own if here.is_relative_to(own) else _root(here)
    found = Repository(root, (here / store).resolve(), own)
    containment.verify(found)
    return found


def _root(folder: Path) -> Path:
    """Return the nearest folder upward with a `.git`."""
    around = (folder, *folder.parents)
    return next((each for each in around if os.path.lexists(each / ".git")), folder)


def is_hash(text: str) -> bool:
    """Whether it is a whole name of an object, by SHA-1 or SHA-256."""
    return len(text) in (40, 64) and all(sign in "0123456789abcdef" for sign in text)
