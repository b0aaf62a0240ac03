"""What belongs to a collection: by patterns, by rules of its folders and by where links lead; and why a path does not."""

from __future__ import annotations

import os
from functools import cached_property
from typing import TYPE_CHECKING

from marklight.ingest.ignore import Patterns, Rules, decide, rules_above, rules_in
from marklight.ingest.names import inside, is_document
from marklight.ingest.parse import parser_fits

if TYPE_CHECKING:
    from marklight.ingest.discover import Discover

NEVER = frozenset((".marklight", ".git"))


class Bounds:
    """Of one collection, among others that own what is theirs."""

    def __init__(self, options: Discover, root: str, others: frozenset[str]) -> None:
        self.options, self.root, self.others = options, root, others
        self.include = Patterns(options.include) if options.include else None
        self.exclude = Patterns(options.exclude) if options.exclude else None
        self.is_document = is_document(options.parsers)

    @cached_property
    def outer(self) -> Rules:
        """Rules from above the collection."""
        return rules_above(self.root, self.options.ignore_files)

    @property
    def picky(self) -> bool:
        """Whether the settings leave something out, whatever the folders say."""
        return bool(self.include or self.exclude)

    def leaves_out(self, below: str, rules: Rules) -> bool:
        """Whether patterns or these rules leave a path out: a folder's ends in a slash."""
        return self._reason(below, rules) is not None

    def may_follow(self, target: str) -> bool:
        """Whether a symbolic link may lead there."""
        within = inside(target, self.root) or self.options.follow_outside
        owned = any(inside(target, other) and len(other) > len(self.root) for other in self.others)
        # A link to a folder above would walk the collection inside itself.
        return within and not owned and not inside(self.root, target)

    def why(self, path: str) -> str | None:
        """Go down to a path as the walk does, and say where the walk would stop."""
        steps = os.path.relpath(path, self.root).split(os.sep)
        rules = self.outer
        folder, below = self.root, ""
        for number, name in enumerate(steps):
            rules = (*rules, *rules_in(folder, below, self.options.ignore_files))
            here = os.path.join(folder, name)
            is_folder = number < len(steps) - 1 or os.path.isdir(here)
            below += name + "/" * is_folder
            if reason := self._why_here(name, here, below, rules):
                return reason
            folder = here
        if not os.path.lexists(path):
            return "there is no such file"
        if os.path.isdir(path):
            return None
        return self._why_no_document(below[: -len(steps[-1])], steps[-1])

    def _why_here(self, name: str, path: str, below: str, rules: Rules) -> str | None:
        """Why the walk goes no further at this step."""
        if name in NEVER:
            return f"{below} is never part of a library"
        if name.startswith(".") and not self.options.hidden:
            return f"{below} is hidden; the setting files.hidden is off"
        if reason := self._reason(below, rules):
            return reason
        return f"{below} {self._link_reason(path)}" if os.path.islink(path) else None

    def _why_no_document(self, folder: str, name: str) -> str | None:
        if self.is_document(folder, name):
            return None
        fits = [each for each in self.options.parsers if parser_fits(folder + name, each)]
        if fits:
            return f"the setting files.parsers says that {fits[0]!r} is no document"
        return "the setting files.parsers has no parser for its name"

    def _reason(self, below: str, rules: Rules) -> str | None:
        """Why a path is left out, in words."""
        if self.exclude and (decided := self.exclude.decide(below)) and decided.ignores:
            return f"the setting files.exclude has {decided.pattern!r}"
        if self.include and not below.endswith("/"):
            decided = self.include.decide(below)
            if not decided or not decided.ignores:
                return "no pattern in the setting files.include fits it"
        ruled = decide(rules, below) if rules else None
        return f"a rule says so: {ruled}" if ruled and ruled.ignores else None

    def _link_reason(self, path: str) -> str:
        target = os.path.realpath(path)
        if not os.path.exists(target):
            return "is a symbolic link to nothing"
        if not self.may_follow(target):
            return f"is a symbolic link that leads out of the collection, to {target}"
        return f"is a symbolic link to {target}, which is part of the collection by itself"
