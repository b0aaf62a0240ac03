"""The interactive session, with lines from a pipe."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from marklight.levels import LEVELS
from marklight.surfaces.cli import run
from marklight.surfaces.cli.interactive import COMMANDS, Session
from tests.making import library, write

LONG = "Roll back a deployment with the undo command, then look at the logs of the last hour. " * 4
PAGES = {
    "guide/auth.md": "---\ntags: [safety]\n---\n# Auth\n\n## Token refresh\n\nTokens expire after an hour.\n",
    "guide/deploy.md": f"# Deploy\n\nFirst words.\n\n## Undo\n\n{LONG}\n\n## After\n\nTell the team.\n",
    "espresso.md": "# Espresso\n\nGrind the beans finely.\n",
    "tea.md": "# Tea\n\nBoil the water, not the beans.\n",
}
Output = tuple[int, str, list[str]]
PROGRAM = "from marklight.surfaces.cli import main; main()"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MARKLIGHT_MODEL_NAME", "fake")
    monkeypatch.setenv("MARKLIGHT_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setenv("COLUMNS", "100")
    return write(tmp_path / "docs", PAGES)


@pytest.fixture
def run_lines(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Output]:
    """Return a function that runs lines and returns exit code, standard output and lines of standard error."""

    def say(*lines: str, options: tuple[str, ...] = ("--mode", "keyword")) -> Output:
        monkeypatch.setattr(sys, "stdin", io.StringIO("".join(f"{line}\n" for line in lines)))
        code = run(["query", str(folder), *options])
        out, err = capsys.readouterr()
        return code, out, [line for line in err.splitlines() if not line.endswith("…")]

    return say


def test_a_query_prints_a_table(run_lines: Callable[..., Output]) -> None:
    code, out, notes = run_lines("beans")
    first, below, *_ = out.splitlines()
    assert re.fullmatch(r"  1  [01]\.\d\d  prose  espresso\.md:3-3  Espresso", first)
    assert below == "     > Grind the beans finely."
    assert "\n  2  " in out
    assert (code, notes) == (0, [])


def test_piped_lines_run_after_indexing(folder: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, "query", str(folder)],
        input=b"when do tokens expire\n1\n:q\nnever asked\n",
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0
    out = done.stdout.decode()
    assert out.startswith("  1  ")
    assert "[1] guide/auth.md:8-8 § Auth > Token refresh (" in out
    assert "Ask in words" not in out
    assert b"Reading text" in done.stderr
    assert b"never" not in done.stdout + done.stderr


@pytest.mark.parametrize("word", ["exit", "quit", "EXIT", ":q"])
def test_a_word_ends_the_session(run_lines: Callable[..., Output], word: str) -> None:
    assert run_lines(word, "beans") == (0, "", [])


@pytest.mark.parametrize("word", ["help", "?", ":help"])
def test_a_word_prints_the_commands(run_lines: Callable[..., Output], word: str) -> None:
    code, out, notes = run_lines(word)
    assert ":o" in out
    assert (code, notes) == (0, [])


def test_end_of_input_ends_the_session_and_invalid_utf8_is_replaced(
    folder: Path,
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, "query", str(folder), "--mode", "keyword"],
        input=b"\xff beans \x00\n\n   \n1",
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert b"[1] " in done.stdout


def test_a_number_shows_the_passage_and_its_context_levels(
    run_lines: Callable[..., Output],
) -> None:
    _, out, _ = run_lines("undo command", "1")
    shown = out.split("\n\n", 1)[1]
    assert shown.startswith("[1] guide/deploy.md:7-7 § Deploy > Undo (")
    assert shown.splitlines()[1].startswith("> Roll back a deployment")
    size = len("## Undo\n\n") + len(LONG)
    assert f"\n\nmore context: section {size} characters (~{size // 3 + 1} tokens) · " in shown


@pytest.mark.parametrize(
    "line", ["1 document", ":1 document", ":w 1 document", ":widen 1 document"]
)
def test_a_result_is_shown_with_more_context(run_lines: Callable[..., Output], line: str) -> None:
    _, out, notes = run_lines("undo command", line)
    assert "guide/deploy.md:1-11 § Deploy" in out
    assert "Tell the team." in out
    assert notes == []


def test_a_number_with_other_words_is_a_query(run_lines: Callable[..., Output]) -> None:
    _, out, _ = run_lines("beans", "1 hour")
    assert "guide/auth.md:8-8" in out


def test_the_closest_passages_are_shown_and_a_command_shows_more(
    run_lines: Callable[..., Output],
) -> None:
    unlikely = ("--mode", "keyword", "-n", "1", "--set", "search.confidence.threshold=1")
    _, out, notes = run_lines("beans", "1", options=unlikely)
    assert notes[0].endswith("). Closest:")
    closest = [line for line in out.splitlines() if "  prose  " in line]
    assert 1 <= len(closest) <= 3
    assert "\n[1] " in out  # it can be read as a result
    code, out, notes = run_lines("beans", ":nearest", ":n", "water", options=unlikely)
    heads = [line.split()[0] for line in out.splitlines() if "  prose  " in line]
    assert heads[len(closest) :][:2] == ["1", "2"]
    # The next query uses the threshold again.
    assert len(notes) == 2
    assert code == 1


def test_more_results_keep_earlier_numbers(run_lines: Callable[..., Output]) -> None:
    _, out, notes = run_lines("beans", ":n", ":more", "2", options=("--mode", "keyword", "-n", "1"))
    heads = [line.split()[0] for line in out.splitlines() if "  prose  " in line]
    assert heads == ["1", "2"]
    assert notes == ["marklight: No more results"]
    assert "[2] " in out


def test_filters_are_added_to_every_query(run_lines: Callable[..., Output]) -> None:
    _, out, notes = run_lines(":f", "beans", ":f path:tea.md", ":f", "the beans", ":f -", ":f")
    none = "note: Filters: none. Set filters with :f tag:x after:2026-01."
    assert notes == [none, "note: Filters: path:tea.md", none]
    both, narrowed, other, wide, _ = out.split("\n\n")
    assert both.count(".md:3-3") == wide.count(".md:3-3") == 2
    assert narrowed.startswith("beans path:tea.md\n  1  ")
    assert "  prose  tea.md:3-3  Tea\n" in narrowed
    assert narrowed.count(".md:3-3") == other.count(".md:3-3") == 1
    assert wide.startswith("the beans\n  1  ")


def test_invalid_filters_are_not_kept(run_lines: Callable[..., Output]) -> None:
    _, out, notes = run_lines("beans", f":f path:{'*a' * 25}", ":f", "tokens")
    assert len(notes) == 2
    assert "too many wildcards" in notes[0]
    assert notes[1].startswith("note: Filters: none")
    assert "guide/auth.md:8-8" in out


def test_changing_the_mode_repeats_the_query(run_lines: Callable[..., Output]) -> None:
    _, out, notes = run_lines("grind the beans", ":mode hybrid", ":mode", ":mode magic")
    assert "grind the beans" in out.splitlines()
    assert out.count("espresso.md:3-3") == 2
    assert notes == [
        "note: Mode: hybrid. Change it with :mode MODE (hybrid, semantic, keyword, code).",
        "marklight: No such mode: magic. Choose from: hybrid, semantic, keyword, code.",
    ]


def test_explain_explains_the_last_answer(run_lines: Callable[..., Output]) -> None:
    _, out, _ = run_lines("beans", ":explain")
    assert out.count("stage ") == 1
    found_by = next(line for line in out.splitlines() if line.startswith("    found by"))
    assert " keyword " in found_by


def test_help_lists_every_command(run_lines: Callable[..., Output]) -> None:
    _, out, _ = run_lines(":help")
    for command in COMMANDS:
        for name in command.names:
            assert f":{name}" in out
        assert command.help in out


@pytest.mark.parametrize(
    ("line", "code", "part"),
    [
        ("7", 1, 'There is no result 7: the last one is 2. Type "7" in quotes to search for it'),
        ("0", 1, "There is no result 0"),
        ("999999999", 1, "There is no result 9"),
        ("9" * 5000, 1, "No passage matches the query"),
        (":o " + "9" * 5000, 1, "There is no result 9"),
        (":1 chapter", 2, "No such level: chapter"),
        (":w 1 chapter", 2, "characters (~"),
        (":w", 2, "is not a result number"),
        (":o", 2, "is not a result number"),
        (":o ²", 2, "is not a result number"),
        (":o 9", 1, "There is no result 9"),
        (":x", 2, "No such command: :x. Type :help for a list"),
        (":", 2, "No such command"),
        (": beans", 2, "No such command"),
        (":\x1b[2J", 2, "No such command"),
        ("zzzqqq", 1, "No passage matches the query"),
    ],
)
def test_an_error_is_one_line_and_the_session_continues(
    run_lines: Callable[..., Output], line: str, code: int, part: str
) -> None:
    found, out, notes = run_lines("beans", line, "tokens")
    assert found == code
    assert len(notes) == 1
    assert part in notes[0]
    assert notes[0].isprintable()
    assert "guide/auth.md:8-8" in out


@pytest.mark.parametrize("line", ["1", ":n", ":nearest", ":explain", ":o 1"])
def test_commands_about_results_need_a_query_first(
    run_lines: Callable[..., Output], line: str
) -> None:
    code, out, notes = run_lines(line)
    assert code > 0
    assert out == ""
    assert len(notes) == 1


def test_an_invalid_option_is_rejected_before_the_session(run_lines: Callable[..., Output]) -> None:
    assert run_lines("beans", options=("-n", "0"))[0] == 2
    assert run_lines("beans", options=("--mode", "magic"))[0] == 2


def test_a_deleted_file_is_reported(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with library(folder) as opened:
        session = Session(opened, mode="keyword")
        session.take("grind the beans")
        (folder / "espresso.md").unlink()
        capsys.readouterr()
        for line in ("1", "1 document", ":o 1"):
            assert session.take(line)
            out, err = capsys.readouterr()
            assert out == ""
            assert err == "marklight: espresso.md no longer exists. Search again.\n"


def test_a_changed_file_is_reported(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with library(folder) as opened:
        session = Session(opened, mode="keyword")
        session.take("undo command")
        (folder / "guide" / "deploy.md").write_text("nothing is left but this\n")
        capsys.readouterr()
        assert session.take("1 document")
        out, err = capsys.readouterr()
        assert out == ""
        assert err.splitlines()[-1] == (
            "marklight: guide/deploy.md has changed since this search. Search again."
        )


def test_a_passage_cannot_control_the_terminal_of_a_session(
    folder: Path, run_lines: Callable[..., Output]
) -> None:
    evil = "# Evil \x1b]0;title\x07\n\npapaya \x1b[2J text \u202e backwards\n"
    write(folder, {"evil \x1b[31m.md": evil})
    _, out, notes = run_lines("papaya", "1", "1 document", ":f \x1b[2J", ":f")
    assert "papaya" in out
    assert "\x1b" not in out + "".join(notes)
    assert "\x07" not in out


# Editors


@pytest.fixture
def editor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[str], Callable[[], list[str]]]:
    """Return a function that creates an editor which records its arguments."""
    monkeypatch.delenv("VISUAL", raising=False)

    def make(name: str) -> Callable[[], list[str]]:
        script, calls = tmp_path / "bin" / name, tmp_path / "calls"
        note = f"import json, sys; open({str(calls)!r}, 'w').write(json.dumps(sys.argv[1:]))"
        write(tmp_path / "bin", {name: f"#!{sys.executable}\n{note}\n"})
        script.chmod(0o755)
        monkeypatch.setenv("PATH", f"{script.parent}{os.pathsep}{os.environ['PATH']}")
        return lambda: json.loads(calls.read_text())

    return make


@pytest.mark.skipif(sys.platform == "win32", reason="a script needs another name there")
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
def test_a_result_is_opened_in_the_editor_at_its_line(
    folder: Path,
    run_lines: Callable[..., Output],
    editor: Callable[[str], Callable[[], list[str]]],
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    form: list[str],
) -> None:
    called = editor(name)
    monkeypatch.setenv("EDITOR", f"{name} --wait 'a b'")
    code, _, notes = run_lines("tokens expire", ":o 1")
    assert (code, notes) == (0, [])
    file = str(folder / "guide" / "auth.md")
    assert called() == ["--wait", "a b", *(word.replace("FILE", file) for word in form)]


@pytest.mark.skipif(sys.platform == "win32", reason="no such name there")
def test_no_shell_parses_a_file_name(
    folder: Path,
    run_lines: Callable[..., Output],
    editor: Callable[[str], Callable[[], list[str]]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    called = editor("vi")
    write(folder, {"$(touch owned); `x`.md": "papaya\n"})
    monkeypatch.setenv("VISUAL", "vi")
    monkeypatch.setenv("EDITOR", "not-this-one")
    run_lines("papaya", ":o 1")
    assert called() == ["+1", str(folder / "$(touch owned); `x`.md")]


@pytest.mark.parametrize(
    ("value", "part"),
    [("no-such-editor-here", "Cannot start"), ("vi 'half", "no closing quotation")],
)
def test_an_editor_that_cannot_start_is_reported(
    run_lines: Callable[..., Output], monkeypatch: pytest.MonkeyPatch, value: str, part: str
) -> None:
    monkeypatch.setenv("VISUAL", value)
    code, _, notes = run_lines("beans", ":o 1")
    assert code == 2
    assert len(notes) == 1
    assert part in notes[0]


def test_an_editor_that_fails_is_reported(
    run_lines: Callable[..., Output], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VISUAL", f"{sys.executable} -c 'raise SystemExit(7)'")
    _, _, notes = run_lines("beans", ":o 1")
    assert notes[0].endswith("exited with code 7")


def test_lines_are_completed_by_commands_numbers_and_levels(folder: Path) -> None:
    with library(folder) as opened:
        session = Session(opened, mode="keyword")
        assert session.completions("1") == []
        session.take("beans")
        assert session.completions(":m") == [":more", ":mode"]
        assert session.completions(":mode ") == ["hybrid", "semantic", "keyword", "code"]
        assert session.completions(":o ") == ["1", "2"]
        assert session.completions("2") == ["2"]
        assert session.completions("1 ") == list(LEVELS)
        assert session.completions(":w 1 doc") == ["document"]
        assert session.completions("7 ") == session.completions("what is ") == []
        assert session.completions("") == []


def test_help_does_not_load_prompt_toolkit() -> None:
    check = (
        "import sys; from marklight.surfaces.cli import run; run(['--help']);"
        "assert not {'prompt_toolkit', 'wcwidth', 'marklight.library'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", check], check=True, capture_output=True)
