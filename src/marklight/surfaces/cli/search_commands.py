"""Commands that search: search, commits, query, list and ask."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import click
from click.core import ParameterSource

from marklight.formatting import (
    Style,
    counted,
    doubt_line,
    headed_place,
    left_out,
    one_line,
    quoted,
    visible,
)
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
    embed_in_background,
    formats,
    in_library,
    open_for_search,
    open_library,
    open_own,
    options_of,
    style_of,
)
from marklight.surfaces.cli.output import (
    Bar,
    complain,
    note,
    note_all,
    show,
    show_as,
    show_aside,
    show_data,
    show_json,
    terminal_width,
)

if TYPE_CHECKING:
    from marklight.answer import Answer
    from marklight.library import Library
    from marklight.operations import ModeName
    from marklight.results import CitedAnswer, Commits, Sentence
    from marklight.surfaces.daemon.client import RemoteLibrary

EMBEDDING_MODES = ("hybrid", "semantic")
WITH_PASSAGES = ("text", "md")
"""Formats that people read: the closest passages are shown in them too."""
PIPED_LIMIT = 5
"""Results for each query of a pipe."""


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
@click.option(
    "--full", is_flag=True, help="Print whole passages on a terminal too, as into a pipe."
)
@click.option(
    "-1", "--oneline", is_flag=True, help="Print one line a result, FILE:LINE:TEXT, as grep does."
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
    full: bool,
    oneline: bool,
    **options: Any,
) -> int:
    """Search a folder. A new folder is indexed first.

    On a terminal, the lines that answer are shown; into a pipe, whole passages.

    PATH defaults to the library that contains the current folder.
    """
    format = "json" if as_json else format
    if (full or oneline) and (format != "text" or (full and oneline)):
        raise click.UsageError("--full, --oneline and the formats exclude each other")
    if documents:
        return list_instead(query, folder, format, assignments, **options)
    with open_for_search(folder, assignments, refresh=options["refresh"]) as (library, bar):
        answer = library.search(query, near=current_folder(), progress=bar, **options)
        embed_in_background(library, answer.index.pending, assignments)
    note_all(answer.notices)
    width = terminal_width(sys.stdout)
    short = width is not None and format == "text" and not (full or oneline or options["explain"])
    if oneline:
        _print_lines(answer, style_of(library), width)
    elif short and answer.hits:
        from marklight.surfaces.cli.result_view import answer_view

        show_data(answer_view(answer, style_of(library), width or 0, everything=options["all"]))
    elif answer.hits or format == "json":
        if format in WITH_PASSAGES and (doubt := doubt_line(answer)):
            note(doubt)
        show_as(render.answer_as(answer, format, style_of(library)), format)
    if options["explain"] and format != "json":
        from marklight.surfaces.explain import explanation

        # Standard output of the other formats contains results only.
        if format == "text":
            show(f"\n{explanation(answer)}")
        else:
            click.echo(f"\n{explanation(answer)}", err=True)
    if answer.nearest and format in WITH_PASSAGES:
        _show_nearest(answer, format, style_of(library, sys.stderr))
    elif (reason := answer.empty_reason(SHOW_ALL)) and format != "json":
        note(reason)
    more, stages = left_out(answer)
    passages = format == "text" and not (short or oneline)
    if passages and any(hit.similar for hit in answer.hits):
        note("Similar passages are shown as one result. Use --all to see each of them")
    if passages and more:
        note(f"{more}. Use --set search.skip={','.join(stages)} to see them")
    if answer.commits is not None and format != "json":
        from marklight.results import Commits

        assert isinstance(answer.commits, Commits)
        if format in ("text", "md"):
            show("\n## Commits\n" if format == "md" else "\nCommits\n")
        _print_commits(answer.commits, format, style_of(library), options["explain"])
    return 0 if answer or answer.commits else 1


def _show_nearest(answer: Answer, format: str, style: Style) -> None:
    """Print the closest passages on standard error, in the form that results have there."""
    width = terminal_width(sys.stderr)
    if width and format == "text":
        from marklight.surfaces.cli.result_view import answer_view

        show_aside(answer_view(answer, style, width, everything=True))
    else:
        note(doubt_line(answer))
        show_aside(render.passages_as(answer, format, style))


def _print_lines(answer: Answer, style: Style, width: int | None) -> None:
    """Print one line a result."""
    from marklight.surfaces.cli.result_view import Matcher, oneline

    matcher = Matcher(answer.query)
    for hit in answer.hits:
        show_data(oneline(hit, matcher, style, width))


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


def _print_commits(answer: Commits, format: str, style: Style, explain: bool) -> None:
    """Print commits in one of the formats, then notices and the explanation."""
    from marklight.surfaces.render import commits_as, with_short_hashes

    note_all(answer.notices)
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


@click.command(short_help="Search while you type.")
@in_library
@click.option(
    "-n",
    "--limit",
    type=click.IntRange(1, 100),
    metavar="N",
    help="Maximum number of results [default: 20, and 5 for each query of a pipe].",
)
@options_of("search", only=("mode",))
@COLOR
@SET
def query(folder: Path | None, limit: int | None, mode: str, assignments: tuple[str, ...]) -> int:
    """Search while you type: a list of results and a preview.

    Enter opens the result in $VISUAL or $EDITOR at its line, Ctrl-Y copies its place, Tab completes filters, Ctrl-L
    shows its section or document, Esc quits. Queries can also be piped in, one per line.
    """
    with open_library(folder, assignments, searching=True) as library:
        confirm_first_run(library, named=folder is not None)
        if not (sys.stdin.isatty() and sys.stdout.isatty()):
            return _run_piped(library, limit or PIPED_LIMIT, mode)
        from marklight.surfaces.cli.live_search import LIMIT, LiveSearch

        with _indexing(library, mode) as progress:
            LiveSearch(library, limit=limit or LIMIT, mode=mode, progress=progress).run()
    return 0


def _run_piped(library: Library | RemoteLibrary, limit: int, mode: str) -> int:
    """Run queries from a pipe or a file, one per line; return the highest exit code."""
    from marklight.errors import MarklightError

    if isinstance(sys.stdin, io.TextIOWrapper):
        sys.stdin.reconfigure(encoding="utf-8", errors="replace")
    code = 0
    with Bar(library.place.folder) as bar:
        for line in filter(None, map(str.strip, sys.stdin)):
            try:
                answer = library.search(
                    line, limit=limit, mode=cast("ModeName", mode), progress=bar
                )
            except MarklightError as error:
                complain(str(error))
                code = max(code, error.exit_code)
                continue
            note_all(answer.notices)
            if answer.hits:
                if doubt := doubt_line(answer):
                    note(doubt)
                show(f"{render.answer_as(answer, 'text', style_of(library))}\n")
                continue
            code = max(code, 1)
            if answer.nearest:
                _show_nearest(answer, "text", style_of(library, sys.stderr))
            elif reason := answer.empty_reason(SHOW_ALL):
                note(reason)
    return code


@contextmanager
def _indexing(library: Library | RemoteLibrary, mode: str) -> Iterator[Callable[[], str]]:
    """Index in the background while a session runs; yield a function that returns the progress in a few words."""
    if library.is_remote or mode not in EMBEDDING_MODES:
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
        embed_in_background(library, listing.index.pending, assignments)
    note_all(listing.notices)
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
    finds no passage that is likely to answer, the model is not called.
    """
    # In this process, even if a daemon runs: the API key may be in the environment of this one only.
    with open_own(folder, assignments) as library, Bar(library.place.folder) as bar:
        if options["refresh"]:
            confirm_first_run(library, named=folder is not None)
        printer = _Printer(silent=as_json, model=library.settings["ask.name"])
        try:
            answer = library.ask(query, progress=bar, emit=printer, **options)
        finally:
            printer.clear()
        note_all(answer.notices)
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
            sys.stderr.write(one_line(f"{self._model} reads {counted(passages, 'passage')} …"))
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


def _show_sources(answer: CitedAnswer, style: Style, aside: Style) -> None:
    """Print the places of the cited passages; without an answer, why there is none and what was found."""
    found = answer.search
    several = found.several_collections
    if answer.sentences:
        show("")
        for number, hit in answer.cited:
            show(style.bold(f"[{number}] {headed_place(hit.chunk, several, style)}"))
        if any(not each.supported for each in answer.sentences):
            note("The passages do not support sentences that end with (unsupported)")
    elif found.nearest:
        _show_nearest(found, "text", aside)
    elif found.hits:
        note(f"{answer.abstained}. The passages:")
        for number, hit in enumerate(found.hits, 1):
            show_aside(f"[{number}] {headed_place(hit.chunk, several)}")
    else:
        note(found.empty_reason(SHOW_ALL) or str(answer.abstained))
    if answer.removed:
        note(
            f"{counted(len(answer.removed), 'sentence')} removed, which the passages do not support"
        )
