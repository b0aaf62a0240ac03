"""The interactive session on a pseudo-terminal."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from marklight.surfaces.cli.line_editor import LineFile
from tests.making import write

if sys.platform == "win32":
    pytest.skip("there are no pseudo-terminals", allow_module_level=True)

from tests.surfaces.terminal import PROGRAM, Terminal

PAGES = {
    "guide/auth.md": "# Auth\n\n## Token refresh\n\nTokens expire after an hour; refresh them.\n",
    "guide/deploy.md": "# Deploy\n\nRoll back a deployment with the undo command.\n",
    "espresso.md": "# Espresso\n\nGrind the beans finely.\n",
}
UP, TAB, CONTROL_C, CONTROL_D, CONTROL_R = "\x1b[A", "\t", "\x03", "\x04", "\x12"


def slow_once(verb: str) -> str:
    """Return a program whose first search or first indexing run never finishes."""
    return f"""
import time
from marklight.library import Library
usual = Library.{verb}
def slowly(self, *words, **options):
    Library.{verb} = usual
    print("taking long", flush=True)
    time.sleep(600)
Library.{verb} = slowly
{PROGRAM}
"""


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    write(tmp_path / "docs", PAGES)
    return {"MARKLIGHT_MODEL_NAME": "fake", "MARKLIGHT_DATA_DIR": str(tmp_path / "data")}


@pytest.fixture
def arguments(tmp_path: Path) -> list[str]:
    return ["query", str(tmp_path / "docs"), "--mode", "keyword"]


def test_search_read_and_search_again(arguments: list[str], environment: dict[str, str]) -> None:
    with Terminal(arguments[:2], environment) as terminal:
        terminal.until("Type a query.")
        terminal.until("marklight>")
        terminal.send("how do I roll back a deployment\r")
        terminal.until("guide/deploy.md:3-3")
        terminal.until("Roll back a deployment with the undo command.")
        terminal.until("marklight>")
        terminal.send("1\r")
        terminal.until("[1] guide/deploy.md:3-3 § Deploy (")
        terminal.until("marklight>")
        terminal.send("grind the beans\r")
        terminal.until("espresso.md:3-3")
        terminal.until("marklight>")
        terminal.send(":q\r")
        assert terminal.end() == 0


def test_places_are_hyperlinks(arguments: list[str], environment: dict[str, str]) -> None:
    with Terminal(arguments, environment) as terminal:
        terminal.until("keyword]>")
        terminal.send("beans\r")
        terminal.until("espresso.md:3-3")
        address = (Path(arguments[1]) / "espresso.md").resolve().as_uri()
        assert f"\x1b]8;;{address}\x1b\\espresso.md:3-3\x1b]8;;\x1b\\" in terminal.raw


@pytest.mark.parametrize(
    ("call", "shown"),
    [
        (["search", "beans", "FOLDER", "--mode", "keyword"], "espresso.md:3-3"),
        (["get", "espresso.md", "--in", "FOLDER"], "espresso.md:1-3"),
        (["outline", "espresso.md", "--in", "FOLDER"], ":1-"),
    ],
)
def test_other_commands_print_hyperlinks_on_a_terminal_only(
    arguments: list[str], environment: dict[str, str], call: list[str], shown: str
) -> None:
    call = [word.replace("FOLDER", arguments[1]) for word in call]
    with Terminal(["index", arguments[1]], environment) as terminal:
        assert terminal.end() == 0
    with Terminal(call, environment) as terminal:
        assert terminal.end() == 0
        address = (Path(arguments[1]) / "espresso.md").resolve().as_uri()
        assert f"\x1b]8;;{address}\x1b\\{shown}" in terminal.raw
    piped = subprocess.run(
        [sys.executable, "-c", PROGRAM, *call],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "\x1b" not in piped.stdout
    shown = terminal.shown()
    if call[0] == "get":  # a pipe receives the text only
        shown = "\n".join(line.removeprefix(">").removeprefix(" ") for line in shown.splitlines())
    assert piped.stdout.strip() in shown


def test_no_color_disables_hyperlinks(arguments: list[str], environment: dict[str, str]) -> None:
    with Terminal(arguments, environment | {"NO_COLOR": "1"}) as terminal:
        terminal.until("keyword]>")
        terminal.send("beans\r")
        terminal.until("espresso.md:3-3")
        assert "\x1b]8" not in terminal.raw


def test_ctrl_c_stops_a_search_and_not_the_session(
    arguments: list[str], environment: dict[str, str]
) -> None:
    with Terminal(arguments, environment, program=slow_once("search")) as terminal:
        terminal.until("keyword]>")
        terminal.send("beans\r")
        terminal.until("taking long")
        terminal.send(CONTROL_C)
        terminal.until("note: Interrupted")
        terminal.until("keyword]>")
        terminal.send("beans\r")
        terminal.until("espresso.md:3-3")
        terminal.until("keyword]>")
        terminal.send(CONTROL_D)
        assert terminal.end() == 0
        assert "Traceback" not in terminal.raw


SLOW_EMBEDDING = f"""
import time
from marklight.library import watching
def slowly(ingest, lock, wait_seconds, progress, seconds):
    progress("Embedding passages", 63, 100)
    time.sleep(0.2)
    return True
watching.embed_for_seconds = slowly
{PROGRAM}
"""
"""A program whose embedding run never finishes."""


def test_the_prompt_comes_at_once_while_passages_are_embedded(
    arguments: list[str], environment: dict[str, str]
) -> None:
    with Terminal(arguments[:2], environment, program=SLOW_EMBEDDING) as terminal:
        terminal.until("marklight>")
        terminal.until("embedding passages")
        terminal.send("grind the beans\r")
        terminal.until("espresso.md:3-3")
        terminal.until("marklight>")
        terminal.send("exit\r")
        assert terminal.end() == 0


def test_what_is_typed_during_a_search_is_not_mixed_with_its_output(
    arguments: list[str], environment: dict[str, str]
) -> None:
    program = slow_once("search").replace(
        "time.sleep(600)", "time.sleep(1); return usual(self, *words, **options)"
    )
    with Terminal(arguments, environment, program=program) as terminal:
        terminal.until("keyword]>")
        terminal.send("tokens\r")
        terminal.until("taking long")
        terminal.send("beans\r")
        assert "beans" not in terminal.until("marklight [keyword]>")
        terminal.until("espresso.md:3-3")  # the next prompt reads it
        terminal.until("keyword]>")


@pytest.mark.parametrize("word", ["exit", "quit", "EXIT", ":exit", ":q"])
def test_a_word_ends_the_session(
    arguments: list[str], environment: dict[str, str], word: str
) -> None:
    with Terminal(arguments, environment) as terminal:
        terminal.until("keyword]>")
        terminal.send(f"{word}\r")
        assert terminal.end() == 0


@pytest.mark.parametrize("word", ["help", "?", ":?", ":h"])
def test_a_word_shows_the_commands(
    arguments: list[str], environment: dict[str, str], word: str
) -> None:
    with Terminal(arguments, environment) as terminal:
        terminal.until("keyword]>")
        terminal.send(f"{word}\r")
        terminal.until(":mode [MODE]")
        terminal.until("keyword]>")
        terminal.send('"help"\r')
        terminal.until("note:")  # a query in quotes, which finds nothing


def test_ctrl_c_at_the_prompt_discards_the_line(
    arguments: list[str], environment: dict[str, str]
) -> None:
    with Terminal(arguments, environment) as terminal:
        terminal.until("keyword]>")
        terminal.send("tokens")
        terminal.until("tokens")
        terminal.send(CONTROL_C)
        terminal.until("\nmarklight [keyword]>")
        terminal.send("beans\r")
        terminal.until("espresso.md:3-3")
        terminal.until("keyword]>")
        terminal.send(CONTROL_D)
        assert terminal.end() == 0
        assert "auth.md" not in terminal.shown()


def test_history_is_kept_for_the_next_session(
    arguments: list[str], environment: dict[str, str], tmp_path: Path
) -> None:
    with Terminal(arguments, environment) as terminal:
        for line in ("beans", "tokens", " secret beans"):
            terminal.until("keyword]>")
            terminal.send(f"{line}\r")
            terminal.until(".md:")
        terminal.until("keyword]>")
        terminal.send(CONTROL_D)
        terminal.end()
    kept = tmp_path / "data" / "query-history"
    assert kept.read_text() == "beans\ntokens\n"
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    with Terminal(arguments, environment) as terminal:
        terminal.until("keyword]>")
        terminal.send("b" + UP + "\r")  # the newest line with this prefix
        terminal.until("espresso.md:3-3")
        terminal.until("keyword]>")
        terminal.send(CONTROL_R + "oke" + "\r\r")
        terminal.until("guide/auth.md:5-5")


def test_an_unwritable_history_is_not_an_error(
    arguments: list[str], environment: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "query-history").symlink_to(tmp_path / "missing" / "file")
    with Terminal(arguments, environment) as terminal:
        terminal.until("keyword]>")
        terminal.send("beans\r")
        terminal.until("espresso.md:3-3")
        terminal.until("keyword]>")
        terminal.send(":q\r")
        assert terminal.end() == 0
        assert "Error" not in terminal.raw


def test_a_folder_in_place_of_the_history_is_not_an_error(
    arguments: list[str], environment: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "data" / "query-history").mkdir(parents=True)
    with Terminal(arguments, environment) as terminal:
        terminal.until("keyword]>")
        terminal.send("beans\r")
        terminal.until("espresso.md:3-3")
        terminal.until("keyword]>")
        terminal.send(":q\r")
        assert terminal.end() == 0
        assert "Errno" not in terminal.raw


def test_tab_completes_commands(arguments: list[str], environment: dict[str, str]) -> None:
    with Terminal(arguments, environment) as terminal:
        terminal.until("keyword]>")
        terminal.send(f":mo{TAB}")
        terminal.until(":more :mode")
        terminal.until("keyword]> :mo")  # completions are listed
        terminal.send(f"\x15:exp{TAB}\r")
        terminal.until("here is no query yet")


def test_a_long_history_is_truncated_to_its_newest_lines(tmp_path: Path) -> None:
    file = LineFile(tmp_path / "history", limit=3)
    for number in range(5):
        file.add(f"line {number}")
    assert file.read() == ["line 2", "line 3", "line 4"]
    assert file.path.read_text() == "line 2\nline 3\nline 4\n"
    assert stat.S_IMODE(file.path.stat().st_mode) == 0o600
    assert os.listdir(tmp_path) == ["history"]


def test_blank_and_pasted_lines_are_not_kept(tmp_path: Path) -> None:
    file = LineFile(tmp_path / "history")
    for line in ("", "  ", " private", "x" * 2_001, "two\nlines", "caf\udce9"):
        file.add(line)
    assert file.read() == ["two lines", "caf?"]


def test_a_pipe_in_place_of_the_history_does_not_block(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "history")
    file = LineFile(tmp_path / "history")
    file.add("words")
    assert file.read() == []
