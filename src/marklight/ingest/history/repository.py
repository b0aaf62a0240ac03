"""A repository: where it is, its branches and tags, and which commits they reach."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path

from marklight.ingest.history import git

BRANCHES = ("refs/heads", "refs/remotes", "refs/tags")


@dataclass(frozen=True, slots=True)
class Repository:
    """A git repository; linked worktrees of one have one `store`."""

    folder: Path
    """The root of its files, or itself where it has none."""
    store: Path
    """Where its objects and branches are."""
    own: Path
    """Where this worktree's HEAD is."""

    def tips(self) -> frozenset[str]:
        """What its branches, tags and HEAD name; cheap enough for every question."""
        said = git.ask(self.folder, "for-each-ref", "--format=%(objectname)", *BRANCHES)
        found = set(said.decode().split())
        try:
            # Mostly the name of a branch; a commit itself where HEAD is detached.
            head = (self.own / "HEAD").read_text(encoding="utf-8", errors="replace").strip()
        except OSError:
            head = ""
        return frozenset(found | ({head} if is_hash(head) else set()))

    def edge(self) -> frozenset[str]:
        """Commits at which a shallow clone ends; none where it is whole."""
        try:
            return frozenset((self.store / "shallow").read_text(encoding="ascii").split())
        except (OSError, UnicodeDecodeError):
            return frozenset()

    def there(self, hashes: Collection[str]) -> bool:
        """Whether it has all of these objects."""
        asked = "".join(f"{each}\n" for each in hashes).encode()
        said, code, _ = git.attempt(self.folder, "cat-file", "--batch-check", given=asked)
        return code == 0 and b" missing\n" not in said

    def reachable(self, tips: Iterable[str], without: Iterable[str] = ()) -> tuple[list[str], str]:
        """Commits that these reach and those do not, newest first; and why there may be more.

        A damaged commit ends the walk, so what was found until then is not thrown away.
        """
        wanted = [*tips, *(f"^{each}" for each in without)]
        asked = "".join(f"{each}\n" for each in wanted).encode()
        arguments = ("rev-list", "--ignore-missing", "--stdin")
        said, code, words = git.attempt(self.folder, *arguments, given=asked)
        return said.decode().split(), git.complaint(words) if code else ""

    def named(self, hashes: Collection[str]) -> dict[str, list[str]]:
        """Branches and tags that mean exactly these commits."""
        if not hashes:
            return {}
        form = "--format=%(objectname) %(*objectname) %(refname:short)"
        points = [f"--points-at={each}" for each in hashes]
        said, _, _ = git.attempt(self.folder, "for-each-ref", form, *points, *BRANCHES)
        found: dict[str, list[str]] = {}
        for line in said.decode("utf-8", "backslashreplace").splitlines():
            direct, peeled, name = line.split(" ", 2)
            found.setdefault(peeled or direct, []).append(name)
        return found

    def meant(self, short: str) -> str:
        """The commit that the beginning of a hash means; empty where it is none, or not the only one."""
        said, code, _ = git.attempt(
            self.folder, "rev-parse", "--verify", "--quiet", f"{short}^{{commit}}"
        )
        return "" if code else said.decode().strip()


def find(folder: Path) -> Repository | None:
    """The repository that holds a folder; HistoryError where git refuses to read it."""
    questions = ("--is-bare-repository", "--git-common-dir", "--absolute-git-dir")
    said, code, words = git.attempt(folder, "rev-parse", *questions)
    if code:
        if "not a git repository" in words or not folder.is_dir():
            return None
        raise git.refusal(folder, words)
    bare, store, own = said.decode("utf-8", "surrogateescape").splitlines()[:3]
    inside = Path(own)
    root = inside
    if bare != "true":
        top, code, words = git.attempt(folder, "rev-parse", "--show-toplevel")
        # A folder inside `.git` itself has no files around it.
        root = inside if code else Path(top.decode("utf-8", "surrogateescape").rstrip("\n"))
    return Repository(root.resolve(), (folder / store).resolve(), inside)


def is_hash(text: str) -> bool:
    """Whether it is a whole name of an object, by SHA-1 or SHA-256."""
    return len(text) in (40, 64) and all(sign in "0123456789abcdef" for sign in text)
