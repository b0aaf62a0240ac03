"""The command query: ask, read, widen a result, ask again; the library is opened once."""

from __future__ import annotations

import io
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from marklight.surfaces.cli.options import COLOR, MODE, SET, note, open_library
from marklight.surfaces.cli.progress import Bar

if TYPE_CHECKING:
    from marklight.library import Library
    from marklight.surfaces.cli.session import Session
    from marklight.surfaces.daemon.client import RemoteLibrary


@click.command()
@click.argument("path", required=False, type=click.Path(path_type=Path))
@click.option(
    "-n",
    "--limit",
    type=click.IntRange(1, 100),
    default=5,
    show_default=True,
    help="Results at a time.",
)
@MODE
@COLOR
@SET
def query(path: Path | None, limit: int, mode: str, assignments: tuple[str, ...]) -> int:
    """Ask question after question, and look around the results.

    Lines that are piped in are taken one by one; :help lists what a line can say.
    """
    from marklight.surfaces.cli.session import HINT, Session

    terminal = sys.stdin.isatty() and sys.stdout.isatty()
    with open_library(path, assignments, searching=True) as library:
        session = Session(library, limit=limit, mode=mode, terminal=terminal)
        _prepare(library, mode, terminal)
        if not terminal:
            _take_all(session)
            return session.code
        click.echo(HINT)
        _converse(session)
    return 0


def _prepare(library: Library | RemoteLibrary, mode: str, terminal: bool) -> None:
    """All of the index, so that the first question is answered as quickly as the others."""
    from marklight.errors import Busy

    if mode not in ("hybrid", "semantic"):
        return  # a model may be missing, and is not needed
    try:
        with Bar(library.place.folder) as bar:
            report = library.index(progress=bar)
        for notice in report.notices:
            note(notice)
    except Busy as error:
        note(f"{error}; questions are answered from what is there")
    except KeyboardInterrupt:
        if not terminal:
            raise
        note("stopped; questions are answered from what is there, and each does some of the rest")


def _take_all(session: Session) -> None:
    """Lines from a pipe or a file."""
    if isinstance(sys.stdin, io.TextIOWrapper):
        sys.stdin.reconfigure(encoding="utf-8", errors="replace")
    for line in sys.stdin:
        if not session.take(line):
            return


def _converse(session: Session) -> None:
    """Lines from a person: Ctrl-C ends what is being done, Ctrl-D the session."""
    from marklight.private_files import data_folder
    from marklight.surfaces.cli.history import LineFile
    from marklight.surfaces.cli.prompt import prompting

    prompt = prompting(session, LineFile(data_folder() / "query-history"))
    while True:
        try:
            line = prompt.prompt(session.prompt())
        except KeyboardInterrupt:
            continue  # the line is given up
        except EOFError:
            return
        try:
            if not session.take(line):
                return
        except KeyboardInterrupt:
            note("stopped")
