"""Path filter of a collection: ignore files (.gitignore), include and exclude patterns, hidden names, symbolic links; and the folders of collections.

Every decision can be explained: `marklight ignored` prints the rule or setting that excludes a path.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property, lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from marklight.errors import UsageError
from marklight.ingest.recipe import OFF, matches_pattern, parser_for
from marklight.lazy import dataclass
from marklight.place import nested_test

if TYPE_CHECKING:
    from marklight.ingest.discover import Discover

IGNORE_FILES = (".gitignore", ".ignore", ".marklightignore")
"""Lowest precedence first: in the same folder, a later file overrides an earlier one."""
NEVER = frozenset((".marklight", ".git"))
"""Names that are never indexed."""
_LIMIT_BYTES = 1_000_000
"""The rest of a longer ignore file is not read."""
_EXTENSION = re.compile(r"\*\.[A-Za-z0-9]+$")


def inside(path: str, root: str) -> bool:
    """Return true for a folder itself and every path below it."""
    return path == root or path.startswith(root.rstrip(os.sep) + os.sep)


def is_unicode(name: str) -> bool:
    """Return false for a name with lone surrogates, which stand for bytes that are not valid text."""
    return name.isascii() or not any("\ud800" <= character <= "\udfff" for character in name)


def is_document(parsers: Mapping[str, str]) -> Callable[[str, str], bool]:
    """Return a predicate of folder and name; a fast one where all patterns are extensions."""
    if all(map(_EXTENSION.match, parsers)):
        extensions = document_extensions(parsers)
        return lambda _, name: name.lower().endswith(extensions)
    return lambda folder, name: parser_for(folder + name, parsers) is not None


def may_be_document(parsers: Mapping[str, str]) -> Callable[[str], bool]:
    """Return a predicate of a name alone; true if a pattern concerns folders too."""
    by_name = is_document(parsers)
    return partial(by_name, "") if all(map(_EXTENSION.match, parsers)) else lambda _: True


def document_extensions(parsers: Mapping[str, str]) -> tuple[str, ...]:
    """Return the extensions, in lower case, that are documents whatever the other patterns are."""
    extensions: dict[str, str] = {}
    for pattern, parser in parsers.items():
        if _EXTENSION.match(pattern):
            extensions.setdefault(pattern[1:].lower(), parser)
        elif parser in OFF:
            break  # It may exclude files that the patterns below match.
    return tuple(extension for extension, parser in extensions.items() if parser not in OFF)


class Rule(NamedTuple):
    """A line of an ignore file."""

    file: str
    line: int
    pattern: str
    ignores: bool

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.pattern}" if self.line else self.pattern


class Patterns:
    """Patterns with the semantics of .gitignore, in the order of their lines; invalid ones match nothing."""

    def __init__(self, lines: Iterable[str]) -> None:
        from pathspec import GitIgnoreSpec
        from pathspec.patterns.gitignore.spec import GitIgnoreSpecPattern

        from marklight.text.globs import has_too_many_wildcards

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

    def last_match(self, path: str) -> Rule | None:
        """Return the last pattern that matches a path; a folder's path ends in a slash."""
        result = self.spec.check_file(path)
        if result.include is None or result.index is None:
            return None
        number, pattern = self.lines[result.index]
        return Rule("", number, pattern, result.include)


@dataclass(frozen=True, slots=True)
class IgnoreFile:
    """The patterns of one ignore file, and the folder that they are relative to."""

    name: str
    skip: int
    """Number of characters of a path, relative to the collection, that lead to this file's folder."""
    prefix: str
    """Prefix of such a path where this file's folder is above the collection."""
    patterns: Patterns

    def last_match(self, path: str) -> Rule | None:
        """Return the last line that matches a path relative to the collection."""
        rule = self.patterns.last_match(self.prefix + path[self.skip :])
        return rule and rule._replace(file=self.name)


Rules = tuple[IgnoreFile, ...]
"""The ignore files that apply to a folder, lowest precedence first: those of the folders above before its own."""


def rules_in(folder: str, relative: str, names: Iterable[str] = IGNORE_FILES) -> Rules:
    """Return the ignore files of a folder; `relative` is its path in the collection, with a slash at the end."""
    return tuple(
        IgnoreFile(relative + name, len(relative), "", patterns)
        for name in names
        if (patterns := _load(os.path.join(folder, name)))
    )


def rules_above(root: str, names: Iterable[str] = IGNORE_FILES) -> Rules:
    """Return the ignore files between the root of the git repository and a collection inside it."""
    folders: list[tuple[str, str]] = []
    repository, prefix = root, ""
    while not os.path.exists(os.path.join(repository, ".git")):
        above, name = os.path.split(repository)
        if above == repository:
            return ()
        repository, prefix = above, f"{name}/{prefix}"
        folders.append((repository, prefix))
    rules: Rules = ()
    if patterns := _load(os.path.join(repository, ".git", "info", "exclude")):
        rules = (IgnoreFile(".git/info/exclude", 0, prefix, patterns),)
    for folder, relative in reversed(folders):
        for name in names:
            path = os.path.join(folder, name)
            if patterns := _load(path):
                rules = (*rules, IgnoreFile(path, 0, relative, patterns))
    # The user named this folder, so it is indexed even if the repository ignores it.
    decisive = last_match(rules, "")
    return () if decisive and decisive.ignores else rules


def last_match(rules: Rules, path: str) -> Rule | None:
    """Return the rule that decides about a path, or None where no rule matches."""
    for file in reversed(rules):
        if rule := file.last_match(path):
            return rule
    return None


def _load(path: str) -> Patterns | None:
    """Read an ignore file; as in git, one that is a symbolic link has no effect."""
    from marklight.ingest.read import first_bytes

    try:
        return None if os.path.islink(path) else _parsed(first_bytes(path, _LIMIT_BYTES))
    except OSError:
        return None


@lru_cache(maxsize=64)
def _parsed(data: bytes) -> Patterns | None:
    """Parse an ignore file; equal files of many folders are parsed once."""
    return Patterns(data.decode("utf-8-sig", "replace").splitlines()) or None


class PathFilter:
    """Decides which paths of one collection are indexed."""

    def __init__(self, options: Discover, root: str, others: frozenset[str]) -> None:
        self.options, self.root, self.others = options, root, others
        self.include = Patterns(options.include) if options.include else None
        self.exclude = Patterns(options.exclude) if options.exclude else None

    @cached_property
    def is_document(self) -> Callable[[str, str], bool]:
        """Return the predicate of folder and name for documents."""
        return is_document(self.options.parsers)

    @cached_property
    def rules_above(self) -> Rules:
        """Return the ignore files of the folders above the collection."""
        return rules_above(self.root, self.options.ignore_files)

    def excludes(self, relative: str, rules: Rules) -> bool:
        """Return true if patterns or rules exclude a path; a folder's path ends in a slash."""
        decided = rules or self.include or self.exclude
        return bool(decided) and self._excluded_by(relative, rules) is not None

    def may_follow(self, target: str) -> bool:
        """Return true if symbolic links to this target are followed."""
        within = inside(target, self.root) or self.options.follow_outside
        owned = any(inside(target, other) and len(other) > len(self.root) for other in self.others)
        # A link to a folder above would walk the collection inside itself.
        return within and not owned and not inside(self.root, target)

    def reason_excluded(self, path: str) -> str | None:
        """Follow the walk down to a path and return why it stops before; None if the path is indexed."""
        steps = os.path.relpath(path, self.root).split(os.sep)
        rules = self.rules_above
        folder, relative = self.root, ""
        for number, name in enumerate(steps):
            rules = (*rules, *rules_in(folder, relative, self.options.ignore_files))
            step = os.path.join(folder, name)
            is_folder = number < len(steps) - 1 or os.path.isdir(step)
            relative += name + "/" * is_folder
            if reason := self._step_excluded(name, step, relative, rules):
                return reason
            folder = step
        if not os.path.lexists(path):
            return "no such file"
        if os.path.isdir(path):
            return None
        return self._no_parser(relative[: -len(steps[-1])], steps[-1])

    def _step_excluded(self, name: str, path: str, relative: str, rules: Rules) -> str | None:
        if name in NEVER:
            return f"{relative} is never indexed"
        if name.startswith(".") and not self.options.hidden:
            return f"{relative} is hidden, and the setting files.hidden is off"
        if reason := self._excluded_by(relative, rules):
            return reason
        if relative.endswith("/") and nested_test()(path):
            return f"{relative} is a library with an index of its own"
        return f"{relative} {self._link_reason(path)}" if os.path.islink(path) else None

    def _no_parser(self, folder: str, name: str) -> str | None:
        if self.is_document(folder, name):
            return None
        patterns = [
            pattern for pattern in self.options.parsers if matches_pattern(folder + name, pattern)
        ]
        if patterns:
            return f"the setting files.parsers excludes {patterns[0]!r}"
        return "no pattern in the setting files.parsers matches its name"

    def _excluded_by(self, relative: str, rules: Rules) -> str | None:
        """Return the pattern or rule that excludes a path, as a phrase."""
        if self.exclude and (match := self.exclude.last_match(relative)) and match.ignores:
            return f"the setting files.exclude contains {match.pattern!r}"
        if self.include and not relative.endswith("/"):
            match = self.include.last_match(relative)
            if not match or not match.ignores:
                return "no pattern in the setting files.include matches it"
        rule = last_match(rules, relative) if rules else None
        return f"ignored by {rule}" if rule and rule.ignores else None

    def _link_reason(self, path: str) -> str:
        target = os.path.realpath(path)
        if not os.path.exists(target):
            return "is a broken symbolic link"
        if not self.may_follow(target):
            return f"is a symbolic link to {target}, outside the collection"
        return f"is a symbolic link to {target}, which is indexed under its own path"


def check_encoding() -> None:
    """Raise `UsageError` if Python cannot decode the names of files: documents would seem to be gone."""
    if sys.getfilesystemencoding().lower() not in ("utf-8", "utf8"):
        raise UsageError(
            f"Python decodes names of files as {sys.getfilesystemencoding()} here, not as UTF-8",
            "Set the environment variable PYTHONUTF8=1",
        )


def collection_roots(collections: Mapping[str, Path]) -> tuple[dict[str, str], dict[str, str]]:
    """Return the real folder of each collection, and why others have none; UsageError if all are missing."""
    roots: dict[str, str] = {}
    missing: dict[str, str] = {}
    for name, path in collections.items():
        root = os.path.realpath(path)
        if not os.path.isdir(root):
            what = "is not a folder" if os.path.exists(root) else "does not exist"
            missing[name] = f"{path} {what}"
            continue
        if root != os.path.abspath(path):
            # A library resolves its collections when it is opened: this one was replaced since, perhaps by a `git pull`.
            missing[name] = f"{path} has become a symbolic link to {root}"
            continue
        if root in roots.values():
            raise UsageError(f"Collection {name!r} has the same folder as another one: {path}")
        roots[name] = root
    if missing and not roots:
        name, reason = next(iter(missing.items()))
        raise UsageError(f"Collection {name!r}: {reason}", "Name an existing folder")
    return roots, missing
