"""Errors, help, and the modules that the program loads."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from marklight.library import Library
from marklight.surfaces.cli import COMMANDS
from marklight.surfaces.cli.output import Bar
from tests.making import write
from tests.surfaces.command_line import run_cli


@pytest.mark.parametrize(
    ("arguments", "code", "part"),
    [
        (["search", ""], 2, "empty"),
        (["search", "x", "-n", "0"], 2, "1<=x<=100"),
        (["search", "x", "nowhere"], 2, "No such folder: nowhere"),
        (["search", "x", "espresso.md"], 2, "not a folder"),
        (["search", "x", "--lmit", "3"], 2, "--limit"),
        (["search", "x", "--mode", "magic"], 2, "hybrid"),
        (["search", "x", "--after", "soon"], 2, "2026-01-31"),
        (["search", "x", "--after", "2026-02-31"], 2, "2026-02-31"),
        (["search", "x", "--after", "2026", "--after", "soon"], 2, "2026-01-31"),
        (["search", "x", "-n"], 2, "See `marklight search --help`"),
        (["search", "x", "--set", "search.fusee=1"], 2, "search.fuse"),
        (["search", "x", "--set", "quokka=1"], 2, "`marklight settings` lists all"),
        (["search", "x", "--set", "model.name=nothing-like-it"], 3, "nothing-like-it"),
        (["index", "--set", "model.name=nothing-like-it"], 3, "nothing-like-it"),
        (["serch", "x"], 2, "Did you mean 'search' or 'serve'? See `marklight --help`"),
        (["get", "nothing.md"], 1, "Nothing is indexed"),
        (["outline", "nothing.md"], 1, "Nothing is indexed"),
    ],
)
def test_an_error_is_one_line_with_an_exit_code(
    folder: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], code: int, part: str
) -> None:
    found, out, err = run_cli(capsys, *arguments)
    assert (found, out) == (code, "")
    lines = [line for line in err.splitlines() if not line.endswith("…")]
    assert len(lines) == 1
    assert lines[0].startswith("marklight: ")
    assert part in lines[0]


def test_debug_prints_the_traceback_and_keeps_the_exit_code(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = run_cli(capsys, "--debug", "search", "x", "nowhere")
    assert (code, out) == (2, "")
    assert "Traceback" in err
    assert err.splitlines()[-1].startswith("marklight: No such folder: nowhere")


@pytest.mark.parametrize("command", ["search", "commits"])
@pytest.mark.parametrize("query", ["-house", "-noise", "-not this", "--but these", "- dash"])
def test_a_query_with_a_leading_dash_gets_a_hint(
    folder: Path, capsys: pytest.CaptureFixture[str], command: str, query: str
) -> None:
    code, out, err = run_cli(capsys, command, query)
    assert (code, out) == (2, "")
    assert err.endswith(" Put -- before a query that starts with a dash.\n")


def test_a_name_with_a_leading_dash_gets_a_hint_and_a_mistyped_option_does_not(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    named = "Put -- before a name that starts with a dash"
    assert named in run_cli(capsys, "get", "-draft.md")[2]
    write(folder, {"-draft.md": "# Draft\n"})
    run_cli(capsys, "index")
    assert run_cli(capsys, "get", "--", "-draft.md")[1].endswith("# Draft\n")
    for mistyped in (["--lmit", "3"], ["-n5x"], ["-n", "many"]):
        err = run_cli(capsys, "search", "beans", *mistyped)[2]
        assert err.endswith("See `marklight search --help`.\n"), mistyped


def test_a_query_without_quotes_gets_a_hint(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, err = run_cli(capsys, "search", "how", "do", "tokens", "expire")
    assert code == 2
    assert "in quotes" in err


@pytest.mark.parametrize(
    ("phase", "message"),
    [
        ("files", "marklight: Interrupted\n"),
        ("Reading text", "Everything indexed so far is kept; the next run continues from there"),
    ],
)
def test_an_interruption_mentions_the_index_only_if_files_were_indexed(
    folder: Path,
    phase: str,
    message: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def interrupted(*_: object, progress: Bar, **__: object) -> None:
        progress(phase, 1, 2)
        raise KeyboardInterrupt

    monkeypatch.setattr(Bar, "indexed", False)
    monkeypatch.setattr(Library, "search", interrupted)
    code, _, err = run_cli(capsys, "search", "tokens", str(folder))
    assert code == 130
    assert message in err


def test_the_program_runs_as_a_process(folder: Path) -> None:
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            "from marklight.surfaces.cli import main; main()",
            "search",
            "beans",
            "--json",
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(done.stdout)["results"][0]["path"] == "espresso.md"


def test_help_names_every_command_and_describes_at_most_twenty(
    capsys: pytest.CaptureFixture[str],
) -> None:
    code, out, _ = run_cli(capsys, "--help")
    assert code == 0
    described, _, named = out.partition("\nMore:\n")
    shown = [name for name in COMMANDS if f"\n  {name} " in described]
    assert len(shown) <= 20
    assert {*shown, *named.strip().split(", ")} == set(COMMANDS)


def test_importing_loads_nothing_heavy() -> None:
    code = (
        "import marklight, sys; heavy = {'numpy', 'onnxruntime', 'tantivy', 'tokenizers', 'sqlite3',"
        " 'click', 'markdown_it', 'yaml', 'pathspec'} & set(sys.modules); sys.exit(str(heavy) if heavy else 0)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_help_loads_nothing_heavy() -> None:
    code = (
        "import sys; from marklight.surfaces.cli import run; run(['--help']);"
        " heavy = {'numpy', 'onnxruntime', 'tantivy', 'tokenizers', 'sqlite3', 'markdown_it', 'yaml', 'pathspec'}"
        " & set(sys.modules); sys.exit(str(heavy) if heavy else 0)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL)


def test_a_keyword_search_loads_neither_numpy_nor_a_model(folder: Path) -> None:
    code = (
        "import sys; from marklight.surfaces.cli import run; run(['search', '--mode', 'keyword', 'roll back']);"
        " heavy = {'numpy', 'onnxruntime', 'markdown_it', 'msgspec', 'logging'}"
        " & set(sys.modules); sys.exit(str(heavy) if heavy else 0)"
    )
    subprocess.run([sys.executable, "-m", "marklight", "index", "."], check=True, cwd=folder)
    subprocess.run([sys.executable, "-c", code], check=True, cwd=folder)


@pytest.mark.parametrize("host", ["127.0.0.1x", "192.0.2.77", "no.such.host.invalid"])
@pytest.mark.parametrize("token", [(), ("--token", "secret")], ids=["without token", "token"])
def test_serve_refuses_an_address_that_this_machine_does_not_have(
    folder: Path, capsys: pytest.CaptureFixture[str], host: str, token: tuple[str, ...]
) -> None:
    code, out, err = run_cli(capsys, "serve", "--host", host, *token)
    assert code == 2
    assert out == ""
    assert f"{host} is not an address of this machine" in err


def test_an_error_of_click_has_no_line_breaks_and_completion_is_explained(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for arguments in (["completion"], ["completion", "bash"], ["--completion", "sh"]):
        code, _, err = run_cli(capsys, *arguments)
        assert code == 2
        assert "\\n" not in err
    assert "Use `marklight --completion bash`" in run_cli(capsys, "completion")[2]
