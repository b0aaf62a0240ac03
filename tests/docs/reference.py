"""What the documentation has from the program itself, made anew: `python -m tests.docs.reference`."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import json
import re
import textwrap
from pathlib import Path
from typing import Any

import click

from marklight.library.configuration import SCHEMA
from marklight.library.folder_settings import ALLOWED
from marklight.settings import Settings, combine
from marklight.surfaces.cli.app import app

from . import figures
from .assisting import ASSISTANTS, assistants
from .examples import ROOT, SKILL, clone, renew
from .llms import LLMS, llms
from .manual import MANUAL, manual

PAGE = ROOT / "docs" / "reference.md"
ARCHITECTURE = ROOT / "ARCHITECTURE.md"
SOURCE = ROOT / "src" / "marklight"
PUBLIC_SKILL = ROOT / "skills" / "marklight" / "SKILL.md"
"""Where programs that install skills from a repository look for them; the package has the same."""


def page() -> str:
    """All of the reference."""
    parts = [
        "# Reference",
        "Made from the program itself by `python -m tests.docs.reference`; a test checks that it is current.",
        "## Commands",
        *_commands(app, "marklight"),
        "## Settings",
        "Later layers win: built-in, the user's `config.toml`, `marklight.toml` or `[tool.marklight]` in"
        " `pyproject.toml`, variables such as `MARKLIGHT_SEARCH_FUSE`, `--set`.",
        "The column *folder* says what the file in a folder may decide by itself: any value (yes), some values, or none before"
        " [you trust it](index-keeping.md#settings-that-come-with-a-folder) (trust).",
        *_settings(),
    ]
    return "\n\n".join(parts) + "\n"


def _commands(group: click.Group, name: str) -> list[str]:
    found = []
    for command in group.commands.values():
        full = f"{name} {command.name}"
        if isinstance(command, click.Group):
            found += _commands(command, full)
            continue
        context = click.Context(
            command,
            info_name=full,
            max_content_width=90,
            terminal_width=90,
            help_option_names=["-h", "--help"],
        )
        found += [f"### {full}", f"```text\n{command.get_help(context).rstrip()}\n```"]
    return found


def _settings() -> list[str]:
    defaults = combine([], SCHEMA)
    found = []
    for table, part in SCHEMA.items():
        fields = dataclasses.fields(part)
        if not fields:
            continue
        said = inspect.getdoc(part) or ""
        rows = [_row(table, field, _notes(part), defaults) for field in fields]
        found.append(f"### {f'[{table}]' if table else 'Top level'}")
        found.append(said)
        found.append("\n".join(["| setting | default | folder | |", "|---|---|---|---|", *rows]))
    return found


def _row(
    table: str, field: dataclasses.Field[Any], notes: dict[str, str], defaults: Settings
) -> str:
    key = f"{table}.{field.name}" if table else field.name
    value = defaults.values[key]
    shown = json.dumps(list(value) if isinstance(value, tuple) else value)
    note = notes.get(field.name, "").replace("|", "\\|")
    check = ALLOWED.get(key)
    folder = (check.limit or "yes") if check else "trust"
    return f"| `{key}` | `{shown}` | {folder} | {note} |"


def _notes(part: type) -> dict[str, str]:
    """The text under each field, which Python itself forgets."""
    body = ast.parse(textwrap.dedent(inspect.getsource(part))).body[0]
    assert isinstance(body, ast.ClassDef)
    notes: dict[str, str] = {}
    for one, after in zip(body.body, body.body[1:], strict=False):
        if (
            isinstance(one, ast.AnnAssign)
            and isinstance(one.target, ast.Name)
            and isinstance(after, ast.Expr)
            and isinstance(after.value, ast.Constant)
        ):
            notes[one.target.id] = " ".join(str(after.value.value).split())
    return notes


def architecture(text: str) -> str:
    """The page on the architecture with its tables of modules, in the modules' own first sentences."""
    rooms = re.findall(r"<!-- modules of (\S+) -->", text)
    for room in rooms:
        rows = ["| module | its duty |", "|---|---|", *map(_module_row, _modules(room, rooms))]
        start, end = f"<!-- modules of {room} -->", "<!-- end -->"
        before, _, rest = text.partition(start)
        text = before + start + "\n" + "\n".join(rows) + "\n" + end + rest.partition(end)[2]
    return text


def _modules(room: str, rooms: list[str]) -> list[Path]:
    """A room's modules, but for those of a room within it that has a table of its own."""
    here = SOURCE if room == "marklight" else SOURCE / room
    within = [SOURCE / each for each in rooms if here in (SOURCE / each).parents]
    return sorted(path for path in here.rglob("*.py") if not set(path.parents) & set(within))


def _module_row(path: Path) -> str:
    said = path.read_text().split('"""')[1].strip().split("\n")[0].replace("|", "\\|")
    return f"| `{path.relative_to(SOURCE).as_posix()}` | {said} |"


if __name__ == "__main__":
    PAGE.write_text(page())
    MANUAL.write_text(manual())
    ARCHITECTURE.write_text(architecture(ARCHITECTURE.read_text()))
    figures.renew()
    renew()
    with clone():
        ASSISTANTS.write_text(assistants(ASSISTANTS.read_text()))
    LLMS.write_text(llms())
    PUBLIC_SKILL.write_bytes(SKILL.read_bytes())
