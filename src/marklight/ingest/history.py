"""THE INDEXING PIPELINE OF COMMITS: compare, read messages and diffs, chunk, commit; then embed, commit by commit."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import replace

import msgspec

from marklight.ingest.commits import (
    VERSION,
    CommitChanges,
    CommitObject,
    DiffReader,
    chunk_commit,
    commit_document,
    read_commits,
)
from marklight.ingest.embedding import Indexing
from marklight.ingest.git import Repository
from marklight.lazy import dataclass
from marklight.model import Batch, DocumentId, Entry, Failure, digest
from marklight.ports import Progress, Snapshot, no_progress
from marklight.report import Report

BATCH = 256
"""Git commits in one commit of the index: a second of work."""
_KEY = "history "
"""Prefix of the manifest keys; the name of the repository follows."""


@dataclass(frozen=True, slots=True)
class RepositoryState:
    """The state of a repository when all of it was last indexed; stored in the manifest."""

    tips: frozenset[str] = frozenset()
    edge: frozenset[str] = frozenset()
    """The commits at which it ended, if it was a shallow clone."""
    recipe: str = ""
    problem: str = ""
    """Why some commits could not be read."""
    diff_problem: str = ""
    """Why diffs could not be read."""

    @classmethod
    def stored(cls, manifest: Mapping[str, str], name: str) -> RepositoryState:
        """Return the stored state; an empty one if there is none or it cannot be parsed."""
        try:
            return msgspec.json.decode(manifest[_KEY + name], type=cls)
        except (KeyError, msgspec.MsgspecError):
            return cls()

    def to_manifest(self, name: str) -> Mapping[str, str]:
        """Return the manifest entry."""
        return {_KEY + name: msgspec.json.encode(self, order="deterministic").decode()}


@dataclass(frozen=True, slots=True)
class CommitDiff:
    """The difference between a repository and the index."""

    name: str
    state: RepositoryState
    """To store once the difference is indexed."""
    new: Sequence[str]
    """Newest first."""
    removed: Sequence[str]


@dataclass(frozen=True, slots=True)
class CommitIngest(Indexing):
    """Indexes the commits of git repositories. Embedding, the last step, is `Indexing.embed_missing`."""

    repositories: Mapping[str, Repository]
    diff_lines: int
    unread: frozenset[str] = frozenset()
    """Repositories that git cannot read now; their commits stay in the index."""

    @property
    def recipe(self) -> str:
        """Return a digest that changes whenever a commit would be read or chunked differently."""
        return digest(VERSION, str(self.diff_lines), size=8)

    def differs(self) -> bool:
        """Return true if commits were added or removed since they were last indexed."""
        with self.engine.snapshot() as snapshot:
            return bool(self._dropped_repositories(snapshot)) or any(
                self._has_changed(name, repository, snapshot)
                for name, repository in self.repositories.items()
            )

    def index_text(
        self, progress: Progress = no_progress, until: float | None = None, *, rebuild: bool = False
    ) -> Report:
        """Index new commits, newest first, and drop removed ones.

        At `until`, a `time.monotonic` value, it stops; the next call continues.
        """
        report = self._drop_repositories()
        for name, repository in self.repositories.items():
            with self.engine.snapshot() as snapshot:
                if not rebuild and not self._has_changed(name, repository, snapshot):
                    continue
                diff = self._compare(name, repository, snapshot, rebuild=rebuild)
            report = self._apply(repository, diff, report, progress, until)
        return report

    def _dropped_repositories(self, snapshot: Snapshot) -> list[str]:
        current = {*self.repositories, *self.unread}
        manifest = snapshot.status.manifest().items()
        indexed = [
            key.removeprefix(_KEY) for key, value in manifest if key.startswith(_KEY) and value
        ]
        return [name for name in indexed if name not in current]

    def _drop_repositories(self) -> Report:
        """Remove the commits of repositories that are no longer part of the library."""
        with self.engine.snapshot() as snapshot:
            dropped = self._dropped_repositories(snapshot)
            files = snapshot.documents.files() if dropped else ()
        removed = tuple(id for id in files if id.collection in dropped)
        if dropped:
            cleared = {_KEY + name: "" for name in dropped}
            self.engine.commit(Batch(removed=removed, manifest=cleared))
        return Report(removed=removed)

    def _has_changed(self, name: str, repository: Repository, snapshot: Snapshot) -> bool:
        """Return true if refs or recipe changed; takes milliseconds, whatever the repository's size."""
        before = RepositoryState.stored(snapshot.status.manifest(), name)
        now = (repository.tips(), repository.shallow_edge(), self.recipe)
        return now != (before.tips, before.edge, before.recipe)

    def _compare(
        self, name: str, repository: Repository, snapshot: Snapshot, *, rebuild: bool
    ) -> CommitDiff:
        """Compare what the refs reach now with what they reached before; compare all commits only where that fails."""
        before = RepositoryState.stored(snapshot.status.manifest(), name)
        state = RepositoryState(repository.tips(), repository.shallow_edge(), self.recipe)
        same = (before.edge, before.recipe, before.problem) == (state.edge, state.recipe, "")
        if same and not rebuild and before.tips and repository.has_objects(before.tips):
            new, problem = repository.reachable(state.tips - before.tips, before.tips)
            removed, removed_problem = repository.reachable(before.tips - state.tips, state.tips)
            if not (problem or removed_problem):
                ids = (DocumentId(name, hash) for hash in (*new, *removed))
                indexed = snapshot.documents.modified_times(ids)
                return CommitDiff(
                    name,
                    replace(state, diff_problem=before.diff_problem),
                    [hash for hash in new if (name, hash) not in indexed],
                    [hash for hash in removed if (name, hash) in indexed],
                )
        reached, problem = repository.reachable(state.tips)
        if problem:
            reached = _reachable_around_damage(repository, state.tips)
        files = snapshot.documents.files()
        recipes = {id.path: file.recipe for id, file in files.items() if id.collection == name}
        # Commits at a changed edge of a shallow clone are read again.
        edge_changed = before.edge ^ state.edge
        current = {
            hash
            for hash, recipe in recipes.items()
            if recipe == state.recipe and hash not in edge_changed and not rebuild
        }
        new = [hash for hash in reached if hash not in current]
        # A commit that damage makes unreachable is not removed.
        removed = [] if problem else list(recipes.keys() - set(reached))
        return CommitDiff(name, replace(state, problem=problem), new, removed)

    def _apply(
        self,
        repository: Repository,
        diff: CommitDiff,
        report: Report,
        progress: Progress,
        until: float | None,
    ) -> Report:
        """Read and commit the new commits in batches; then remove the others and store the state."""
        done, waiting, total = 0, 0, len(diff.new)
        with closing(DiffReader(repository, self.diff_lines)) as diffs:
            while done < total and (until is None or time.monotonic() < until):
                progress("Reading commits", done, total)
                batch = self._read(repository, diff, diff.new[done : done + BATCH], diffs)
                kept = self._without_vectors(batch.entries, until)
                waiting += len(kept)
                entries = tuple(entry for entry in batch.entries if entry.document.id not in kept)
                batch = replace(batch, entries=entries)
                if batch:
                    self.engine.commit(batch)
                done += BATCH
                documents = [entry.document for entry in batch.entries]
                report += Report(
                    added=tuple(document.id for document in documents),
                    skipped=batch.failures,
                    remarks=tuple((one.id, text) for one in documents for text in one.remarks),
                )
        if done < total or waiting:
            done = min(done, total) - waiting
            notice = f"{done} of {total} commits are indexed; the next search continues"
            return report + Report(notices=(notice,))
        removed = tuple(DocumentId(diff.name, hash) for hash in diff.removed)
        state = replace(diff.state, diff_problem=diffs.problem or diff.state.diff_problem)
        # Only now is the repository recorded as indexed; until then every comparison lists what is missing.
        self.engine.commit(Batch(removed=removed, manifest=state.to_manifest(diff.name)))
        return report + Report(removed=removed)

    def _without_vectors(self, entries: Sequence[Entry], until: float | None) -> set[DocumentId]:
        """Embed the passages that replace those of other settings; return the commits that must keep theirs for now."""
        with self.engine.snapshot() as snapshot:
            indexed = snapshot.documents.files_of([entry.document.id for entry in entries])
            embedded = snapshot.status.models()
        replacing = [entry for entry in entries if entry.document.id in indexed]
        if not replacing or not embedded or (self.embedder is None and until is None):
            return set()
        chunks = [chunk for entry in replacing for chunk in entry.chunks]
        if self.embedder is not None and self.embed_ahead(chunks, until)[1]:
            return set()
        return {entry.document.id for entry in replacing}

    def _read(
        self, repository: Repository, diff: CommitDiff, hashes: Sequence[str], diffs: DiffReader
    ) -> Batch:
        """Read commits and their diffs, and cut them into passages."""
        commits: list[CommitObject] = []
        failures: list[Failure] = []
        for commit in read_commits(repository, hashes):
            if isinstance(commit, CommitObject):
                commits.append(commit)
            else:
                failures.append(Failure(DocumentId(diff.name, commit.hash), commit.reason))
        # A merge repeats the changes of its branches, and at the edge of a shallow clone git would show all files as new.
        edge = diff.state.edge
        with_diff = [
            commit.hash for commit in commits if len(commit.parents) < 2 and commit.hash not in edge
        ]
        changes = dict(zip(with_diff, diffs(with_diff), strict=True))
        documents = (
            commit_document(
                diff.name, commit, changes.get(commit.hash, CommitChanges()), self.recipe
            )
            for commit in commits
        )
        return Batch(entries=tuple(map(chunk_commit, documents)), failures=tuple(failures))


def _reachable_around_damage(repository: Repository, tips: Iterable[str]) -> list[str]:
    """Return the reachable commits, reading them one by one and skipping damaged ones, where git stops at the first."""
    order = [whole for tip in sorted(tips) if (whole := repository.full_hash(tip))]
    seen = set(order)
    for commit in read_commits(repository, order):
        if isinstance(commit, CommitObject):
            order.extend(new := [parent for parent in commit.parents if parent not in seen])
            seen.update(new)
    return order
