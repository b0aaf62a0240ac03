"""Follow a library's files from the command line: a line for each batch of changes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from marklight.errors import UsageError
from marklight.escaping import one_line
from marklight.library import Library
from marklight.report import Report
from marklight.surfaces import render
from marklight.surfaces.cli.options import note, open_library, show, show_json
from marklight.surfaces.cli.progress import Bar

MOST_NAMES = 10
"""Of each kind in one line."""


def watch(
    path: Path | None,
    assignments: Sequence[str],
    *,
    rebuild: bool,
    history: bool | None,
    as_json: bool,
) -> int:
    """Index, then follow until an interrupt, which is how it is meant to end."""
    with open_library(path, assignments) as library:
        if not isinstance(library, Library):
            raise UsageError(
                "a daemon serves this library and follows its files already",
                "`marklight stop` ends it",
            )
        with Bar(library.place.folder) as bar:
            report = library.index(rebuild=rebuild, history=history, progress=bar)
        _tell(report, render.report_text(report), as_json)
        note("following the files; Ctrl-C ends it")
        changes = library.watch()
        try:
            for report in changes:
                _tell(report, batch_line(report), as_json)
        except KeyboardInterrupt:
            return 0
        finally:
            changes.close()
    return 0


def batch_line(report: Report) -> str:
    """What changed, by its paths."""
    kinds = {
        "added": [id.path for id in report.added],
        "changed": [id.path for id in report.changed],
        "moved": [f"{old.path} → {new.path}" for old, new in report.moved],
        "removed": [id.path for id in report.removed],
        "skipped": [f"{one.document.path} ({one.reason})" for one in report.skipped],
    }
    parts = []
    for kind, names in kinds.items():
        if names:
            more = f" and {len(names) - MOST_NAMES} more" * (len(names) > MOST_NAMES)
            parts.append(f"{kind} {', '.join(names[:MOST_NAMES])}{more}")
    return one_line("; ".join(parts))


def _tell(report: Report, text: str, as_json: bool) -> None:
    for notice in (*report.notices, *(report.history.notices if report.history else ())):
        note(notice)
    if as_json:
        show_json(report.to_dict(), indent=None)
    elif text:
        show(text)
