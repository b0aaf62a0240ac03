"""Commands that search: search, commits, query, list and ask."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from marklight.formatting import CLOSEST, headed_place, left_out, one_line, quoted, visible
from marklight.operations import OPERATIONS
from marklight.surfaces import render
from marklight.surfaces.cli.options import (
    AS_JSON,
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
    open_own,
    options_of,
    style_of,
)
from marklight.surfaces.cli.output import Bar, note, show, show_as, show_aside, show_json

if TYPE_CHECKING:
    from marklight.answer import Answer
    from marklight.library import Library
    from marklight.results import CitedAnswer, Commits, Sentence
    from marklight.surfaces.cli.interactive import Session
    from marklight.surfaces.daemon.client import RemoteLibrary

EMBEDDING_MODES = ("hybrid", "semantic")


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
        from marklight.results import Commits

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
    from marklight.surfaces.render import commits_as, with_short_hashes

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


@click.command("list", short_help="List all documents that match.")
@click.argument("query", required=False, default="")
@in_library
@RESULT_FORMATS
@options_of("list_documents")
@COLOR
@SET
def list_(
    query: str,
    folder: Path | None,
    format: str,
    as_json: bool,
    assignments: tuple[str, ...],
    **options: Any,
) -> int:
    """List all documents that match QUERY, one a line, and their number.

    A document matches if it contains every word of QUERY, or if search finds it by meaning. Without QUERY,
    all documents that match the filters are listed.
    """
    if folder is None and os.path.isdir(query):
        if os.sep in query or query == os.curdir:
            query, folder = "", Path(query)
        else:
            note(f"{query} is also a folder. To list its documents, use --in {query}")
    return _list(query, folder, "json" if as_json else format, assignments, **options)


def list_instead(
    query: str, folder: Path | None, format: str, assignments: Sequence[str], **options: Any
) -> int:
    """List documents for `search --documents`; raise UsageError for options of passages."""
    context = click.get_current_context()

    def is_given(name: str) -> bool:
        return context.get_parameter_source(name) is not ParameterSource.DEFAULT

    known = {parameter.name for parameter in OPERATIONS["list_documents"].parameters}
    others = [name for name in options if name not in known and is_given(name)]
    if others:
        names = ", ".join(f"--{name.replace('_', '-')}" for name in others)
        raise click.UsageError(f"--documents cannot be combined with {names}", context)
    flags = {name: value for name, value in options.items() if name in known}
    if not is_given("limit"):
        del flags["limit"]
    return _list(query, folder, format, assignments, **flags)


def _list(
    query: str, folder: Path | None, format: str, assignments: Sequence[str], **options: Any
) -> int:
    with open_for_search(folder, assignments, refresh=options["refresh"]) as (library, bar):
        listing = library.list_documents(query, near=current_folder(), progress=bar, **options)
    for notice in listing.notices:
        note(notice)
    if listing.documents or format == "json":
        from marklight.surfaces.render import listing_as

        show_as(listing_as(listing, format, style_of(library)), format)
    elif listing.abstained:
        note(listing.abstained)
    else:
        note(f"There is no page {listing.page}: {listing.summary}")
    return 0 if listing.documents else 1


@click.command(short_help="Answer a question from a folder, with sources.")
@click.argument("query")
@in_library
@AS_JSON
@options_of("ask")
@COLOR
@SET
def ask(
    query: str,
    folder: Path | None,
    as_json: bool,
    assignments: tuple[str, ...],
    **options: Any,
) -> int:
    """Answer QUERY from the documents of a folder, with sources.

    The language model that the settings name (ask.name) writes the answer from the passages that search finds.
    Every sentence ends with the numbers of the passages that it rests on and is checked against them. If search
    finds no confident match, the model is not called.
    """
    # In this process, even if a daemon runs: the API key may be in the environment of this one only.
    with open_own(folder, assignments) as library, Bar(library.place.folder) as bar:
        if options["refresh"]:
            confirm_first_run(library)
        printer = _Printer(silent=as_json, model=library.settings["ask.name"])
        try:
            answer = library.ask(query, progress=bar, emit=printer, **options)
        finally:
            printer.clear()
        for notice in answer.notices:
            note(notice)
        if as_json:
            show_json(answer.to_dict())
        else:
            _show_sources(answer, style_of(library), style_of(library, sys.stderr))
    return 0 if answer.answered else 1


class _Printer:
    """Prints each sentence once it is checked, one a line; before the first one, that the model is working."""

    def __init__(self, silent: bool, model: str) -> None:
        self._silent, self._model = silent, model
        self._waits = False

    def __call__(self, event: Answer | Sentence) -> None:
        if self._silent:
            return
        if not isinstance(event, tuple):
            self._wait(len(event.hits))
            return
        self.clear()
        lead = event.lead.lstrip("\n").lstrip(" ") if "\n" in event.lead else ""
        if "\n\n" in event.lead:
            show("")
        show(_sentence_line(event, lead))
        sys.stdout.flush()

    def _wait(self, passages: int) -> None:
        if passages and sys.stderr.isatty():
            self._waits = True
            count = "1 passage" if passages == 1 else f"{passages} passages"
            sys.stderr.write(one_line(f"{self._model} reads {count} …"))
            sys.stderr.flush()

    def clear(self) -> None:
        """Remove the line about the model."""
        if self._waits:
            self._waits = False
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()


def _sentence_line(sentence: Sentence, lead: str) -> str:
    """Return a sentence with its citations.

    A citation is never at the beginning of a line, so no sentence can pose as a source; code is quoted.
    """
    marks = sentence.marks + ("" if sentence.supported else " (unsupported)")
    if "\n" in sentence.text:
        return f"{quoted(sentence.text)}\n{' ' * 4}{marks.strip()}"
    return visible(f"{lead}{sentence.text} {marks.strip()}")


def _show_sources(answer: CitedAnswer, style: render.Style, aside: render.Style) -> None:
    """Print the places of the cited passages; without an answer, why there is none and what was found."""
    found = answer.search
    several = found.several_collections
    if answer.sentences:
        show("")
        for number, hit in answer.cited:
            show(style.bold(f"[{number}] {headed_place(hit.chunk, several, style.link)}"))
        if any(not each.supported for each in answer.sentences):
            note("The passages do not support sentences that end with (unsupported)")
    elif found.nearest:
        note(f"{answer.abstained}. {CLOSEST}")
        show_aside(render.nearest_text(found, aside))
    elif found.hits:
        note(f"{answer.abstained}. The passages:")
        for number, hit in enumerate(found.hits, 1):
            show_aside(f"[{number}] {headed_place(hit.chunk, several)}")
    else:
        note(found.empty_reason(SHOW_ALL) or str(answer.abstained))
    if answer.removed:
        sentences = "1 sentence" if len(answer.removed) == 1 else f"{len(answer.removed)} sentences"
        note(f"{sentences} removed, which the passages do not support")
