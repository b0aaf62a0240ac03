"""Every path, command and setting that the documentation names exists."""

from __future__ import annotations

import doctest
import re
import shlex
import tomllib
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from marklight.library.configuration import SCHEMA, stage_name
from marklight.search.pipeline import FUSE, REFINE, RETRIEVE, REWRITE
from marklight.settings import Layer, combine, known_keys
from marklight.surfaces.cli import app

from .examples import PAGES, ROOT, alike, clone, examples_of, printed, sessions
from .reference import PAGE, page

PLACES = ("src/", "tests/", "docs/", "examples/", "scripts/", "benchmarks/", ".ci/")

_FENCE = re.compile(r"^(`{3,})(\w*)\n(.*?)^\1$", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"`([^`\n]+)`")
_LINK = re.compile(r"\]\(([^)#\s:]+)(?:#[^)]*)?\)")


def fences(text: str, *languages: str) -> Iterator[str]:
    return (body for _, language, body in _FENCE.findall(text) if language in languages)


def inline(text: str) -> list[str]:
    return _CODE.findall(_FENCE.sub("", text))


def commands(text: str) -> Iterator[str]:
    for body in fences(text, "sh", "console", "bash"):
        for line in body.splitlines():
            for part in line.removeprefix("$ ").split(" | "):
                bare = part.removeprefix(".venv/bin/")
                if bare.startswith("marklight "):
                    yield bare
    yield from (code for code in inline(text) if code.startswith("marklight "))


@pytest.mark.parametrize("file", PAGES, ids=lambda path: path.name)
def test_every_path_that_is_named_exists(file: Path) -> None:
    text = file.read_text()
    named = {code.split()[0].rstrip("/") for code in inline(text) if code.startswith(PLACES)}
    missing = {name for name in named if "*" not in name and not (ROOT / name).exists()}
    assert not missing
    linked = set(_LINK.findall(_FENCE.sub("", text)))
    assert not {link for link in linked if not (file.parent / link).exists()}


@pytest.mark.parametrize("file", PAGES, ids=lambda path: path.name)
def test_every_command_that_is_shown_can_be_typed(file: Path) -> None:
    for line in commands(file.read_text()):
        words = [word for word in shlex.split(line, comments=True)[1:] if word not in ("…", "...")]
        command: click.Command = app
        while isinstance(command, click.Group) and words and not words[0].startswith("-"):
            assert words[0] in command.commands, f"{line}: no command {words[0]}"
            command = command.commands[words.pop(0)]
        known = {option for one in command.params for option in one.opts} | {"--help", "-h"}
        typed = {word.partition("=")[0] for word in words if re.match(r"--?[a-z]", word)}
        assert typed <= known, f"{line}: unknown {typed - known}"


@pytest.mark.parametrize("file", PAGES, ids=lambda path: path.name)
def test_every_setting_that_is_named_is_known(file: Path) -> None:
    text = file.read_text()
    for body in fences(text, "toml"):
        values = tomllib.loads(body)
        if {"project", "build-system", "mcp_servers"} & set(values):
            continue  # another program's
        combine([Layer(file.name, values.get("tool", {}).get("marklight", values))], SCHEMA)
    known = {*known_keys(SCHEMA), *SCHEMA}
    tables = tuple(f"{table}." for table in ("model", "index", "files", "chunk", "search"))
    dotted = {code for code in inline(text) if re.fullmatch(r"[a-z_]+(\.[a-z_]+)+", code)}
    assert not {
        name
        for name in dotted
        if name.startswith(tables) and name not in known and not name.endswith((".py", ".md"))
    }


def test_the_reference_is_current() -> None:
    assert PAGE.read_text() == page(), "run `python -m tests.docs.reference`"


def test_the_page_on_the_pipeline_describes_every_stage_in_its_order() -> None:
    rows = re.findall(r"^\| `(\w+)` \| (.+?) \|", (ROOT / "docs" / "pipeline.md").read_text(), re.M)
    described = [name for name, message in rows if name in {stage_name(one) for one in stages()}]
    # The fusion that is the default comes first.
    assert sorted(described) == sorted(stage_name(one) for one in stages())
    others = [stage_name(one) for one in stages() if one not in FUSE]
    assert [name for name in described if name in others] == others


def stages() -> tuple[type, ...]:
    return (*REWRITE, *RETRIEVE, *FUSE, *REFINE)


def test_every_example_is_answered_as_the_documentation_says() -> None:
    with clone():
        for file in PAGES:
            for example in examples_of(file):
                now = printed(example.command)
                assert alike(example.printed, now), (
                    f"{file.name}: {example.command} prints\n{now}\nif that is right, run `python -m tests.docs.reference`"
                )


def test_what_is_typed_into_python_is_answered_as_the_documentation_says() -> None:
    typed = [sessions(file) for file in PAGES]
    assert sum(len(one.examples) for one in typed) > 5
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    with clone():
        for one in typed:
            runner.run(one)
    assert runner.summarize().failed == 0


def test_examples_differ_by_what_they_say_and_not_by_times_or_the_last_digit_of_a_score() -> None:
    assert alike("a.md (0.83)\nfuse  18   0.35", "a.md (0.84)\nfuse  18  99.35")
    assert not alike("a.md (0.83)", "a.md (0.93)")
    assert not alike("fuse  18   0.35", "fuse  17   0.35")
    assert not alike("a.md (0.83)", "b.md (0.83)")


def test_the_docs_are_there() -> None:
    assert {"README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md"} <= {
        path.name for path in PAGES
    }
