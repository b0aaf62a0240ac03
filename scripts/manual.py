"""Generate the man page from the commands; the build backend calls it, and puts the page into the wheel.

`python scripts/manual.py` prints the page. It needs click and the sources only.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import click

ROOT = Path(__file__).resolve().parent.parent
MANUAL = ROOT / "man" / "marklight.1"
"""The page, as pyproject.toml names it; not under version control."""
EXIT_STATUS = {
    "0": "answered",
    "1": "nothing found, or no passage that is likely to answer",
    "2": "wrong usage or settings",
    "3": "the index or a model cannot be used",
}
FILES = {
    "marklight.toml": "settings of the library in this folder; some apply only after marklight settings --trust",
    "config.toml": "the user's settings, in the platform's configuration folder under marklight/",
    "~/.local/share/marklight/": "your indexes and trusted folders",
    "~/.cache/marklight/": "downloaded models, datasets of marklight eval",
    "~/.local/state/marklight/": "running daemons and their logs; marklight clean --all removes all three",
}
ENVIRONMENT = {
    "MARKLIGHT_…": "any setting: MARKLIGHT_SEARCH_FUSE is search.fuse",
    "NO_COLOR": "disables bold text and hyperlinks",
    "EDITOR, VISUAL": "the editor in which `marklight query` opens results",
}


def manual() -> str:
    """Return the page in roff."""
    sys.path.insert(0, str(ROOT / "src"))
    import marklight
    from marklight.surfaces.cli import app

    lines = [
        f'.TH MARKLIGHT 1 "" "marklight {marklight.__version__}" "User Commands"',
        ".SH NAME",
        r"marklight \- local-first hybrid search for Markdown",
        ".SH SYNOPSIS",
        r".B marklight \fICOMMAND\fR [\fIARGUMENT\fR]...",
        ".SH DESCRIPTION",
        *_prose(app.help or ""),
        ".SH COMMANDS",
        *(line for command in _leaves(app, "marklight") for line in _command(*command)),
        ".SH EXIT STATUS",
        *_table(EXIT_STATUS),
        ".SH FILES",
        *_table(FILES),
        ".SH ENVIRONMENT",
        *_table(ENVIRONMENT),
    ]
    return "\n".join(lines) + "\n"


def _leaves(group: click.Group, name: str) -> Iterator[tuple[str, click.Command]]:
    for command in group.commands.values():
        full = f"{name} {command.name}"
        if isinstance(command, click.Group):
            yield from _leaves(command, full)
        else:
            yield full, command


def _command(name: str, command: click.Command) -> Iterator[str]:
    # The same names as in the program: click caches the first result.
    context = click.Context(command, info_name=name, help_option_names=["-h", "--help"])
    yield f".SS {_plain(name)}"
    yield _plain(" ".join([name, *command.collect_usage_pieces(context)]))
    yield ".PP"
    yield from _prose(command.help or "")
    for parameter in command.get_params(context):
        record = parameter.get_help_record(context)
        if record and isinstance(parameter, click.Option):
            yield ".TP"
            yield rf"\fB{_plain(record[0])}\fR"
            yield _plain(record[1])


def _prose(text: str) -> Iterator[str]:
    """Format paragraphs; one marked with \\b keeps its line breaks."""
    for number, paragraph in enumerate(re.split(r"\n\s*\n", text.strip())):
        if number:
            yield ".PP"
        kept = paragraph.startswith("\b")
        rows = [line.strip() for line in paragraph.removeprefix("\b").strip().splitlines()]
        if kept:
            yield from (".nf", *map(_plain, rows), ".fi")
        else:
            yield _plain(" ".join(rows))


def _table(rows: dict[str, str]) -> Iterator[str]:
    for name, text in rows.items():
        yield from (".TP", rf"\fB{_plain(name)}\fR", _plain(text))


def _plain(text: str) -> str:
    """Escape roff control characters."""
    text = (
        text.replace("\\", r"\e")
        .replace("-", r"\-")
        .replace("…", "...")
        .replace("“", r"\(lq")
        .replace("”", r"\(rq")
    )
    return rf"\&{text}" if text.startswith((".", "'")) else text


def write() -> None:
    """Write the page where the wheel takes it from."""
    MANUAL.parent.mkdir(exist_ok=True)
    MANUAL.write_text(manual(), "utf-8")


if __name__ == "__main__":
    print(manual(), end="")
