"""Options that several commands share; open the library, through its daemon where one runs."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import click

from marklight.errors import UsageError
from marklight.place import MAX_NAMED
from marklight.surfaces.cli.output import Bar, Hints, note
from marklight.surfaces.render import FORMATS, Style, style_for

if TYPE_CHECKING:
    from marklight.library import Library
    from marklight.surfaces.daemon.client import RemoteLibrary


Command = Callable[..., int]


def completer(name: str) -> Callable[[click.Context, click.Parameter, str], list[Any]]:
    """Return a shell completion callback that loads `completion.NAME` only when Tab is pressed."""

    def complete(
        context: click.Context,
        parameter: click.Parameter,  # noqa: ARG001 - click's signature
        incomplete: str,
    ) -> list[Any]:
        from marklight.surfaces.cli import completion

        return list(getattr(completion, name)(context, incomplete))

    return complete


AS_JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
AS_JSON_FORMAT = click.option(
    "--json", "as_json", is_flag=True, help="Print JSON (same as --format json)."
)
SET = click.option(
    "--set",
    "assignments",
    multiple=True,
    metavar="KEY=VALUE",
    shell_complete=completer("settings"),
    help="Override a setting for this command (repeatable).",
)
MODE = click.option(
    "--mode",
    # Spelled out: to import `Mode` would make `--help` slower.
    type=click.Choice(["hybrid", "semantic", "keyword", "code"]),
    default="hybrid",
    show_default=True,
    help="Search method: hybrid (keywords and meaning), semantic (meaning only), keyword (no model) or code (code blocks).",
)
EXPLAIN = click.option(
    "--explain",
    is_flag=True,
    help="Show the search stages with timings, and how each score was computed.",
)


def _strictest(
    context: click.Context,  # noqa: ARG001 - click's signature
    parameter: click.Parameter,
    dates: tuple[str, ...],
) -> str | None:
    """Reduce a repeated date option to the strictest date: all of them must match."""
    if len(dates) < 2:
        return dates[0] if dates else None
    from marklight.text.dates import parse_date_range, validate_date

    is_after = parameter.name == "after"
    valid = [validate_date(date, last=not is_after) for date in dates]
    if is_after:
        return max(valid, key=lambda date: parse_date_range(date)[0])
    return min(valid, key=lambda date: parse_date_range(date)[1])


AFTER = click.option(
    "--after",
    multiple=True,
    callback=_strictest,
    metavar="DATE",
    help="Search only documents (or commits) dated DATE or later, such as 2026-01-31 or 2026-01.",
)
BEFORE = click.option(
    "--before",
    multiple=True,
    callback=_strictest,
    metavar="DATE",
    help="Search only documents (or commits) dated DATE or earlier.",
)
MIN_CONFIDENCE = click.option(
    "--min-confidence",
    type=float,
    metavar="X",
    help="Show only results with a score of at least X (0 to 1), instead of the default confidence check; 0 shows all.",
)
SHOW_ALL = "--min-confidence 0"
"""The option that messages suggest where all results were below the threshold."""
MAX_TOKENS = click.option(
    "--max-tokens",
    type=int,
    metavar="N",
    help="Limit the text of all results together to N tokens.",
)
RERANK = click.option(
    "--rerank/--no-rerank", default=None, help="Rerank the best results with a cross-encoder."
)
MANY_FILES = 20_000
"""More files than this are indexed for the first time only after a confirmation on a terminal."""
COLOR_KEY = "marklight.color"


def _remember_color(context: click.Context, parameter: click.Parameter, value: str) -> None:  # noqa: ARG001 - click's signature
    context.meta[COLOR_KEY] = value


COLOR = click.option(
    "--color",
    type=click.Choice(["auto", "always", "never"]),
    default="auto",
    expose_value=False,
    callback=_remember_color,
    help="When to print bold text and clickable paths [default: auto, only on a terminal].",
)


def formats(names: Sequence[str], help: str = "Output format.") -> Callable[[Command], Command]:
    """Return the options `--format` and `--json` of a command with these formats."""

    def add(command: Command) -> Command:
        kind = click.Choice(names)
        option = click.option(
            "--format", "format", type=kind, default="text", show_default=True, help=help
        )
        return AS_JSON_FORMAT(option(command))

    return add


RESULT_FORMATS = formats(FORMATS, "Output format; files prints only the file paths.")
PREFIX = click.option(
    "--prefix",
    is_flag=True,
    help="Search for words that begin with the last word too, as while typing.",
)
NO_REFRESH = click.option(
    "--no-refresh",
    is_flag=True,
    help="Use the index as it is, without looking for changed files.",
)


@contextmanager
def open_for_search(
    folder: Path | None, assignments: Sequence[str], *, refresh: bool
) -> Iterator[tuple[Library | RemoteLibrary, Bar]]:
    """Open a library for a search, with a progress bar; the first indexing of a large folder is confirmed."""
    with (
        open_library(folder, assignments, searching=True) as library,
        Bar(library.place.folder) as bar,
    ):
        if refresh:
            confirm_first_run(library)
        yield library, bar


def current_folder() -> Path | None:
    """Return the current folder; None if it was deleted."""
    try:
        return Path.cwd()
    except FileNotFoundError:
        return None


IN_PATH = click.option(
    "--in", "folder", type=click.Path(path_type=Path), metavar="PATH", help="Same as PATH."
)


def in_library(command: Callable[..., int]) -> Callable[..., int]:
    """Add the folder of the library to a command, as argument PATH and as `--in PATH`; it receives `folder`."""

    @click.argument("path", required=False, type=click.Path(path_type=Path))
    @IN_PATH
    @wraps(command)
    def run(*, path: Path | None, folder: Path | None, **options: Any) -> int:
        return command(folder=one_folder(path, folder), **options)

    return run


def one_folder(path: Path | None, folder: Path | None) -> Path | None:
    """Return the folder given as PATH or as `--in`; raise UsageError if both are given and differ."""
    if path is not None and folder is not None and path != folder:
        raise click.UsageError(f"Two folders are given: {path} and --in {folder}")
    return path if folder is None else folder


def open_library(
    folder: Path | None, assignments: Sequence[str] = (), *, searching: bool = False
) -> Library | RemoteLibrary:
    """Open the library that contains a folder: through its daemon if one runs, else in this process.

    With `searching`, the daemon also takes assignments of search settings, with each query; any other
    assignment makes this process open the library itself.
    """
    from marklight.surfaces.daemon.discovery import is_disabled, open_remote

    if remote := open_remote(folder, assignments, note, searching=searching):
        Hints.folder = remote.place.folder
        return remote
    library = open_own(folder, assignments)
    if library.serve.start and not is_disabled():
        from marklight.surfaces.daemon.lifecycle import start_for_client

        # For the next command; this one does not wait for it.
        others = [each for each in assignments if not each.lstrip().startswith("search.")]
        start_for_client(library.place.folder, others)
    return library


def open_own(folder: Path | None, assignments: Sequence[str] = ()) -> Library:
    """Open the library in this process, even if a daemon runs."""
    from marklight.library import Library

    library = Library(folder, assignments=assignments)
    Hints.folder = library.place.folder
    return library


def confirm_first_run(library: Library | RemoteLibrary) -> None:
    """Ask on a terminal before a home folder, very many files or a folder with other libraries is indexed for the first time."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return
    from marklight.surfaces.daemon.client import RemoteLibrary

    if isinstance(library, RemoteLibrary):
        return  # its daemon indexes already
    from marklight.library.indexing import first_run

    first = first_run(library)
    if first is None or not (first.is_home or first.files > MANY_FILES or first.libraries):
        return
    what = "is your home folder or above it, and " if first.is_home else ""
    more = "" if first.complete else "more than "
    note(f"{first.folder} {what}has {more}{first.files:,} files to index")
    if first.libraries:
        note(
            f"It contains other libraries, which keep their own index: {', '.join(first.libraries[:MAX_NAMED])}"
        )
    if not click.confirm("Index this folder?", err=True):
        raise UsageError(
            "Nothing was indexed", "Name the folder of your documents, such as ~/notes"
        )


def style_of(library: Library | RemoteLibrary, stream: TextIO | None = None) -> Style:
    """Return the style for text about this library on standard output, or on another stream."""
    context = click.get_current_context(silent=True)
    color = context.meta.get(COLOR_KEY, "auto") if context else "auto"
    return style_for(
        stream or sys.stdout,
        os.environ,
        library.collections,
        color=color,
        address=library.link_address,
    )


_FILTERS = (
    click.option(
        "--collection",
        multiple=True,
        metavar="NAME",
        shell_complete=completer("collections"),
        help="Search only this collection (repeatable).",
    ),
    click.option(
        "--path",
        "paths",
        multiple=True,
        metavar="GLOB",
        shell_complete=completer("documents"),
        help="Search only paths that match, such as guide/** or *.md (repeatable).",
    ),
    click.option(
        "--exclude",
        multiple=True,
        metavar="GLOB",
        shell_complete=completer("documents"),
        help="Skip files that match GLOB (repeatable).",
    ),
    click.option(
        "--tag",
        multiple=True,
        shell_complete=completer("tags"),
        help="Search only documents with this tag or a subtag, such as release/web for release (repeatable).",
    ),
    click.option(
        "--where",
        multiple=True,
        metavar="KEY=VALUE",
        help="Search only documents with this frontmatter value (repeatable).",
    ),
    AFTER,
    BEFORE,
)


def filter_options(command: Callable[..., int]) -> Callable[..., int]:
    """Add the filters of documents to a command: collection, path, exclude, tag, where, after and before."""
    for option in reversed(_FILTERS):
        command = option(command)
    return command
