"""One batch of files: what was read, what only changed its time, what failed, what is gone."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from marklight.answer import Report
from marklight.errors import Refused
from marklight.ingest.discover import Found
from marklight.ingest.parse import understand
from marklight.ingest.parse.form import Parsed
from marklight.ingest.read import read
from marklight.model import Batch, DocumentId, Entry, Failure, FileState
from marklight.ports import Indexed
from marklight.text import digest


@dataclass(slots=True)
class Work:
    """Takes files one by one; one bad file is a line in the report and no more."""

    parsers: Mapping[str, str]
    recipe: str
    max_bytes: int
    parsed: list[Parsed] = field(default_factory=list)
    touched: list[tuple[DocumentId, FileState]] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    gone: list[DocumentId] = field(default_factory=list)

    def take(self, found: Found, known: Indexed | None, *, rebuild: bool) -> None:
        """Read and parse one file."""
        try:
            source = read(found.path, self.max_bytes)
        except Refused as refused:
            if known:
                self.gone.append(found.id)
            if os.path.lexists(found.path):
                self.failures.append(Failure(found.id, str(refused), found.file))
            return
        same = known and (known.digest, known.recipe) == (digest(source.text), self.recipe)
        if same and not rebuild:
            self.touched.append((found.id, source.file))
        else:
            self.parsed.append(understand(found.id, source, self.parsers, self.recipe))

    def batch(self, entries: Sequence[Entry], moved: Mapping[DocumentId, DocumentId]) -> Batch:
        """All of it as one commit; a moved document leaves its old place in the same one."""
        return Batch(
            entries=tuple(entries),
            removed=(*moved.values(), *self.gone),
            touched=tuple(self.touched),
            failures=tuple(self.failures),
        )

    def told(
        self,
        report: Report,
        known: Mapping[DocumentId, Indexed],
        moved: Mapping[DocumentId, DocumentId],
    ) -> Report:
        """The report with this batch in it; `moved` is new place to old."""
        ids = [parsed.document.id for parsed in self.parsed]
        return replace(
            report,
            added=(*report.added, *(id for id in ids if id not in known and id not in moved)),
            changed=(*report.changed, *(id for id in ids if id in known)),
            moved=(*report.moved, *((old, new) for new, old in moved.items())),
            removed=(*report.removed, *(id for id in self.gone if id not in ids)),
            skipped=(*report.skipped, *self.failures),
        )
