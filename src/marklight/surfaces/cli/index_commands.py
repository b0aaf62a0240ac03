"""Commands about the index: index, ignored, doctor, copy, export, import."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from marklight.errors import NotFound
from marklight.formatting import one_line
from marklight.place import did_you_mean, is_recorded, locate
from marklight.surfaces import render
from marklight.surfaces.cli.options import (
    AS_JSON,
    IN_PATH,
    SET,
    confirm_first_run,
    in_library,
    open_library,
    open_own,
    options_of,
)
from marklight.surfaces.cli.output import Bar, note, note_all, show, show_json

if TYPE_CHECKING:
    from marklight.library.transfer import MoveReport
    from marklight.report import Report

MISSING = "no such file"
"""The reason that `Library.ignored` returns for a file that does not exist."""
MAX_NAMES = 10
"""Paths of each kind in one line of `index --watch`."""


@click.command(short_help="Bring the index up to date.")
@click.argument("paths", metavar="[PATH]...", nargs=-1, type=click.Path(path_type=Path))
@IN_PATH
@options_of("index")
@click.option(
    "--watch",
    "watching",
    is_flag=True,
    help="Keep running and index changes as they happen; print a line for each batch. Stop with Ctrl-C.",
)
@click.option(
    "-y",
    "--yes",
    is_flag=True,
    help="Index any folder: a home folder, very many files, an empty one.",
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
                confirm_first_run(library, named=path is not None)
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
            confirm_first_run(library, named=path is not None)
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
    note_all((*report.notices, *(report.history.notices if report.history is not None else ())))


@click.command(short_help="Show whether a file is ignored, and by which rule.")
@click.argument("file")
@in_library
@AS_JSON
@SET
def ignored(file: str, folder: Path | None, as_json: bool, assignments: tuple[str, ...]) -> int:
    """Show whether a file is left out of the index, and by which rule."""
    path = Path(file).absolute()
    if folder is None:
        parent = next(parent for parent in path.parents if parent.is_dir())
        outside = not path.is_relative_to(Path.cwd())
        # Where the current folder is no library, that of the file may be below it.
        below = is_recorded(locate(parent).folder) and not is_recorded(locate(None).folder)
        folder = parent if outside or below else None
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
    from marklight.library.maintenance import examine

    findings = examine(folder, assignments)
    if as_json:
        show_json([finding._asdict() for finding in findings])
    else:
        for finding in findings:
            show(one_line(f"{'ok ' if finding.ok else 'BAD'} {finding.part}: {finding.detail}"))
    return 0 if all(finding.ok for finding in findings) else 3


# Moving an index

REPLACE = click.option(
    "--replace",
    is_flag=True,
    help="Replace an index that has other content; documents and vectors that are equal are not written again.",
)


@click.command(short_help="Copy an index to another engine or folder.")
@click.argument("source", metavar="FROM")
@click.argument("target", metavar="TO")
@REPLACE
@AS_JSON
@SET
def copy(
    source: str, target: str, replace: bool, as_json: bool, assignments: tuple[str, ...]
) -> int:
    """Copy an index with all vectors, and verify the copy.

    FROM and TO are folders of libraries or addresses of engines: file:PATH or postgresql://HOST/DATABASE?library=NAME.
    Run the same command again to continue a copy that was interrupted.

    \b
    marklight copy docs "postgresql://db.example.org/search?library=docs"
    """
    from marklight.library.transfer import copy_index

    _refuse_passwords(source, target)
    with Bar() as progress:
        report = copy_index(
            source, target, replace=replace, assignments=assignments, progress=progress
        )
    commits = f" and {report.commits:,} commits" if report.commits else ""
    done = f"Copied {_contents(report)}{commits} to {report.target}; both indexes are equal"
    return _print_move(report, done, as_json)


@click.command(short_help="Write the index into one file, to share it.")
@click.argument("file", type=click.Path(path_type=Path))
@click.argument("path", required=False)
@IN_PATH
@AS_JSON
@SET
def export(
    file: Path, path: str | None, folder: Path | None, as_json: bool, assignments: tuple[str, ...]
) -> int:
    """Write the index of the library in PATH into FILE, an archive that `marklight import` reads.

    The archive contains the text and the vectors of all documents, but no git commits. PATH can also be the address of
    an engine.
    """
    from marklight.library.transfer import export_index

    place = _place(path, folder)
    _refuse_passwords(place)
    with Bar() as progress:
        report = export_index(place, file, assignments=assignments, progress=progress)
    size = f"({report.size / 1e6:.1f} MB)\ndigest {report.digest}"
    done = f"Exported {_contents(report)} to {report.target} {size}"
    return _print_move(report, done, as_json)


@click.command(name="import", short_help="Read an index from a file that was exported.")
@click.argument("file", type=click.Path(path_type=Path))
@click.argument("path", required=False)
@IN_PATH
@REPLACE
@click.option(
    "--digest", default="", metavar="HEX", help="Refuse the archive unless it has this digest."
)
@AS_JSON
@SET
def import_(
    file: Path,
    path: str | None,
    folder: Path | None,
    replace: bool,
    digest: str,
    as_json: bool,
    assignments: tuple[str, ...],
) -> int:
    """Read the archive FILE into the index of the library in PATH.

    The archive is verified before anything is written. The next search compares the files in PATH with it, and reads and
    embeds only those that differ. PATH can also be the address of an engine.
    """
    from marklight.library.transfer import import_index

    place = _place(path, folder)
    _refuse_passwords(place)
    with Bar() as progress:
        report = import_index(
            file,
            place,
            replace=replace,
            digest=digest,
            assignments=assignments,
            progress=progress,
        )
    return _print_move(report, f"Imported {_contents(report)} into {report.target}", as_json)


def _place(path: str | None, folder: Path | None) -> str:
    if path is not None and folder is not None and path != str(folder):
        raise click.UsageError(f"Two folders are given: {path} and --in {folder}")
    return str(folder) if folder is not None else path if path is not None else "."


def _refuse_passwords(*places: str) -> None:
    """Raise UsageError for an address with a password: every user of the machine can read a command line."""
    from marklight import engines
    from marklight.errors import UsageError

    for place in places:
        if engines.has_scheme(place) and engines.parse_address(place).has_password:
            raise UsageError(
                "The address contains a password, which every user of this machine can read",
                "Set PGPASSWORD or ~/.pgpass instead",
            )


def _contents(report: MoveReport) -> str:
    return (
        f"{report.documents:,} documents, {report.chunks:,} passages and {report.vectors:,} vectors"
    )


def _print_move(report: MoveReport, text: str, as_json: bool) -> int:
    note_all(report.notices)
    if as_json:
        show_json(report.to_dict())
    else:
        show("\n".join(map(one_line, text.split("\n"))))
    return 0
