"""Commands that search: search, commits, query."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from marklight.formatting import CLOSEST, left_out
from marklight.surfaces import render
from marklight.surfaces.cli.options import (
    COLOR,
    RESULT_FORMATS,
    SET,
    SHOW_ALL,
    confirm_first_run,
    current_folder,
    formats,
    in_library,
    open_for_search,
    open_library,
    options_of,
    style_of,
)
from marklight.surfaces.cli.output import Bar, note, show, show_as, show_aside

EMBEDDING_MODES = ("hybrid", "semantic")

if TYPE_CHECKING:
    from marklight.commits import Commits
    from marklight.library import Library
    from marklight.surfaces.cli.interactive import Session
    from marklight.surfaces.daemon.client import RemoteLibrary


@click.command(short_help="Search a folder.")
@click.argument("query")
@in_library
@RESULT_FORMATS
@options_of("search")
@click.option(
    "--documents",
    is_flag=True,
    help="List all matching documents instead of the best passages, as `marklight list` does.",
)
@COLOR
@SET
def search(
    query: str,
    folder: Path | None,
    format: str,
    as_json: bool,
    assignments: tuple[str, ...],
    documents: bool,
    **options: Any,
) -> int:
    """Search a folder. A new folder is indexed first.

    PATH defaults to the library that contains the current folder.
    """
    format = "json" if as_json else format
    if documents:
        from marklight.surfaces.cli.list_command import list_instead

        return list_instead(query, folder, format, assignments, **options)
    with open_for_search(folder, assignments, refresh=options["refresh"]) as (library, bar):
        answer = library.search(query, near=current_folder(), progress=bar, **options)
    for notice in answer.notices:
        note(notice)
    if answer.hits or format == "json":
        show_as(render.answer_as(answer, format, style_of(library)), format)
    if options["explain"] and format != "json":
        from marklight.surfaces.explain import explanation

        # Standard output of the other formats contains results only.
        if format == "text":
            show(f"\n{explanation(answer)}")
        else:
            click.echo(f"\n{explanation(answer)}", err=True)
    if answer.nearest and format == "text":
        note(f"{answer.abstained}. {CLOSEST}")
        show_aside(render.nearest_text(answer, style_of(library, sys.stderr)))
    elif (reason := answer.empty_reason(SHOW_ALL)) and format != "json":
        note(reason)
    more, stages = left_out(answer)
    if any(hit.similar for hit in answer.hits) and format == "text":
        note("Similar passages are shown as one result. Use --all to see each of them")
    if more and format == "text":
        note(f"{more}. Use --set search.skip={','.join(stages)} to see them")
    if answer.commits and format != "json":
        from marklight.commits import Commits

        assert isinstance(answer.commits, Commits)
        if format in ("text", "md"):
            show("\n## Commits\n" if format == "md" else "\nCommits\n")
        _print_commits(answer.commits, format, style_of(library), options["explain"])
    return 0 if answer.hits or (answer.commits and answer.commits.hits) else 1


@click.command(short_help="Search commits by message and diff.")
@click.argument("query")
@in_library
@formats(render.COMMIT_FORMATS)
@options_of("commits")
@SET
def commits(
    query: str,
    folder: Path | None,
    format: str,
    as_json: bool,
    assignments: tuple[str, ...],
    **options: Any,
) -> int:
    """Search commits by message and diff. A new repository is indexed first."""
    format = "json" if as_json else format
    with open_library(folder, assignments, searching=True) as library, Bar() as bar:
        answer = library.commits(query, progress=bar, **options)
    _print_commits(answer, format, style_of(library), options["explain"])
    return 0 if answer.hits else 1


def _print_commits(answer: Commits, format: str, style: render.Style, explain: bool) -> None:
    """Print commits in one of the formats, then notices and the explanation."""
    from marklight.surfaces.commits import commits_as, with_short_hashes

    for notice in answer.notices:
        note(notice)
    if (answer.hits and format in render.COMMIT_FORMATS) or format == "json":
        show_as(commits_as(answer, format, style), format)
    if explain and format != "json":
        from marklight.surfaces.explain import explanation

        click.echo(
            f"\n{explanation(with_short_hashes(answer))}",
            err=format != "text",
        )
    if (reason := answer.empty_reason(SHOW_ALL)) and format != "json":
        note(reason)


@click.command()
@in_library
@options_of("search", only=("limit", "mode"))
@COLOR
@SET
def query(folder: Path | None, limit: int, mode: str, assignments: tuple[str, ...]) -> int:
    """Start an interactive session: search, read results, refine.

    Queries can also be piped in, one per line. Type help for a list of commands, exit to end.
    """
    from marklight.surfaces.cli.interactive import HINT, Session

    terminal = sys.stdin.isatty() and sys.stdout.isatty()
    with open_library(folder, assignments, searching=True) as library:
        confirm_first_run(library)
        session = Session(library, limit=limit, mode=mode, terminal=terminal)
        if not terminal:
            _prepare(library, mode)
            _run_piped(session)
            return session.code
        show(HINT)
        with _indexing(library, mode) as progress:
            _run_terminal(session, progress)
    return 0


@contextmanager
def _indexing(library: Library | RemoteLibrary, mode: str) -> Iterator[Callable[[], str]]:
    """Index in the background while a session runs; yield a function that returns the progress in a few words."""
    from marklight.surfaces.daemon.client import RemoteLibrary

    if isinstance(library, RemoteLibrary) or mode not in EMBEDDING_MODES:
        yield str  # the daemon indexes, or each search does: keyword search needs no model
        return
    from marklight.library.watching import Watcher

    watcher = Watcher(library)

    def progress() -> str:
        at = watcher.progress
        return f"{at.phase.lower()}, {at.percent} %" if at and at.total else ""

    watcher.start()
    try:
        yield progress
    finally:
        watcher.close()


def _prepare(library: Library | RemoteLibrary, mode: str) -> None:
    """Bring the index up to date before the first query of a pipe."""
    from marklight.errors import Busy

    if mode not in EMBEDDING_MODES:
        return  # needs no model, which may be missing
    try:
        with Bar(library.place.folder) as bar:
            report = library.index(progress=bar)
        for notice in report.notices:
            note(notice)
    except Busy as error:
        note(f"{error}. Searching the index as it is")


def _run_piped(session: Session) -> None:
    """Run lines from a pipe or a file."""
    if isinstance(sys.stdin, io.TextIOWrapper):
        sys.stdin.reconfigure(encoding="utf-8", errors="replace")
    for line in sys.stdin:
        if not session.take(line):
            return


def _run_terminal(session: Session, progress: Callable[[], str]) -> None:
    """Run lines typed at a terminal: Ctrl-C interrupts one, Ctrl-D ends the session."""
    from marklight.private_files import data_folder
    from marklight.surfaces.cli.line_editor import LineFile, line_editor

    editor = line_editor(session, LineFile(data_folder() / "query-history"), progress)
    while True:
        try:
            line = editor.prompt(session.prompt())
        except KeyboardInterrupt:
            continue  # discards the line
        except EOFError:
            return
        try:
            if not session.take(line):
                return
        except KeyboardInterrupt:
            note("Interrupted")
