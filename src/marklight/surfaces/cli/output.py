"""Print results, JSON, notes, errors and progress; fold lines to the width of the terminal."""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar, TextIO

import click

from marklight.formatting import QUOTE, counted, one_line
from marklight.place import complete_commands
from marklight.surfaces.render import to_json

INDENT = " " * 4
"""Before the rest of a folded line that is not quoted; no other line of ours starts with it."""
MINIMUM_WIDTH = 8
"""Columns; enough for the prefix of a folded line and a character of two columns."""
_DEFAULT_WIDTH = 80
_TAB_STOP = 8
_REDRAW_SECONDS = 0.1
_LINE_SECONDS = 10.0
"""Time between two lines of progress where there is no terminal."""
_BAR_WIDTH = 28
READING = "Reading"
INDEXING_PHASES = (READING, "Embedding", "Copying")
"""Prefixes of the names of phases whose work is kept after an interruption."""
EMOJI_SELECTOR = "\ufe0f"
"""Follows a character of one column and makes it an emoji of two."""
_JOINERS = "\u200c\u200d"
_UNIT = re.compile(rf"\x1b\[[\d;]*m|\x1b\]8;;[^\x1b]*\x1b\\|[^\n]{EMOJI_SELECTOR}?")
"""An escape sequence of ours, which takes no column, or one character. Text of documents is escaped."""


def show(text: str) -> None:
    """Print text for people, folded to the width of a terminal."""
    show_data(_fit(text, sys.stdout))


def show_aside(text: str) -> None:
    """Print text for people on standard error: standard output contains results only."""
    click.echo(_fit(text, sys.stderr), err=True, color=True)


def show_data(text: str) -> None:
    """Print text unchanged; by default click removes escape sequences."""
    click.echo(text, color=True)


def show_as(text: str, format: str) -> None:
    """Print results in one of the formats: text and Markdown are for people."""
    if format in ("text", "md"):
        show(text)
    else:
        show_data(text)


def show_json(value: Any, indent: int | None = 2) -> None:
    """Print a value as JSON."""
    show_data(to_json(value, indent))


class Hints:
    """The library of this command, whose folder completes commands in messages."""

    folder: ClassVar[Path | None] = None

    @classmethod
    def completed(cls, text: str) -> str:
        """Return a message with the folder of the library in the commands that it suggests."""
        return complete_commands(text, cls.folder) if cls.folder else text


def note(text: str) -> None:
    """Print a notice on standard error."""
    message = close_sentence(Hints.completed(text))
    click.echo(_fit(one_line(f"note: {message}"), sys.stderr), err=True)


def note_all(notices: Iterable[str]) -> None:
    """Print the notices of a result on standard error."""
    for notice in notices:
        note(notice)


def complain(message: str) -> None:
    """Print an error on standard error, on one line."""
    with suppress(OSError, ValueError):  # standard error may be closed
        message = close_sentence(Hints.completed(message))
        click.echo(_fit(one_line(f"marklight: {message}"), sys.stderr), err=True)


def close_sentence(text: str) -> str:
    """End a text of several sentences with a full stop; a single one may end with a path."""
    return f"{text}." if ". " in text and text[-1] not in ".!?:…" else text


def terminal_width(stream: TextIO) -> int | None:
    """Return the columns of the terminal that a stream writes to; None for a pipe or a file."""
    if not stream.isatty():
        return None
    try:
        # Not `shutil.get_terminal_size`, which prefers COLUMNS: it may belong to another terminal.
        return os.get_terminal_size(stream.fileno()).columns or _DEFAULT_WIDTH
    except (OSError, ValueError):
        return _DEFAULT_WIDTH


def _fit(text: str, stream: TextIO) -> str:
    width = terminal_width(stream)
    return text if width is None else folded(text, width)


def folded(text: str, width: int) -> str:
    """Break lines that are longer than `width` columns, between words where possible.

    A terminal continues a long line in the first column, where the text of a document could pose as a
    header of ours: enough characters, then `[2] policy.md:1-4 § Policy (0.99)`. So the rest of a quoted line
    is quoted again, and the rest of any other line is indented.
    """
    limit = max(width, MINIMUM_WIDTH)
    return "\n".join(row for line in text.split("\n") for row in _rows(line, limit))


def _rows(line: str, limit: int) -> Iterator[str]:
    if len(line) * 2 <= limit and "\t" not in line:
        yield line
        return
    prefix = QUOTE if line.startswith(QUOTE) else INDENT
    row = QUOTE if prefix is QUOTE else ""
    used, has_text = len(row), False
    for word in _words(line[len(row) :]):
        width = sum(_unit_width(unit, used) for unit in word if unit != " ")
        # A word that is longer than a row is broken where the row is full.
        if has_text and used + width > limit and width <= limit - len(prefix):
            yield row.rstrip(" ")
            row, used = prefix, len(prefix)
        for unit in word:
            if used + _unit_width(unit, used) > limit:
                if unit == " ":
                    continue
                yield row.rstrip(" ")
                row, used = prefix, len(prefix)
            row += unit
            used += _unit_width(unit, used)
        has_text = True
    yield row


def _words(line: str) -> Iterator[list[str]]:
    """Yield the units of each word with the spaces after it; spaces at the start belong to the first one."""
    word: list[str] = []
    for unit in _UNIT.findall(line):
        if word and unit != " " and word[-1] == " " and any(each != " " for each in word):
            yield word
            word = []
        word.append(unit)
    if word:
        yield word


def _unit_width(unit: str, used: int) -> int:
    """Return the columns on the widest terminal: they differ about spacing marks and emoji selectors."""
    if len(unit) == 1 and " " <= unit <= "~":  # as most are
        return 1
    from wcwidth import wcwidth

    if unit.startswith("\x1b"):
        return 0
    if unit == "\t":
        return _TAB_STOP - used % _TAB_STOP
    widths = ((character, wcwidth(character)) for character in unit)
    return sum(width if width > 0 else _may_take_column(each) for each, width in widths)


def _may_take_column(character: str) -> bool:
    """Return whether some terminals show a zero-width character in a column of its own."""
    from unicodedata import category

    return character == EMOJI_SELECTOR or not (
        character in _JOINERS or category(character) in ("Mn", "Me")
    )


def display_width(text: str) -> int:
    """Return the columns a text takes on a terminal: two for a CJK character, none for a combining mark."""
    if text.isascii() and text.isprintable():
        return len(text)
    from wcwidth import wcwidth

    return sum(max(0, wcwidth(character)) for character in text)


def cut(text: str, width: int) -> str:
    """Cut a text at its end to at most `width` columns."""
    if display_width(text) <= width:
        return text
    return f"{_prefix(text, width - 1)}…"


def cut_left(text: str, width: int) -> str:
    """Cut a text at its start to at most `width` columns: the end of a path is the specific part."""
    from wcwidth import wcwidth

    if display_width(text) <= width:
        return text
    end = _prefix(text[::-1], width - 1)[::-1]
    while end and wcwidth(end[0]) == 0:  # a combining mark whose base character was cut off
        end = end[1:]
    return f"…{end}"


def _prefix(text: str, width: int) -> str:
    used = 0
    for at, character in enumerate(text):
        used += display_width(character)
        if used > width:
            return text[:at]
    return text


class Bar:
    """Progress on standard error: a bar with the time left on a terminal, elsewhere a line a phase and every ten seconds.

    Prints the folder of the library first, once.
    """

    indexed: ClassVar[bool] = False
    """True once any bar of this process showed progress of indexing."""

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder
        self._terminal = sys.stderr.isatty()
        self._phase = ""
        self._drawn_at = 0.0
        self._began_at = 0.0
        self._began_with = 0

    def __call__(self, phase: str, done: int, total: int) -> None:
        now = time.monotonic()
        if phase != self._phase:
            self._finish()
            Bar.indexed = Bar.indexed or phase.startswith(INDEXING_PHASES)
            if self._folder:
                files = f": {counted(total, 'file')}" if phase.startswith(READING) else ""
                print(one_line(f"Indexing {self._folder}{files} …"), file=sys.stderr, flush=True)
                self._folder = None
            self._phase, self._began_at, self._began_with, self._drawn_at = phase, now, done, 0.0
            if not self._terminal:
                print(f"{phase} …", file=sys.stderr, flush=True)
                self._drawn_at = now
        if not self._terminal and now - self._drawn_at >= _LINE_SECONDS:
            self._drawn_at = now
            left = self._time_left(done, total, now)
            print(f"{phase} {done:,}/{total:,}{left} …", file=sys.stderr, flush=True)
        if self._terminal and (now - self._drawn_at >= _REDRAW_SECONDS or done >= total):
            self._drawn_at = now
            self._draw(done, total, now)

    def _draw(self, done: int, total: int, now: float) -> None:
        share = done / total if total else 1.0
        filled = round(share * _BAR_WIDTH)
        bar = "━" * filled + "─" * (_BAR_WIDTH - filled)
        line = f"{self._phase} {bar} {done}/{total}{self._time_left(done, total, now)}"
        width = (terminal_width(sys.stderr) or _DEFAULT_WIDTH) - 1
        sys.stderr.write(f"\r\x1b[K{line[:width]}")
        sys.stderr.flush()

    def _time_left(self, done: int, total: int, now: float) -> str:
        finished = done - self._began_with
        if finished <= 0 or done >= total:
            return ""
        seconds = (now - self._began_at) / finished * (total - done)
        return f", {seconds / 60:.0f} min left" if seconds > 90 else f", {seconds:.0f} s left"

    def _finish(self) -> None:
        if self._terminal and self._phase:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
        self._phase = ""

    def __enter__(self) -> Bar:
        return self

    def __exit__(self, *error: object) -> None:
        self._finish()
