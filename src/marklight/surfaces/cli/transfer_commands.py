"""Commands that move an index: copy, export, import."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from marklight.formatting import one_line
from marklight.surfaces.cli.options import AS_JSON, IN_PATH, SET
from marklight.surfaces.cli.output import Bar, note, show, show_json

if TYPE_CHECKING:
    from marklight.library.transfer import MoveReport

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
    with _Progress() as progress:
        report = copy_index(
            source, target, replace=replace, assignments=assignments, progress=progress
        )
    commits = f" and {report.commits:,} commits" if report.commits else ""
    _print(
        report,
        f"Copied {_contents(report)}{commits} to {report.target}; both indexes are equal",
        as_json,
    )
    return 0


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
    with _Progress() as progress:
        report = export_index(place, file, assignments=assignments, progress=progress)
    _print(
        report,
        f"Exported {_contents(report)} to {report.target} ({report.size / 1e6:.1f} MB)\ndigest {report.digest}",
        as_json,
    )
    return 0


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
    with _Progress() as progress:
        report = import_index(
            file,
            place,
            replace=replace,
            digest=digest,
            assignments=assignments,
            progress=progress,
        )
    _print(report, f"Imported {_contents(report)} into {report.target}", as_json)
    return 0


class _Progress(Bar):
    """A progress bar whose work is kept after an interruption."""

    def __call__(self, phase: str, done: int, total: int) -> None:
        Bar.indexed = Bar.indexed or phase.startswith("Copying")
        super().__call__(phase, done, total)


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


def _print(report: MoveReport, text: str, as_json: bool) -> None:
    for notice in report.notices:
        note(notice)
    if as_json:
        show_json(report.to_dict())
    else:
        show("\n".join(map(one_line, text.split("\n"))))
