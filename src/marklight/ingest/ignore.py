"""Ignore files: which rule of which file leaves a path out, with git's own meaning of patterns."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from marklight.ingest.read import first_bytes
from marklight.text import has_too_many_wildcards

IGNORE_FILES = (".gitignore", ".ignore", ".marklightignore")
"""Weakest first: a later file of the same folder has the last word."""
_LIMIT_BYTES = 1_000_000


class Rule(NamedTuple):
    """The line that decided about a path."""

    file: str
    line: int
    pattern: str
    ignores: bool

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.pattern}" if self.line else self.pattern


@dataclass(frozen=True, slots=True)
class RuleFile:
    """The patterns of one file, and where the paths below its folder begin."""

    name: str
    skip: int
    """How much of a path, counted from the collection's folder, lies above this file's folder."""
    prefix: str
    """What stands before such a path, where this file's folder lies above the collection."""
    rules: Patterns

    def decide(self, path: str) -> Rule | None:
        """The last line that matches; a folder's path ends in a slash."""
        found = self.rules.decide(self.prefix + path[self.skip :])
        return found and found._replace(file=self.name)


class Patterns:
    """Patterns as git understands them, in the order of their lines; bad ones match nothing."""

    def __init__(self, lines: Iterable[str]) -> None:
        from pathspec import GitIgnoreSpec
        from pathspec.patterns.gitignore.spec import GitIgnoreSpecPattern

        self.lines: list[tuple[int, str]] = []
        patterns = []
        for number, line in enumerate(lines, 1):
            if has_too_many_wildcards(line):
                continue
            try:
                pattern = GitIgnoreSpecPattern(line)
            except ValueError:
                continue
            if pattern.include is not None:
                patterns.append(pattern)
                self.lines.append((number, line.strip()))
        self.spec = GitIgnoreSpec(patterns)

    def __bool__(self) -> bool:
        return bool(self.lines)

    def decide(self, path: str) -> Rule | None:
        """The last pattern that matches a path, or nothing."""
        result = self.spec.check_file(path)
        if result.include is None or result.index is None:
            return None
        number, pattern = self.lines[result.index]
        return Rule("", number, pattern, result.include)


Rules = tuple[RuleFile, ...]
"""All that count in a folder, weakest first: those of folders above before its own."""


def rules_in(folder: str, below: str, names: Iterable[str] = IGNORE_FILES) -> Rules:
    """The ignore files of a folder; `below` is its path in the collection, with a slash after it."""
    return tuple(
        RuleFile(below + name, len(below), "", patterns)
        for name in names
        if (patterns := _load(os.path.join(folder, name)))
    )


def rules_above(root: str, names: Iterable[str] = IGNORE_FILES) -> Rules:
    """The ignore files between the repository's folder and a collection inside it."""
    folders: list[tuple[str, str]] = []
    at, prefix = root, ""
    while not os.path.exists(os.path.join(at, ".git")):
        above, name = os.path.split(at)
        if above == at:
            return ()
        at, prefix = above, f"{name}/{prefix}"
        folders.append((at, prefix))
    found: Rules = ()
    if patterns := _load(os.path.join(at, ".git", "info", "exclude")):
        found = (RuleFile(".git/info/exclude", 0, prefix, patterns),)
    for folder, below in reversed(folders):
        for name in names:
            path = os.path.join(folder, name)
            if patterns := _load(path):
                found = (*found, RuleFile(path, 0, below, patterns))
    # A folder that was asked for by name is meant, even where git would leave it out.
    decided = decide(found, "")
    return () if decided and decided.ignores else found


def decide(rules: Rules, path: str) -> Rule | None:
    """The rule that has the last word on a path, or nothing where none speaks of it."""
    for file in reversed(rules):
        if decision := file.decide(path):
            return decision
    return None


def _load(path: str) -> Patterns | None:
    """Read an ignore file; as in git, one that is a symbolic link counts as none."""
    try:
        return None if os.path.islink(path) else _parsed(first_bytes(path, _LIMIT_BYTES))
    except OSError:
        return None


@lru_cache(maxsize=64)
def _parsed(data: bytes) -> Patterns | None:
    """Parse rules; the same ones in many folders are parsed once."""
    return Patterns(data.decode("utf-8-sig", "replace").splitlines()) or None
