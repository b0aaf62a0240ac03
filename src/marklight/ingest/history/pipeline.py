"""THE INDEXING PIPELINE OF COMMITS: compare, read messages and diffs, chunk, commit; then embed, commit by commit."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace

from marklight.batch import Batch, Failure
from marklight.ingest.embedding import Indexing
from marklight.ingest.history.commit_diff import (
    CommitDiff,
    cleared_state,
    commit_diff,
    has_changed,
    indexed_names,
)
from marklight.ingest.history.commits import (
    VERSION,
    UnreadableCommit,
    chunk_commit,
    commit_document,
    read_commits,
)
from marklight.ingest.history.diffs import CommitChanges, DiffReader
from marklight.ingest.history.repository import Repository
from marklight.model import DocumentId
from marklight.ports import Progress, Snapshot, no_progress
from marklight.report import Report
from marklight.text import digest

BATCH = 256
"""Git commits in one commit of the index: a second of work."""


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
                has_changed(name, each, self.recipe, snapshot)
                for name, each in self.repositories.items()
            )

    def index_text(
        self, progress: Progress = no_progress, until: float | None = None, *, rebuild: bool = False
    ) -> Report:
        """Index new commits, newest first, and drop removed ones.

        At `until`, a `time.monotonic` value, it stops; the next call continues.
        """
        report = self._drop_repositories()
        for name, repository in self.repositories.items():
            recipe = self.recipe
            with self.engine.snapshot() as snapshot:
                if not rebuild and not has_changed(name, repository, recipe, snapshot):
                    continue
                diff = commit_diff(name, repository, "" if rebuild else recipe, snapshot)
            diff = replace(diff, state=replace(diff.state, recipe=recipe))
            report = self._apply(repository, diff, report, progress, until)
        return report

    def _dropped_repositories(self, snapshot: Snapshot) -> list[str]:
        current = {*self.repositories, *self.unread}
        return [name for name in indexed_names(snapshot.status.manifest()) if name not in current]

    def _drop_repositories(self) -> Report:
        """Remove the commits of repositories that are no longer part of the library."""
        with self.engine.snapshot() as snapshot:
            dropped = self._dropped_repositories(snapshot)
            files = snapshot.documents.files() if dropped else ()
            ids = [id for id in files if id.collection in dropped]
        for name in dropped:
            own = tuple(id for id in ids if id.collection == name)
            self.engine.commit(Batch(removed=own, manifest=cleared_state(name)))
        return Report(removed=tuple(ids))

    def _apply(
        self,
        repository: Repository,
        diff: CommitDiff,
        report: Report,
        progress: Progress,
        until: float | None,
    ) -> Report:
        done, waiting, total = 0, 0, len(diff.new)
        with closing(DiffReader(repository, self.diff_lines)) as diffs:
            while done < total and (until is None or time.monotonic() < until):
                progress("Reading commits", done, total)
                batch = self._read(repository, diff, diff.new[done : done + BATCH], diffs)
                kept = self._without_vectors(batch, until)
                waiting += len(kept)
                entries = tuple(each for each in batch.entries if each.document.id not in kept)
                batch = replace(batch, entries=entries)
                if batch:
                    self.engine.commit(batch)
                done += BATCH
                documents = [entry.document for entry in batch.entries]
                remarks = ((each.id, text) for each in documents for text in each.remarks)
                report = replace(
                    report,
                    added=(*report.added, *(each.id for each in documents)),
                    skipped=(*report.skipped, *batch.failures),
                    remarks=(*report.remarks, *remarks),
                )
        if done < total or waiting:
            done = min(done, total) - waiting
            notice = f"{done} of {total} commits are indexed; the next search continues"
            return replace(report, notices=(*report.notices, notice))
        removed = tuple(DocumentId(diff.name, hash) for hash in diff.removed)
        state = replace(diff.state, diff_problem=diffs.problem or diff.state.diff_problem)
        # Only now is the repository recorded as indexed; until then every comparison lists what is missing.
        self.engine.commit(Batch(removed=removed, manifest=state.to_manifest(diff.name)))
        return replace(report, removed=(*report.removed, *removed))

    def _without_vectors(self, batch: Batch, until: float | None) -> set[DocumentId]:
        """Embed the passages that replace those of other settings; return the commits that must keep theirs for now."""
        with self.engine.snapshot() as snapshot:
            indexed = snapshot.documents.files_of([each.document.id for each in batch.entries])
            embedded = snapshot.status.models()
        replacing = [each for each in batch.entries if each.document.id in indexed]
        if not replacing or not embedded or (self.embedder is None and until is None):
            return set()
        chunks = [chunk for entry in replacing for chunk in entry.chunks]
        if self.embedder is not None and self.embed_ahead(chunks, until)[1]:
            return set()
        return {entry.document.id for entry in replacing}

    def _read(
        self, repository: Repository, diff: CommitDiff, hashes: Sequence[str], diffs: DiffReader
    ) -> Batch:
        read = list(read_commits(repository, hashes))
        commits = [commit for commit in read if not isinstance(commit, UnreadableCommit)]
        unreadable = [commit for commit in read if isinstance(commit, UnreadableCommit)]
        failures = (Failure(DocumentId(diff.name, each.hash), each.reason) for each in unreadable)
        # A merge repeats the changes of its branches, and at the edge of a shallow clone git would show all files as new.
        edge = diff.state.edge
        with_diff = [
            each.hash for each in commits if len(each.parents) < 2 and each.hash not in edge
        ]
        changes = dict(zip(with_diff, diffs(with_diff), strict=True))
        with_changes = [(commit, changes.get(commit.hash, CommitChanges())) for commit in commits]
        documents = (commit_document(diff.name, *each, self.recipe) for each in with_changes)
        return Batch(entries=tuple(map(chunk_commit, documents)), failures=tuple(failures))
