"""One collection's folders, from top to bottom; and where on the way a path would be left out."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

from marklight.ingest.ignore import Patterns, Rules, decide, rules_above, rules_in
from marklight.ingest.parse import OFF, parser_fits, parser_for
from marklight.ingest.read import state_of
from marklight.model import DocumentId, Failure, FileState

if TYPE_CHECKING:
    from marklight.ingest.discover import Discover

_ENDING = re.compile(r"\*\.[A-Za-z0-9]+$")
_NEVER = frozenset((".marklight", ".git"))


class Found(NamedTuple):
    """A file of the library as a stat saw it."""

    id: DocumentId
    file: FileState
    path: str


def inside(path: str, root: str) -> bool:
    """Whether a path is a folder or lies below it."""
    return path == root or path.startswith(root.rstrip(os.sep) + os.sep)


class Walk:
    """One collection. Symbolic links wait until the end, so that a real path comes first."""

    def __init__(self, options: Discover, name: str, root: str, others: frozenset[str]) -> None:
        self.options = options
        self.name = name
        self.root = root
        self.others = others
        self.unreadable: list[Failure] = []
        self.links: list[tuple[str, str, Rules]] = []
        self.walked: list[str] = []
        self.ignore_files = frozenset(options.ignore_files)
        self.include = Patterns(options.include) if options.include else None
        self.exclude = Patterns(options.exclude) if options.exclude else None
        # Most files are told by their ending alone, and this is asked for each of them.
        self.endings = _endings(options.parsers)
        self.is_document = _matcher(options.parsers)

    def files(self) -> Iterator[Found]:
        """Every document once."""
        outer = rules_above(self.root, self.options.ignore_files)
        found: list[Found] = []
        self._folder(self.root, "", outer, found)
        yield from found
        real: set[str] | None = None
        while self.links:
            path, below, rules = self.links.pop()
            if real is None:
                real = {*(item.path for item in found), *self.walked}
            target = os.path.realpath(path)
            before, walked = len(found), len(self.walked)
            if target not in real and self._may_follow(target):
                self._target(path, target, below, rules, found)
            real.update(self.walked[walked:])
            real.add(target)
            yield from found[before:]

    def _folder(self, folder: str, below: str, rules: Rules, found: list[Found]) -> None:
        """All below a folder, without recursion: a path may be deeper than Python's stack."""
        waiting = [(folder, below, rules)]
        documents, hidden, plain = self.is_document, self.options.hidden, not self._picky
        endings = self.endings
        collection = self.name
        while waiting:
            folder, below, rules = waiting.pop()
            self.walked.append(folder)
            try:
                with os.scandir(folder) as entries:
                    listed = list(entries)
            except OSError as error:
                self._unreadable(below or "/", f"cannot be listed: {error.strerror or error}")
                continue
            if not self.ignore_files.isdisjoint([entry.name for entry in listed]):
                rules = (*rules, *rules_in(folder, below, self.options.ignore_files))
            open_here = plain and not rules
            for entry in listed:
                name = entry.name
                if name[0] == "." and (not hidden or name in _NEVER):
                    continue
                try:
                    if (name.endswith(endings) or documents(below, name)) and entry.is_file(
                        follow_symlinks=False
                    ):
                        if not open_here and self._left_out(below + name, rules):
                            continue
                        if not name.isascii() and not _is_text(name):
                            self._unreadable(below + name, "its name is not valid Unicode")
                            continue
                        status = entry.stat(follow_symlinks=False)
                        id = DocumentId(collection, below + name)
                        found.append(Found(id, state_of(status), entry.path))
                    elif entry.is_symlink():
                        self.links.append((entry.path, below + name, rules))
                    elif entry.is_dir(follow_symlinks=False):
                        inner = f"{below}{name}/"
                        if entry.path in self.others:
                            continue
                        if open_here or not self._left_out(inner, rules):
                            waiting.append((entry.path, inner, rules))
                    elif documents(below, name) and not self._left_out(below + name, rules):
                        self._unreadable(below + name, "is not a regular file")
                except OSError as error:
                    self._unreadable(below + name, f"cannot be read: {error.strerror or error}")

    def _target(self, path: str, target: str, below: str, rules: Rules, found: list[Found]) -> None:
        """Follow one symbolic link, to a folder or to a file."""
        folder, _, name = below.rpartition("/")
        if os.path.isdir(target):
            if not self._left_out(below + "/", rules):
                self._folder(path, below + "/", rules, found)
        elif self.is_document(folder + "/" if folder else "", name):
            if self._left_out(below, rules):
                return
            try:
                status = os.stat(target)
            except OSError:
                self._unreadable(below, "is a symbolic link to nothing")
                return
            if not os.path.isfile(target) or not _is_text(name):
                self._unreadable(below, "is not a regular file")
                return
            found.append(Found(DocumentId(self.name, below), state_of(status), path))

    def _may_follow(self, target: str) -> bool:
        within = inside(target, self.root) or self.options.follow_outside
        owned = any(inside(target, other) and len(other) > len(self.root) for other in self.others)
        # A link to a folder above would walk the collection inside itself.
        return within and not owned and not inside(self.root, target)

    @property
    def _picky(self) -> bool:
        return bool(self.include or self.exclude)

    def _left_out(self, below: str, rules: Rules) -> bool:
        return self._reason(below, rules) is not None

    def _reason(self, below: str, rules: Rules) -> str | None:
        """Why a path is left out: a folder's ends in a slash."""
        if self.exclude and (decided := self.exclude.decide(below)) and decided.ignores:
            return f"the setting files.exclude has {decided.pattern!r}"
        if self.include and not below.endswith("/"):
            decided = self.include.decide(below)
            if not decided or not decided.ignores:
                return "no pattern in the setting files.include fits it"
        ruled = decide(rules, below) if rules else None
        return f"a rule says so: {ruled}" if ruled and ruled.ignores else None

    def why(self, path: str) -> str | None:
        """Go down to a path as the walk does, and say where the walk would stop."""
        steps = os.path.relpath(path, self.root).split(os.sep)
        rules = rules_above(self.root, self.options.ignore_files)
        folder, below = self.root, ""
        for number, name in enumerate(steps):
            rules = (*rules, *rules_in(folder, below, self.options.ignore_files))
            here = os.path.join(folder, name)
            is_folder = number < len(steps) - 1 or os.path.isdir(here)
            below += name + "/" * is_folder
            if name in _NEVER:
                return f"{below} is never part of a library"
            if name.startswith(".") and not self.options.hidden:
                return f"{below} is hidden; the setting files.hidden is off"
            if reason := self._reason(below, rules):
                return reason
            if os.path.islink(here) and (reason := self._link_reason(here)):
                return f"{below} {reason}"
            folder = here
        if not os.path.lexists(path):
            return "there is no such file"
        if os.path.isdir(path):
            return None
        if not self.is_document(below[: -len(steps[-1])], steps[-1]):
            fits = [each for each in self.options.parsers if parser_fits(below, each)]
            if fits:
                return f"the setting files.parsers says that {fits[0]!r} is no document"
            return "the setting files.parsers has no parser for its name"
        return None

    def _link_reason(self, path: str) -> str:
        target = os.path.realpath(path)
        if not os.path.exists(target):
            return "is a symbolic link to nothing"
        if not self._may_follow(target):
            return f"is a symbolic link that leads out of the collection, to {target}"
        return f"is a symbolic link to {target}, which is part of the collection by itself"

    def _unreadable(self, below: str, reason: str) -> None:
        shown = below if _is_text(below) else os.fsencode(below).decode("utf-8", "replace")
        self.unreadable.append(Failure(DocumentId(self.name, shown), reason))


def _is_text(name: str) -> bool:
    """Whether a name can be stored; one that the system could not decode holds half characters."""
    return name.isascii() or not any("\ud800" <= sign <= "\udfff" for sign in name)


def _endings(parsers: Mapping[str, str]) -> tuple[str, ...]:
    """The endings, in lower case, that make a document whatever other patterns say."""
    found: dict[str, str] = {}
    for pattern, parser in parsers.items():
        if _ENDING.match(pattern):
            found.setdefault(pattern[1:].lower(), parser)
        elif parser in OFF:
            break  # It may be meant for some of the files that the patterns below fit.
    return tuple(ending for ending, parser in found.items() if parser not in OFF)


def _matcher(parsers: Mapping[str, str]) -> Callable[[str, str], bool]:
    """Whether a folder and a name make a document, fast where all patterns are endings."""
    if all(_ENDING.match(pattern) for pattern in parsers):
        endings = _endings(parsers)
        return lambda _, name: name.lower().endswith(endings)
    return lambda folder, name: parser_for(folder + name, parsers) is not None
