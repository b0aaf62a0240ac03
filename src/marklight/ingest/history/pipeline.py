"""The indexing page of history: look, read messages and diffs, cut, commit; then embed, commit by commit."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace

from marklight.ingest.embedding import Indexing
from marklight.ingest.history import cut
from marklight.ingest.history.changes import Changed, Changes
from marklight.ingest.history.commit_diff import CommitDiff, commit_diff, differs, forgotten, names
from marklight.ingest.history.objects import Unreadable, Written, written
from marklight.ingest.history.repository import Repository
from marklight.ingest.history.understand import understand
from marklight.model import Batch, DocumentId, Entry, Failure
from marklight.ports import Progress, Snapshot, silent
from marklight.report import Report
from marklight.text import chunk_embedding_text, digest

BATCH = 256
"""Commits of a repository in one commit of the index: a second of work."""


@dataclass(frozen=True, slots=True)
class CommitIngest(Indexing):
    """Repositories, and the engine that their commits live in."""

    repositories: Mapping[str, Repository]
    diff_lines: int
    unread: frozenset[str] = frozenset()
    """Repositories that git does not read now; what is known of them stays."""

    def differs(self) -> bool:
        """Whether commits came or went since the last look."""
        with self.engine.snapshot() as snapshot:
            return bool(self._left(snapshot)) or any(
                differs(name, each, self.recipe, snapshot)
                for name, each in self.repositories.items()
            )

    def index_text(
        self, progress: Progress = silent, until: float | None = None, *, rebuild: bool = False
    ) -> Report:
        """Read what came and drop what went, newest first; what a `time.monotonic` cuts short goes on next time."""
        report = self._leave()
        for name, repository in self.repositories.items():
            recipe = self.recipe
            with self.engine.snapshot() as snapshot:
                if not rebuild and not differs(name, repository, recipe, snapshot):
                    continue
                found = commit_diff(name, repository, "" if rebuild else recipe, snapshot)
            found = replace(found, now=replace(found.now, recipe=recipe))
            report = self._follow(repository, found, report, progress, until)
        return report

    def recut(self, ids: Iterable[DocumentId]) -> list[Entry]:
        """Commits with passages too long for the model, in smaller ones."""
        with self.engine.snapshot() as snapshot:
            documents = [found for id in ids if (found := snapshot.documents.get(id))]
        return [self._fitting(cut.cut(each)) for each in documents]

    @property
    def recipe(self) -> str:
        """Changes whenever a commit would be understood or cut differently."""
        return digest(cut.VERSION, str(self.diff_lines), size=8)

    def _left(self, snapshot: Snapshot) -> list[str]:
        here = {*self.repositories, *self.unread}
        return [name for name in names(snapshot.status.manifest()) if name not in here]

    def _leave(self) -> Report:
        """Drop commits of repositories that are no longer the library's."""
        with self.engine.snapshot() as snapshot:
            left = self._left(snapshot)
            ids = [id for id in snapshot.documents.files() if id.collection in left] if left else []
        for name in left:
            own = tuple(id for id in ids if id.collection == name)
            self.engine.commit(Batch(removed=own, manifest=forgotten(name)))
        return Report(removed=tuple(ids))

    def _follow(
        self,
        repository: Repository,
        found: CommitDiff,
        report: Report,
        progress: Progress,
        until: float | None,
    ) -> Report:
        done, total = 0, len(found.new)
        with closing(Changes(repository, self.diff_lines)) as changes:
            while done < total and (until is None or time.monotonic() < until):
                progress("Reading commits", done, total)
                batch = self._read(repository, found, found.new[done : done + BATCH], changes)
                self.engine.commit(batch)
                done += BATCH
                report = replace(
                    report,
                    added=(*report.added, *(each.document.id for each in batch.entries)),
                    skipped=(*report.skipped, *batch.failures),
                    remarks=(
                        *report.remarks,
                        *(
                            (e.document.id, said)
                            for e in batch.entries
                            for said in e.document.remarks
                        ),
                    ),
                )
        if done < total:
            left = f"{done} of {total} commits are read; the next question goes on from there"
            return replace(report, notices=(*report.notices, left))
        gone = tuple(DocumentId(found.name, hash) for hash in found.gone)
        now = replace(found.now, lacking=changes.lacking or found.now.lacking)
        # With this the repository counts as read; until then every look finds what is missing.
        self.engine.commit(Batch(removed=gone, manifest=now.noted(found.name)))
        return replace(report, removed=(*report.removed, *gone))

    def _read(
        self, repository: Repository, found: CommitDiff, hashes: Sequence[str], changes: Changes
    ) -> Batch:
        commits: list[Written] = []
        failures: list[Failure] = []
        for each in written(repository, hashes):
            if isinstance(each, Unreadable):
                failures.append(Failure(DocumentId(found.name, each.hash), each.reason))
            else:
                commits.append(each)
        # A merge shows what its branches did, which stands there already; of a commit at the edge of a
        # shallow clone git would show all files as new.
        shown = [
            each.hash
            for each in commits
            if len(each.parents) < 2 and each.hash not in found.now.edge
        ]
        changed = dict(zip(shown, changes(shown), strict=True))
        entries = (
            cut.cut(understand(found.name, each, changed.get(each.hash, Changed()), self.recipe))
            for each in commits
        )
        return Batch(entries=tuple(entries), failures=tuple(failures))

    def _fitting(self, entry: Entry) -> Entry:
        """In passages half as long, until the model reads all of each or they are too short to tell anything."""
        size = cut.MOST_CHARS
        while self.embedder and size > cut.MOST_CHARS // 8:
            lengths = self.embedder.count_tokens(
                [chunk_embedding_text(chunk) for chunk in entry.chunks]
            )
            if max(lengths) <= self.embedder.token_limit:
                break
            size //= 2
            entry = cut.cut(entry.document, size)
        return entry
