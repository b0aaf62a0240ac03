"""One batch of files: what was read, what only changed its time, what failed, what is gone."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from marklight.errors import Refused
from marklight.ingest.discover import Found
from marklight.ingest.parse import understand
from marklight.ingest.parse.form import Parsed
from marklight.ingest.read import Hindered, Source, read
from marklight.ingest.timestamps import stored_state, wait_for_tick
from marklight.model import Batch, DocumentId, Entry, Failure, FileState
from marklight.ports import IndexedFile
from marklight.report import Report
from marklight.text import digest


@dataclass(slots=True)
class Work:
    """Takes files one by one; one bad file is a line in the report and no more."""

    parsers: Mapping[str, str]
    recipe: str
    max_bytes: int
    known: Mapping[DocumentId, IndexedFile]
    failed: Mapping[DocumentId, Failure]
    parsed: list[Parsed] = field(default_factory=list)
    touched: list[tuple[DocumentId, FileState]] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    gone: list[DocumentId] = field(default_factory=list)

    def take(self, found: Found, *, rebuild: bool) -> None:
        """Read and parse one file."""
        known, failed = self.known.get(found.id), self.failed.get(found.id)
        before = known.file if known else failed.file if failed else None
        # The clock is read before the file: an edit after this moment must be seen by the next scan.
        read_ns = wait_for_tick(found.file)
        try:
            source = read(found.path, self.max_bytes, found.identity)
        except Refused as refused:
            hindered = isinstance(refused, Hindered)
            state = None if hindered else stored_state(found.file, read_ns, before)
            there = os.path.lexists(found.path)
            self._leave_out(found.id, Failure(found.id, str(refused), state) if there else None)
            return
        source = replace(source, file=stored_state(source.file, read_ns, before))
        if known and not rebuild and self._same(known, source):
            if source.file != known.file:
                self.touched.append((found.id, source.file))
        else:
            self.understand(found.id, source)

    def _same(self, known: IndexedFile, source: Source) -> bool:
        return (known.digest, known.recipe) == (digest(source.text), self.recipe)

    def understand(self, id: DocumentId, source: Source) -> None:
        """Parse one text; whatever is wrong with it or with its parser, the others go on."""
        try:
            self.parsed.append(understand(id, source, self.parsers, self.recipe))
        except Exception as error:
            self._leave_out(id, _not_understood(id, error, source.file))

    def cut(self, chunker: Callable[[Sequence[Parsed]], Sequence[Entry]]) -> list[Entry]:
        """What was parsed, in passages; a document that cannot be cut is a failure like any other."""
        try:
            return list(chunker(self.parsed))
        except Exception:
            entries: list[Entry] = []
            taken, self.parsed = self.parsed, []
        for parsed in taken:
            document = parsed.document
            try:
                entries.extend(chunker([parsed]))
                self.parsed.append(parsed)
            except Exception as error:
                self._leave_out(document.id, _not_understood(document.id, error, document.file))
        return entries

    def batch(self, entries: Sequence[Entry], moved: Mapping[DocumentId, DocumentId]) -> Batch:
        """All of it as one commit; a moved document leaves its old place in the same one."""
        return Batch(
            entries=tuple(entries),
            removed=(*moved.values(), *self.gone),
            touched=tuple(self.touched),
            failures=tuple(self.failures),
        )

    def told(self, report: Report, moved: Mapping[DocumentId, DocumentId]) -> Report:
        """The report with this batch in it; `moved` is new place to old."""
        ids = [parsed.document.id for parsed in self.parsed]
        return replace(
            report,
            added=(*report.added, *(id for id in ids if id not in self.known and id not in moved)),
            changed=(*report.changed, *(id for id in ids if id in self.known)),
            moved=(*report.moved, *((old, new) for new, old in moved.items())),
            removed=(*report.removed, *(id for id in self.gone if id not in ids)),
            skipped=(*report.skipped, *self.failures),
            remarks=(
                *report.remarks,
                *(
                    (each.document.id, said)
                    for each in self.parsed
                    for said in each.document.remarks
                ),
            ),
        )

    def _leave_out(self, id: DocumentId, failure: Failure | None) -> None:
        if id in self.known:
            self.gone.append(id)
        # The same failure once more is no news: it must not make a commit in every run.
        if failure and (id in self.known or failure != self.failed.get(id)):
            self.failures.append(failure)


def _not_understood(id: DocumentId, error: Exception, file: FileState) -> Failure:
    return Failure(id, f"could not be understood: {type(error).__name__}: {error}", file)


def moves(
    entries: Sequence[Entry],
    known: Mapping[DocumentId, IndexedFile],
    leaving: dict[str, DocumentId],
) -> dict[DocumentId, DocumentId]:
    """New documents with the words of one that left: new place to old, each old one used once."""
    return {
        entry.document.id: leaving.pop(entry.document.digest)
        for entry in entries
        if entry.document.id not in known and entry.document.digest in leaving
    }
