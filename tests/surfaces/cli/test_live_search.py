"""Live search: the session itself, and on a pseudo-terminal."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from prompt_toolkit.application import create_app_session
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.data_structures import Size
from prompt_toolkit.document import Document
from prompt_toolkit.formatted_text import fragment_list_to_text
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.output import DummyOutput

from marklight.errors import MarklightError, UsageError
from marklight.surfaces.cli.editor import editor_command, open_in_editor
from marklight.surfaces.cli.live_search import LiveSearch
from tests.making import library, write
from tests.surfaces.command_line import run_cli

if sys.platform == "win32":
    pytest.skip("there are no pseudo-terminals", allow_module_level=True)

from tests.surfaces.terminal import PROGRAM, Terminal

PAGES = {
    "guide/auth.md": "# Auth\n\n## Token refresh\n\nTokens expire after an hour; refresh them.\n",
    "guide/deploy.md": "---\ntags: [web]\n---\n# Deploy\n\nRoll back with the undo command.\n",
    "espresso.md": "# Espresso\n\nGrind the beans finely.\n\n## Milk\n\nSteam it.\n\n### Foam\n\nThin.\n",
}
CONTROL_C, CONTROL_L, CONTROL_Y, DOWN, ESCAPE = "\x03", "\x0c", "\x19", "\x1b[B", "\x1b"


class Screen(DummyOutput):
    """A screen of 80 columns and 24 lines that keeps what is written beside it."""

    def __init__(self) -> None:
        self.raw = ""

    def get_size(self) -> Size:
        return Size(rows=24, columns=80)

    def write_raw(self, data: str) -> None:
        self.raw += data


@pytest.fixture
def session(tmp_path: Path) -> Iterator[LiveSearch]:
    with (
        library(write(tmp_path / "docs", PAGES)) as opened,
        create_pipe_input() as keys,
        create_app_session(input=keys, output=Screen()),
    ):
        opened.index()
        yield LiveSearch(opened, mode="keyword")


def shown(session: LiveSearch) -> str:
    return fragment_list_to_text(session.listed())


def test_results_are_listed_and_the_selected_one_is_previewed(session: LiveSearch) -> None:
    session._search("the")
    session._search("grind bea")  # an unfinished word
    rows = shown(session).splitlines()
    assert rows[0].startswith("> espresso.md:3-3  Espresso")
    assert all(len(row) <= 80 for row in rows)
    preview = session.previewed()
    assert fragment_list_to_text(preview).startswith("Grind the beans finely.")
    assert ("class:match", "beans") in preview
    assert fragment_list_to_text(session.status()).startswith(f"{len(rows)} result")


def test_a_result_is_widened_to_its_section_and_document(session: LiveSearch) -> None:
    session._search("grind beans")
    session.widen()
    session.widen()
    assert "Steam it." in fragment_list_to_text(session.previewed())
    session.widen()
    assert "Steam it." not in fragment_list_to_text(session.previewed())


def test_the_place_is_copied_by_an_escape_sequence(session: LiveSearch) -> None:
    session._search("grind beans")
    session.copy()
    # base64 of espresso.md:3-3
    assert isinstance(session.app.output, Screen)
    assert session.app.output.raw == "\x1b]52;c;ZXNwcmVzc28ubWQ6My0z\x07"
    assert session.message == "Copied espresso.md:3-3"


def test_an_error_and_an_abstention_are_messages(session: LiveSearch) -> None:
    session._search("after:2025-13")
    assert "2025-13" in session.message
    session._search("zzzqqq")
    assert session.message.startswith("No passage matches")
    assert session.hits == ()
    session.select(1)
    session.open()
    session.copy()
    session.widen()


@pytest.mark.parametrize(
    ("typed", "completed"),
    [
        ("beans ta", ["tag:", "task:open", "task:done"]),
        ("tag:", ["tag:web"]),
        ("#w", ["#web"]),
        ("path:g", ["path:guide/**"]),
        ("nothing:", []),
    ],
)
def test_tab_completes_filters(session: LiveSearch, typed: str, completed: list[str]) -> None:
    assert session.buffer.completer
    found = session.buffer.completer.get_completions(Document(typed), CompleteEvent())
    completions = [completion.text for completion in found]
    assert sorted(completions) == sorted(each for each in completed if each)


def test_text_of_documents_cannot_control_the_screen(session: LiveSearch, tmp_path: Path) -> None:
    evil = "# Evil \x1b]0;title\x07\n\npapaya \x1b[2J text \u202e backwards\n"
    write(tmp_path / "docs", {"evil \x1b[31m.md": evil})
    session._search("papaya")
    text = shown(session) + fragment_list_to_text(session.previewed())
    assert "papaya" in text
    assert not {"\x1b", "\x07", "\u202e"} & set(text)


# On a pseudo-terminal


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    write(tmp_path / "docs", PAGES)
    return {"MARKLIGHT_MODEL_NAME": "fake", "MARKLIGHT_DATA_DIR": str(tmp_path / "data")}


@pytest.fixture
def editor(tmp_path: Path, environment: dict[str, str]) -> Callable[[str], Callable[[], list[str]]]:
    """Return a function that creates an editor which records its arguments."""

    def make(name: str) -> Callable[[], list[str]]:
        script, calls = tmp_path / "bin" / name, tmp_path / "calls"
        note = f"import json, sys; open({str(calls)!r}, 'w').write(json.dumps(sys.argv[1:]))"
        write(tmp_path / "bin", {name: f"#!{sys.executable}\n{note}\n"})
        script.chmod(0o755)
        environment.update(VISUAL="", EDITOR=str(script))

        def called() -> list[str]:
            deadline = time.monotonic() + 30
            while not calls.exists() or not calls.read_text():
                assert time.monotonic() < deadline, "the editor was never called"
                time.sleep(0.05)
            arguments: list[str] = json.loads(calls.read_text())
            return arguments

        return called

    return make


def test_enter_opens_the_editor_and_escape_ends_the_session(
    tmp_path: Path, environment: dict[str, str], editor: Callable[[str], Callable[[], list[str]]]
) -> None:
    called = editor("vim")
    with Terminal(["query", str(tmp_path / "docs")], environment) as terminal:
        terminal.until("Type to search.")
        terminal.send("tokens expire")
        terminal.until("guide/auth.md")
        terminal.send("\r")
        assert called() == ["+5", str(tmp_path / "docs" / "guide" / "auth.md")]
        terminal.send(ESCAPE)
        assert terminal.end() == 0
        assert "Traceback" not in terminal.raw


def test_no_color_writes_no_colors(tmp_path: Path, environment: dict[str, str]) -> None:
    with Terminal(["query", str(tmp_path / "docs")], environment | {"NO_COLOR": "1"}) as terminal:
        terminal.until("Type to search.")
        terminal.send("beans")
        terminal.until("espresso.md")
        assert "\x1b[0;35" not in terminal.raw
        assert "\x1b[0;31" not in terminal.raw
        terminal.send(CONTROL_C)
        assert terminal.end() == 0


def test_the_program_alone_searches_the_library_around_the_current_folder(
    tmp_path: Path, environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path / "docs")
    with Terminal([], environment) as terminal:  # nothing is indexed yet
        assert terminal.end() == 2
        assert "Usage: marklight" in terminal.shown()
    with Terminal(["index"], environment) as terminal:
        assert terminal.end() == 0
    with Terminal([], environment) as terminal:
        terminal.until("Type to search.")
        terminal.send(CONTROL_C)
        assert terminal.end() == 0


SLOW_EMBEDDING = f"""
import time
from marklight.library import watching
def slowly(ingest, lock, progress, seconds):
    progress("Embedding passages", 63, 100)
    time.sleep(0.2)
    return True
watching.embed_for_seconds = slowly
{PROGRAM}
"""
"""A program whose embedding run never finishes."""


def test_a_new_folder_is_searched_while_passages_are_embedded(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    call = ["query", str(tmp_path / "docs")]
    with Terminal(call, environment, program=SLOW_EMBEDDING) as terminal:
        terminal.until("embedding")
        terminal.send("grind the beans")
        terminal.until("espresso.md")
        terminal.send(ESCAPE)
        assert terminal.end() == 0


# Queries from a pipe


def test_queries_can_be_piped_in(tmp_path: Path, environment: dict[str, str]) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, "query", str(tmp_path / "docs"), "-n", "1"],
        input=b"grind beans\nafter:2025-13\ncaf\xe9 zzzqqq\ntokens expire\n",
        env={**os.environ, **environment},
        capture_output=True,
        check=False,
    )
    heads = [line for line in done.stdout.decode().splitlines() if line.startswith("[")]
    assert [head.split(" §")[0] for head in heads] == [
        "[1] espresso.md:3-3",
        "[1] guide/auth.md:5-5",
    ]
    assert "marklight: " in done.stderr.decode()
    assert done.returncode == 2


# Editors


@pytest.mark.parametrize(
    ("name", "form"),
    [
        ("vim", ["+8", "FILE"]),
        ("nano", ["+8", "FILE"]),
        ("emacs", ["+8", "FILE"]),
        ("hx", ["FILE:8"]),
        ("code", ["-g", "FILE:8"]),
        ("somethingelse", ["FILE"]),
    ],
)
def test_an_editor_opens_a_file_at_its_line(name: str, form: list[str]) -> None:
    file = "/docs/$(touch owned); `x`.md"  # no shell parses it
    command = editor_command(Path(file), 8, {"EDITOR": f"{name} --wait 'a b'"})
    assert command == [name, "--wait", "a b", *(word.replace("FILE", file) for word in form)]
    assert editor_command(Path(file), 8, {"VISUAL": "vi", "EDITOR": name})[0] == "vi"
    assert editor_command(Path(file), 8, {}, "linux") == ["xdg-open", file]


def test_an_editor_that_fails_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VISUAL", "no-such-editor-here")
    with pytest.raises(UsageError, match="Cannot start"):
        open_in_editor(Path("x.md"), 1)
    monkeypatch.setenv("VISUAL", "vi 'half")
    with pytest.raises(UsageError, match="no closing quotation"):
        open_in_editor(Path("x.md"), 1)
    monkeypatch.setenv("VISUAL", f"{sys.executable} -c 'raise SystemExit(7)'")
    with pytest.raises(MarklightError, match="exited with code 7"):
        open_in_editor(Path("x.md"), 1)


def test_help_does_not_load_prompt_toolkit(capsys: pytest.CaptureFixture[str]) -> None:
    check = (
        "import sys; from marklight.surfaces.cli import run; run(['--help']);"
        "assert not {'prompt_toolkit', 'wcwidth', 'marklight.library'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", check], check=True, capture_output=True)
    assert run_cli(capsys, "query", "--mode", "wrong")[0] == 2
