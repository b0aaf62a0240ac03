"""Commands about the index: index, ignored, doctor."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from marklight.errors import NotFound
from marklight.formatting import one_line
from marklight.place import did_you_mean
from marklight.surfaces import render
from marklight.surfaces.cli.options import (
    AS_JSON,
    IN_PATH,
    SET,
    confirm_first_run,
    in_library,
    open_library,
    open_own,
)
from marklight.surfaces.cli.output import Bar, note, show, show_json

if TYPE_CHECKING:
    from marklight.report import Report

MISSING = "no such file"
"""The reason that `Library.ignored` returns for a file that does not exist."""
MAX_NAMES = 10
"""Paths of each kind in one line of `index --watch`."""


@click.command(short_help="Bring the index up to date.")
@click.argument("paths", metavar="[PATH]...", nargs=-1, type=click.Path(path_type=Path))
@IN_PATH
@click.option(
    "--rebuild", is_flag=True, help="Read all files again; embeddings of unchanged text are kept."
)
@click.option(
    "--history/--no-history",
    default=None,
    help="Also index git commits [default: only if they are already indexed].",
)
@click.option(
    "--watch",
    "watching",
    is_flag=True,
    help="Keep running and index changes as they happen; print a line for each batch. Stop with Ctrl-C.",
)
@click.option(
    "-y", "--yes", is_flag=True, help="Index a home folder or very many files without asking."
)
@AS_JSON
@SET
def index(
    paths: tuple[Path, ...],
    folder: Path | None,
    rebuild: bool,
    history: bool | None,
    watching: bool,
    yes: bool,
    as_json: bool,
    assignments: tuple[str, ...],
) -> int:
    """Bring the index up to date; unchanged files are not read again."""
    if folder is not None and folder not in paths:
        paths = (*paths, folder)
    if watching:
        if len(paths) > 1:
            raise click.UsageError("--watch accepts only one PATH")
        path = next(iter(paths), None)
        return _watch(path, assignments, rebuild, history, yes, as_json)
    reports = []
    for path in paths or (None,):
        with open_library(path, assignments) as library, Bar(library.place.folder) as bar:
            if not yes:
                confirm_first_run(library)
            report = library.index(rebuild=rebuild, history=history, progress=bar)
        _print_notices(report)
        reports.append(report)
    if as_json:
        rows = [report.to_dict() for report in reports]
        show_json(rows[0] if len(rows) == 1 else rows)
    else:
        show("\n".join(map(render.report_text, reports)))
    return 0


def _watch(
    path: Path | None,
    assignments: Sequence[str],
    rebuild: bool,
    history: bool | None,
    yes: bool,
    as_json: bool,
) -> int:
    """Index, then watch the files until Ctrl-C."""
    from marklight.errors import UsageError
    from marklight.library import Library

    with open_library(path, assignments) as library:
        if not isinstance(library, Library):
            raise UsageError(
                "A daemon already keeps this index up to date",
                "To watch here instead, run `marklight serve --stop` first",
            )
        if not yes:
            confirm_first_run(library)
        with Bar(library.place.folder) as bar:
            report = library.index(rebuild=rebuild, history=history, progress=bar)
        _print_batch(report, render.report_text(report), as_json)
        note("Watching for changes. Press Ctrl-C to stop")
        changes = library.watch()
        try:
            for report in changes:
                _print_batch(report, batch_line(report), as_json)
        except KeyboardInterrupt:
            return 0
        finally:
            changes.close()
    return 0


def batch_line(report: Report) -> str:
    """Render a batch of changes as one line with the paths."""
    kinds = {
        "added": list(map(report.name, report.added)),
        "changed": list(map(report.name, report.changed)),
        "moved": [f"{report.name(old)} → {report.name(new)}" for old, new in report.moved],
        "removed": list(map(report.name, report.removed)),
        "skipped": [f"{report.name(skip.document)} ({skip.reason})" for skip in report.skipped],
    }
    parts = []
    for kind, names in kinds.items():
        if names:
            more = f" and {len(names) - MAX_NAMES} more" * (len(names) > MAX_NAMES)
            parts.append(f"{kind} {', '.join(names[:MAX_NAMES])}{more}")
    return one_line("; ".join(parts))


def _print_batch(report: Report, text: str, as_json: bool) -> None:
    _print_notices(report)
    if as_json:
        show_json(report.to_dict(), indent=None)
    elif text:
        show(text)


def _print_notices(report: Report) -> None:
    history = report.history.notices if report.history is not None else ()
    for notice in (*report.notices, *history):
        note(notice)


@click.command(short_help="Show whether a file is ignored, and by which rule.")
@click.argument("file")
@in_library
@AS_JSON
@SET
def ignored(file: str, folder: Path | None, as_json: bool, assignments: tuple[str, ...]) -> int:
    """Show whether a file is left out of the index, and by which rule."""
    path = Path(file).absolute()
    if folder is None and not path.is_relative_to(Path.cwd()):
        folder = next((parent for parent in path.parents if parent.is_dir()), None)
    with open_own(folder, assignments) as library:
        reason = library.ignored(file)
    if reason == MISSING:
        raise NotFound(f"No such file: {file}", did_you_mean(Path(file)))
    if as_json:
        show_json({"path": file, "ignored": bool(reason), "reason": reason})
    else:
        show(one_line(f"{file}: {reason or 'not ignored'}"))
    return 0


@click.command(short_help="Check and repair the installation and the index.")
@in_library
@AS_JSON
@SET
def doctor(folder: Path | None, as_json: bool, assignments: tuple[str, ...]) -> int:
    """Check the installation and the index; repair what can be repaired."""
    from marklight.library.doctor import examine

    findings = examine(folder, assignments)
    if as_json:
        show_json([finding._asdict() for finding in findings])
    else:
        for finding in findings:
            show(one_line(f"{'ok ' if finding.ok else 'BAD'} {finding.part}: {finding.detail}"))
    return 0 if all(finding.ok for finding in findings) else 3
