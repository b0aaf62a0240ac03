"""What differs between a repository and what is indexed of it: commits that came, commits that are gone."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from marklight.ingest.history.repository import Repository
from marklight.model import DocumentId
from marklight.ports import Snapshot

_KEY = "history "


@dataclass(frozen=True, slots=True)
class IndexedState:
    """What of a repository was read to its end: the manifest keeps it."""

    tips: frozenset[str] = frozenset()
    edge: frozenset[str] = frozenset()
    """Where it ended then, if it was a shallow clone."""
    recipe: str = ""
    problem: str = ""
    """Why not all of it could be read."""
    lacking: str = ""
    """Why diffs could not be read."""

    def noted(self, name: str) -> Mapping[str, str]:
        """As the manifest holds it."""
        value = {
            "tips": sorted(self.tips),
            "edge": sorted(self.edge),
            "recipe": self.recipe,
            "problem": self.problem,
            "lacking": self.lacking,
        }
        return {_KEY + name: json.dumps(value)}


@dataclass(frozen=True, slots=True)
class CommitDiff:
    """What is to be done for one repository."""

    name: str
    now: IndexedState
    new: tuple[str, ...] = ()
    """Newest first."""
    gone: tuple[str, ...] = ()


def indexed_state(manifest: Mapping[str, str], name: str) -> IndexedState:
    """What was noted; nothing where that is not understood."""
    try:
        value = json.loads(manifest[_KEY + name])
        tips, edge = frozenset(value["tips"]), frozenset(value["edge"])
        return IndexedState(tips, edge, value["recipe"], value["problem"], value["lacking"])
    except (KeyError, ValueError, TypeError):
        return IndexedState()


def names(manifest: Mapping[str, str]) -> list[str]:
    """Repositories of which something was noted."""
    return [
        key.removeprefix(_KEY) for key, value in manifest.items() if key.startswith(_KEY) and value
    ]


def forgotten(name: str) -> Mapping[str, str]:
    """Nothing is known of it any more."""
    return {_KEY + name: ""}


def differs(name: str, repository: Repository, recipe: str, snapshot: Snapshot) -> bool:
    """Whether anything may have come or gone; a few milliseconds, whatever the repository's size."""
    before = indexed_state(snapshot.status.manifest(), name)
    now = (repository.tips(), repository.shallow_edge(), recipe)
    return now != (before.tips, before.edge, before.recipe)


def commit_diff(name: str, repository: Repository, recipe: str, snapshot: Snapshot) -> CommitDiff:
    """By what branches reach now and reached before; by all commits only where that does not tell."""
    before = indexed_state(snapshot.status.manifest(), name)
    tips, edge = repository.tips(), repository.shallow_edge()
    same = (edge, recipe) == (before.edge, before.recipe) and before.tips and not before.problem
    if not same or not repository.has_objects(before.tips):
        return _whole(name, repository, IndexedState(tips, edge, recipe), snapshot)
    new, problem = repository.reachable(tips - before.tips, before.tips)
    gone, unsure = repository.reachable(before.tips - tips, tips)
    if problem or unsure:
        return _whole(name, repository, IndexedState(tips, edge, recipe), snapshot)
    have = snapshot.documents.modified_times(DocumentId(name, each) for each in (*new, *gone))
    return CommitDiff(
        name,
        IndexedState(tips, edge, recipe, lacking=before.lacking),
        tuple(each for each in new if (name, each) not in have),
        tuple(each for each in gone if (name, each) in have),
    )


def _whole(name: str, repository: Repository, now: IndexedState, snapshot: Snapshot) -> CommitDiff:
    """All that is reachable against all that is there; what was cut off at the edge is read again."""
    reached, problem = repository.reachable(now.tips)
    if problem:
        reached = repository.reachable_around_damage(now.tips)
    before = indexed_state(snapshot.status.manifest(), name)
    again = before.edge ^ now.edge
    have = {
        id.path: each.recipe
        for id, each in snapshot.documents.files().items()
        if id.collection == name
    }
    right = {hash for hash, recipe in have.items() if recipe == now.recipe and hash not in again}
    # What damage hides is not gone.
    gone = () if problem else tuple(have.keys() - set(reached))
    now = IndexedState(now.tips, now.edge, now.recipe, problem)
    return CommitDiff(name, now, tuple(each for each in reached if each not in right), gone)
