"""Examples in the documentation, run as a reader would.

A `console` block with an answer below its command is an example. Only those whose answer is no
longer the program's are written: times differ in every run, and scores a little between machines.
"""

from __future__ import annotations

import io
import os
import re
import shlex
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, chdir, contextmanager, redirect_stderr, redirect_stdout
from doctest import DocTest, DocTestParser
from functools import cache
from pathlib import Path
from typing import NamedTuple
from unittest.mock import patch

from marklight import models
from marklight.surfaces.cli import output, run

ROOT = Path(__file__).parents[2]
SKILL = ROOT / "skills" / "marklight" / "SKILL.md"
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), SKILL])
NOTES = "examples/notes"

WIDTH = 100
"""Columns of the terminal that examples are printed to."""
NEAR = 0.05
"""How far a score may be off: other processors round the model's products in another way."""

_BLOCK = re.compile(r"^(`{3,})console\n(.*?)^\1$", re.MULTILINE | re.DOTALL)
_PROMPT = "$ "
_STAGE = re.compile(r"([a-z_]+ +\d* +)\d+\.\d\d")
"""A stage's line in `--explain`, with its milliseconds."""
_SCORE = re.compile(r"\d+\.\d+")


class Example(NamedTuple):
    """A command and what it prints."""

    command: str
    printed: str


def examples(block: str) -> list[Example]:
    """The commands of a block; none where only the commands are shown."""
    if not any(line and not line.startswith(_PROMPT) for line in block.splitlines()):
        return []
    parts = re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]
    split = (part.partition("\n") for part in parts)
    return [Example(command, rest.strip("\n")) for command, _, rest in split]


def examples_of(page: Path) -> list[Example]:
    return [each for _, block in _BLOCK.findall(page.read_text()) for each in examples(block)]


@contextmanager
def clone() -> Iterator[None]:
    """A copy of what the examples need, indexed; as new as a clone, since files' times count."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        for name in (NOTES, "docs"):
            shutil.copytree(
                ROOT / name,
                folder / name,
                copy_function=shutil.copyfile,
                ignore=shutil.ignore_patterns(".marklight"),
            )
        stack.enter_context(chdir(folder))
        own = {"MARKLIGHT_DATA_DIR": str(folder / "data"), "COLUMNS": "100", "NO_COLOR": "1"}
        stack.enter_context(patch.dict(os.environ, own))
        # One model for all commands; each would take a second to load its own.
        stack.enter_context(patch.object(models, "load", cache(models.load)))
        stack.enter_context(patch.object(output, "_DEFAULT_WIDTH", WIDTH))
        printed(f"marklight index {NOTES}")
        yield


def printed(command: str) -> str:
    """Return the output of a shell line: `marklight`, with `printf` before it and `head`, `tail` or `grep` behind."""
    text = aside = ""
    for part in command.split(" | "):
        name, *words = shlex.split(part)
        if name == "printf":
            text = words[0].encode().decode("unicode_escape")
        elif name == "head":
            text = "\n".join(text.splitlines()[: int(words[1])])
        elif name == "tail":
            text = "\n".join(text.splitlines()[-int(words[1]) :])
        elif name == "grep":
            text = "\n".join(line for line in text.splitlines() if re.search(words[0], line))
        else:
            assert name == "marklight", command
            text, message = _ran(words, text, piped=not command.endswith(part))
            aside += message
    return (aside + text).strip("\n")


class Screen(io.StringIO):
    """A terminal of the usual width, without colours."""

    def isatty(self) -> bool:
        return True


def _ran(words: list[str], given: str, piped: bool) -> tuple[str, str]:
    """What goes on through a pipe, and what a terminal shows beside it."""
    out = io.StringIO() if piped else Screen()
    err = io.StringIO() if piped else out
    with redirect_stdout(out), redirect_stderr(err), patch.object(sys, "stdin", io.StringIO(given)):
        run(words)
    return out.getvalue(), err.getvalue() if piped else ""


def alike(one: str, other: str) -> bool:
    """The same but for times, the width of columns, and scores that are near."""
    lines = [_plain(text) for text in (one, other)]
    if [_SCORE.sub("#", line) for line in lines[0]] != [_SCORE.sub("#", line) for line in lines[1]]:
        return False
    scores = [[float(each) for line in text for each in _SCORE.findall(line)] for text in lines]
    return all(
        abs(left - right) <= NEAR * max(1.0, left) for left, right in zip(*scores, strict=True)
    )


def _plain(text: str) -> list[str]:
    timeless = (_STAGE.sub(r"\1#", line) for line in text.splitlines())
    return [" ".join(line.split()) for line in timeless]


def current(text: str) -> str:
    """A page with its examples as the program answers them now."""

    def written(block: re.Match[str]) -> str:
        found = examples(block[2])
        if not found:
            return block[0]
        answered = "\n".join(f"$ {each.command}\n{_answer(each)}\n" for each in found)
        return f"{block[1]}console\n{answered}{block[1]}"

    return _BLOCK.sub(written, text)


def _answer(example: Example) -> str:
    now = printed(example.command)
    return example.printed if alike(example.printed, now) else now


def sessions(page: Path) -> DocTest:
    """Everything that a page types into Python, as one session."""
    typed = "\n".join(
        re.findall(r"^```pycon\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)
    )
    return DocTestParser().get_doctest(typed, {}, page.name, str(page), 0)


def renew() -> None:
    """Write every page with the answers of today."""
    with clone():
        for page in PAGES:
            page.write_text(current(page.read_text()))
