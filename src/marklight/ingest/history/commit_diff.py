"""Commit diff: compare the reachable commits of a repository with the indexed ones; list new and removed commits."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from marklight.ingest.history.repository import Repository
from marklight.model import DocumentId
from marklight.ports import Snapshot

_KEY = "history "
"""Prefix of the manifest keys; the name of the repository follows."""


@dataclass(frozen=True, slots=True)
class IndexedState:
    """The state of a repository when all of it was last indexed; stored in the manifest."""

    tips: frozenset[str] = frozenset()
    edge: frozenset[str] = frozenset()
    """The commits at which it ended, if it was a shallow clone."""
    recipe: str = ""
    problem: str = ""
    """Why some commits could not be read."""
    diff_problem: str = ""
    """Why diffs could not be read."""

    def to_manifest(self, name: str) -> Mapping[str, str]:
        """Return the manifest entry."""
        value = {
            "tips": sorted(self.tips),
            "edge": sorted(self.edge),
            "recipe": self.recipe,
            "problem": self.problem,
            "lacking": self.diff_problem,
        }
        return {_KEY + name: json.dumps(value)}


@dataclass(frozen=True, slots=True)
class CommitDiff:
    """The difference between a repository and the index."""

    name: str
    state: IndexedState
    """To store once the difference is indexed."""
    new: tuple[str, ...] = ()
    """Newest first."""
    removed: tuple[str, ...] = ()


def indexed_state(manifest: Mapping[str, str], name: str) -> IndexedState:
    """Return the stored state; an empty one if there is none or it cannot be parsed."""
    try:
        value = json.loads(manifest[_KEY + name])
        tips, edge = frozenset(value["tips"]), frozenset(value["edge"])
        return IndexedState(tips, edge, value["recipe"], value["problem"], value["lacking"])
    except (KeyError, ValueError, TypeError):
        return IndexedState()


def indexed_names(manifest: Mapping[str, str]) -> list[str]:
    """Return the names of the repositories with a stored state."""
    return [
        key.removeprefix(_KEY) for key, value in manifest.items() if key.startswith(_KEY) and value
    ]


def cleared_state(name: str) -> Mapping[str, str]:
    """Return the manifest entry that deletes a stored state."""
    return {_KEY + name: ""}


def has_changed(name: str, repository: Repository, recipe: str, snapshot: Snapshot) -> bool:
    """Return true if refs or recipe changed; takes milliseconds, whatever the repository's size."""
    before = indexed_state(snapshot.status.manifest(), name)
    now = (repository.tips(), repository.shallow_edge(), recipe)
    return now != (before.tips, before.edge, before.recipe)


def commit_diff(name: str, repository: Repository, recipe: str, snapshot: Snapshot) -> CommitDiff:
    """Compare what the refs reach now with what they reached before; compare all commits only where that fails."""
    before = indexed_state(snapshot.status.manifest(), name)
    tips, edge = repository.tips(), repository.shallow_edge()
    same = (edge, recipe) == (before.edge, before.recipe) and before.tips and not before.problem
    if not same or not repository.has_objects(before.tips):
        return _full_diff(name, repository, IndexedState(tips, edge, recipe), snapshot)
    new, problem = repository.reachable(tips - before.tips, before.tips)
    removed, removed_problem = repository.reachable(before.tips - tips, tips)
    if problem or removed_problem:
        return _full_diff(name, repository, IndexedState(tips, edge, recipe), snapshot)
    ids = (DocumentId(name, each) for each in (*new, *removed))
    indexed = snapshot.documents.modified_times(ids)
    return CommitDiff(
        name,
        IndexedState(tips, edge, recipe, diff_problem=before.diff_problem),
        tuple(each for each in new if (name, each) not in indexed),
        tuple(each for each in removed if (name, each) in indexed),
    )


def _full_diff(
    name: str, repository: Repository, state: IndexedState, snapshot: Snapshot
) -> CommitDiff:
    """Compare all reachable commits with all indexed ones; commits at a changed shallow edge are read again."""
    reached, problem = repository.reachable(state.tips)
    if problem:
        reached = repository.reachable_around_damage(state.tips)
    before = indexed_state(snapshot.status.manifest(), name)
    edge_changed = before.edge ^ state.edge
    indexed = {
        id.path: file.recipe
        for id, file in snapshot.documents.files().items()
        if id.collection == name
    }
    current = {
        hash
        for hash, recipe in indexed.items()
        if recipe == state.recipe and hash not in edge_changed
    }
    # A commit that damage makes unreachable is not removed.
    removed = () if problem else tuple(indexed.keys() - set(reached))
    state = IndexedState(state.tips, state.edge, state.recipe, problem)
    return CommitDiff(name, state, tuple(each for each in reached if each not in current), removed)
