"""Options that several commands share; open the library, through its daemon where one runs."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import click

from marklight.errors import NotFound, UsageError
from marklight.formatting import Style, counted
from marklight.operations import OPERATIONS
from marklight.parameters import Parameter
from marklight.place import MAX_NAMED, STORE, is_home, is_library
from marklight.surfaces.cli.output import Bar, Hints, note
from marklight.surfaces.render import FORMATS, style_for

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
SHOW_ALL = "--min-confidence 0"
"""The option that messages suggest where all results were below the threshold."""
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
            confirm_first_run(library, named=folder is not None)
            _embed_later(library)
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

    @click.argument("place", metavar="[PATH]", required=False, type=click.Path(path_type=Path))
    @IN_PATH
    @wraps(command)
    def run(*, place: Path | None, folder: Path | None, **options: Any) -> int:
        return command(folder=one_folder(place, folder), **options)

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
    from marklight.surfaces.daemon import is_disabled, open_remote

    if remote := open_remote(folder, assignments, note, searching=searching):
        Hints.folder = remote.place.folder
        return remote
    library = open_own(folder, assignments)
    if library.serve.start and not is_disabled():
        from marklight.surfaces.daemon.lifecycle import start_for_client

        # For the next command; this one does not wait for it.
        others = [each for each in assignments if not each.lstrip().startswith("search.")]
        start_for_client(library.place.folder, others)
    if searching:
        # numpy starts a thread per core on import, which takes longer than one search gains by them.
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    return library


def open_own(folder: Path | None, assignments: Sequence[str] = ()) -> Library:
    """Open the library in this process, even if a daemon runs."""
    from marklight.library import Library

    library = Library(folder, assignments=assignments)
    Hints.folder = library.place.folder
    return library


def confirm_first_run(library: Library | RemoteLibrary, *, named: bool) -> None:
    """Check a folder before it is indexed for the first time; `named` if the command line names it.

    A system folder, a home folder and, unless it is named, a folder without files of its own are refused, a folder
    without any files too. On a terminal, very many files and a folder with other libraries are confirmed.
    """
    if library.is_remote:
        return  # its daemon indexes already
    place = library.address.folder
    if place is None or (place / STORE).exists():
        return
    from marklight.library.indexing import first_run

    if (first := first_run(library)) is None:
        return
    folder, files = first.folder, counted(first.files, "file")
    more = "" if first.complete else "more than "
    if reason := _unsuitable(folder):
        raise UsageError(f"{folder} is {reason}, with {more}{files} to index", INDEX_ANYWAY)
    if not first.files and first.complete:
        names = ", ".join(first.libraries[:MAX_NAMED])
        but = f" but in other libraries: {names}" if names else _others(first.others)
        raise NotFound(f"There are no Markdown or text files in {folder}{but}")
    if not (named or first.has_own or is_library(folder)):
        raise UsageError(
            f"{folder} has no Markdown files of its own, only {files} below it", NAME_IT
        )
    if first.others:
        note(f"Only Markdown and text is indexed{_others(first.others)}")
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return
    if first.files <= MANY_FILES and not first.libraries:
        return
    note(f"{folder} has {more}{files} to index")
    if first.libraries:
        names = ", ".join(first.libraries[:MAX_NAMED])
        note(f"It contains other libraries, which keep their own index: {names}")
    if not click.confirm("Index this folder?", err=True):
        raise UsageError(
            "Nothing was indexed", "Name the folder of your documents, such as ~/notes"
        )


INDEX_ANYWAY = "Name the folder of your documents, such as ~/notes. `marklight index --yes` indexes it nevertheless"
NAME_IT = "Name the folder of your documents, or `.` for this one"


def _unsuitable(folder: Path) -> str:
    """Return what a folder is that nobody keeps documents in directly; empty for any other."""
    import tempfile

    if folder == Path(folder.anchor):
        return "the root of the file system"
    if folder in {Path(name).resolve() for name in (tempfile.gettempdir(), "/tmp", "/var/tmp")}:
        return "the folder of temporary files"
    return "your home folder or above it" if is_home(folder) else ""


def _others(counts: Mapping[str, int]) -> str:
    """Return the documents that are not indexed: `; 12 PDF and 3 Word files are not`."""
    if not counts:
        return ""
    shown = [f"{count:,} {name}" for name, count in counts.items()]
    listed = " and ".join(filter(None, [", ".join(shown[:-1]), shown[-1]]))
    one = sum(counts.values()) == 1
    return f"; {listed} {'file is' if one else 'files are'} not"


def _embed_later(library: Library | RemoteLibrary) -> None:
    """Let a search for somebody at a terminal leave embeddings to a process in the background, by a model on this machine."""
    if library.is_remote or not (sys.stdin.isatty() and sys.stderr.isatty()):
        return
    is_local = library.models.embedder_server is None and not library.address.is_server
    library.embeds_later = is_local and library.settings["model.name"] != "none"


def embed_in_background(
    library: Library | RemoteLibrary, pending: int, assignments: Sequence[str]
) -> None:
    """Start a process that embeds what a search left, unless one runs; it ends when everything is embedded."""
    if not pending or library.is_remote or not library.embeds_later:
        return
    from marklight.library.progress import published_progress

    if published_progress(library.address.folder):
        return
    import subprocess

    from marklight.surfaces.daemon.client import PROGRAM, set_options

    arguments = ["--no-daemon", "index", "--yes", "--in", str(library.place.folder)]
    process = subprocess.Popen(
        [*PROGRAM, *arguments, *set_options(assignments)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd=library.place.folder,
        start_new_session=True,
        creationflags=getattr(subprocess, "DETACHED_PROCESS", 0),
    )
    if sys.platform != "win32":
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, process.pid, BACKGROUND_PRIORITY)
    process.returncode = 0  # nobody waits for it: silences the warning of subprocess


BACKGROUND_PRIORITY = 10
"""`nice` of a process that embeds in the background."""


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


COMPLETIONS = {
    "collection": "collections",
    "path": "documents",
    "exclude": "documents",
    "tag": "tags",
}
"""Options whose values the shell can complete, with the name of their completer."""
NOT_OPTIONS = ("query", "ref", "settings")
"""Parameters that are arguments of a command, or options of every command (`--set`)."""


def options_of(operation: str, *, only: Sequence[str] = ()) -> Callable[[Command], Command]:
    """Add the parameters of an operation, or some of them, to a command as options of the same names."""
    parameters = [
        parameter
        for parameter in OPERATIONS[operation].parameters
        if parameter.name in only or (not only and parameter.name not in NOT_OPTIONS)
    ]

    def add(command: Command) -> Command:
        for parameter in reversed(parameters):
            command = _option(parameter)(command)
        return command

    return add


def _option(parameter: Parameter) -> Callable[[Command], Command]:
    """Return the option of a parameter."""
    name, schema = parameter.name, parameter.schema
    flag = f"--{name.replace('_', '-')}"
    names = ("-n", flag, name) if name == "limit" else (flag, name)
    common: dict[str, Any] = {"help": parameter.description}
    if name in COMPLETIONS:
        common["shell_complete"] = completer(COMPLETIONS[name])
    match schema["type"]:
        case "boolean" if parameter.default is None:
            return click.option(f"{flag}/--no-{name}", name, default=None, **common)
        case "boolean" if parameter.default:
            opposite = f"--no-{name}"
            help = f"Do not {common['help'][0].lower()}{common['help'][1:]}"
            return click.option(opposite, name, flag_value=False, default=True, help=help)
        case "boolean":
            return click.option(*names, is_flag=True, help=parameter.description)
        case "array" | "object":
            common["help"] = f"{common['help'].removesuffix('.')} (repeatable)."
            return click.option(*names, multiple=True, metavar=parameter.metavar, **common)
        case "string" if name in ("after", "before"):
            return click.option(
                *names, multiple=True, callback=_strictest, metavar=parameter.metavar, **common
            )
    kind: Any = str
    if "enum" in schema:
        kind = click.Choice(schema["enum"])
    elif "minimum" in schema:
        bounds = click.IntRange if schema["type"] == "integer" else click.FloatRange
        kind = bounds(schema["minimum"], schema["maximum"])
    default = parameter.default
    return click.option(
        *names,
        type=kind,
        default=default,
        show_default=default is not None,
        metavar=parameter.metavar or None,
        **common,
    )
