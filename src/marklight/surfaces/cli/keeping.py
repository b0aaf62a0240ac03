"""Commands that keep the index and tell about it: index, status, ignored, doctor, settings."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from marklight.escaping import one_line
from marklight.surfaces import render
from marklight.surfaces.cli.options import (
    AS_JSON,
    IN_LIBRARY,
    SET,
    note,
    open_library,
    open_own,
    show,
    show_json,
)
from marklight.surfaces.cli.progress import Bar
from marklight.surfaces.cli.setting_values import ignored_values, masked, value_text

if TYPE_CHECKING:
    from marklight.library import Library
    from marklight.surfaces.daemon.client import RemoteLibrary

MOST_ODD = 20
"""Commits that something is odd about, told by name."""


@click.command()
@click.argument("paths", metavar="[PATH]...", nargs=-1, type=click.Path(path_type=Path))
@click.option("--rebuild", is_flag=True, help="Read every file again; vectors are kept.")
@click.option(
    "--history/--no-history",
    default=None,
    help="Commits too; else only where they were searched before.",
)
@click.option(
    "--watch",
    "follow",
    is_flag=True,
    help="Then follow the files, with a line for each batch of changes; Ctrl-C ends it, exit code 0.",
)
@AS_JSON
@SET
def index(
    paths: tuple[Path, ...],
    rebuild: bool,
    history: bool | None,
    follow: bool,
    as_json: bool,
    assignments: tuple[str, ...],
) -> int:
    """Bring the index up to date; unchanged files cost a stat."""
    if follow:
        from marklight.surfaces.cli.watching import watch

        if len(paths) > 1:
            raise click.UsageError("--watch follows one library")
        path = next(iter(paths), None)
        return watch(path, assignments, rebuild=rebuild, history=history, as_json=as_json)
    reports = []
    for path in paths or (None,):
        with open_library(path, assignments) as library, Bar(library.place.folder) as bar:
            report = library.index(rebuild=rebuild, history=history, progress=bar)
        for notice in (
            *report.notices,
            *(report.history.notices if report.history is not None else ()),
        ):
            note(notice)
        reports.append(report)
    if as_json:
        found = [report.to_dict() for report in reports]
        show_json(found[0] if len(found) == 1 else found)
    else:
        show("\n".join(map(render.report_text, reports)))
    return 0


@click.command()
@click.argument("path", required=False, type=click.Path(path_type=Path))
@IN_LIBRARY
@AS_JSON
@SET
def status(
    path: Path | None, folder: Path | None, as_json: bool, assignments: tuple[str, ...]
) -> int:
    """Show what is indexed, what is still to do and what failed."""
    with open_library(folder or path, assignments) as library:
        found = library.status()
        if daemon := running(library):
            found["daemon"] = daemon
    if as_json:
        show_json(found)
        return 0
    failed, remarks = found.pop("failed"), found.pop("remarks")
    for notice in found.pop("notices"):
        note(notice)
    if found["generation"] == 0:
        note("nothing is indexed here yet; `marklight index` or a search does it")
    found["calibrated"] = (
        "yes" if found["calibrated"] else "no, scores were not measured with this model"
    )
    commits = found.get("history", {"failed": [], "remarks": []})
    for each in (found, commits):
        sizes = each.get("sizes", {})
        each["sizes"] = {part: f"{size / 1e6:.1f} MB" for part, size in sizes.items()}
    unread, odd_commits = commits.pop("failed"), commits.pop("remarks")
    show(render.table(render.flat(found) | {"failed": len(failed), "remarks": len(remarks)}))
    for failure in failed:
        show(one_line(f"  failed {failure['path']}: {failure['reason']}"))
    for failure in unread:
        show(one_line(f"  failed commit {failure['commit'][:7]}: {failure['reason']}"))
    for odd in odd_commits[:MOST_ODD]:
        show(one_line(f"  remark commit {odd['commit'][:7]}: {odd['remark']}"))
    if len(odd_commits) > MOST_ODD:
        show(f"  … and {len(odd_commits) - MOST_ODD} more; --json lists them")
    for odd in remarks:
        show(one_line(f"  remark {odd['path']}: {odd['remark']}"))
    return 0


def running(library: Library | RemoteLibrary) -> dict[str, Any] | None:
    """The daemon that serves this library, by whatever settings."""
    from marklight.surfaces.daemon.discovery import state_files
    from marklight.surfaces.daemon.lifecycle import answering_daemon

    for file, _ in list(state_files(library.place.folder)):
        if found := answering_daemon(file):
            return found.to_dict()
    return None


@click.command(short_help="Say whether a file is left out, and by which rule.")
@click.argument("path", type=click.Path(path_type=Path))
@IN_LIBRARY
@AS_JSON
@SET
def ignored(path: Path, folder: Path | None, as_json: bool, assignments: tuple[str, ...]) -> int:
    """Say whether a file is left out of the index, and by which rule."""
    if folder is None and not path.absolute().is_relative_to(Path.cwd()):
        folder = next((above for above in path.absolute().parents if above.is_dir()), None)
    with open_own(folder, assignments) as library:
        reason = library.ignored(path)
    if as_json:
        show_json({"path": str(path), "ignored": bool(reason), "reason": reason})
    else:
        show(one_line(f"{path}: {reason or 'not ignored'}"))
    return 0


@click.command()
@IN_LIBRARY
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


@click.command()
@IN_LIBRARY
@AS_JSON
@SET
def settings(folder: Path | None, as_json: bool, assignments: tuple[str, ...]) -> int:
    """List every setting with its value, where it comes from, and what of a folder's file is ignored."""
    with open_own(folder, assignments) as library:
        found = library.settings
    for notice in found.notices:
        note(notice)
    ignored = ignored_values(found.ignored)
    if as_json:
        rows = {
            key: {
                "value": masked(key, found.values[key]),
                "source": found.sources[key],
                **({"ignored": ignored[key]} if key in ignored else {}),
            }
            for key in sorted(found.values)
        }
        show_json(rows)
        return 0
    lines = {
        key: f"{value_text(key, found.values[key])}  ({found.sources[key]})" for key in found.values
    }
    for key, one in ignored.items():
        value = value_text(key, one["value"])
        lines[key] += f"  [ignored: {value} in {one['source']}: {one['reason']}]"
    show(render.table({key: one_line(lines[key]) for key in sorted(lines)}))
    return 0
