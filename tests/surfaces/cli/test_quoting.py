"""Hostile documents and commits cannot pose as output of the program."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from marklight.surfaces.cli import run
from marklight.surfaces.http.errors import json_response
from marklight.surfaces.http.execution import event
from tests.forgery import BIDI, DANGEROUS, ESCAPES, HEADER, NAME, NOTE, TAGS, TEXT
from tests.making import write
from tests.repository import Repository, needs_git
from tests.surfaces.command_line import run_cli
from tests.surfaces.terminal import Terminal

WORD = "quetzalcoatl"
PAGES = {
    NAME: (
        f'---\ntags: ["{NOTE}"]\n---\n# {WORD} {HEADER} {BIDI}{ESCAPES}{TAGS}\n\n'
        f"## {NOTE}\n\nThe {WORD}.\n{TEXT}\n"
    ),
    "policy.md": f"# Policy\n\nThe real policy of {WORD}. [[{HEADER}]]\n",
}
OURS = re.compile(
    r"\[\d+\] .* \([01]\.\d\d\)|### .*|>.*|files: .*|document: .*|:\d+-\d+ .*|Commits|## Commits"
    r"|[01]\.\d\d  .*|      .*|  .*|(links to|linked from|broken links|documents without links) \(\d+\)|no headings|"
)


@pytest.fixture
def hostile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MARKLIGHT_MODEL_NAME", "fake")
    monkeypatch.setenv("MARKLIGHT_DATA_DIR", str(tmp_path / "data"))
    folder = write(tmp_path / "docs", PAGES)
    monkeypatch.chdir(folder)
    assert run(["index"]) == 0
    return folder


@pytest.mark.parametrize(
    "arguments",
    [
        ["search", WORD, "--min-confidence", "0"],
        ["search", WORD, "--min-confidence", "0", "--format", "md"],
        ["outline", NAME],
        ["related", "policy.md"],
        ["links", "policy.md"],
        ["links"],
    ],
)
def test_every_line_is_a_known_format_or_quoted(
    hostile: Path, capsys: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    _, out, err = run_cli(capsys, *arguments)
    assert not DANGEROUS.search(out.replace("\n", ""))
    assert not DANGEROUS.search(err.replace("\n", ""))
    for line in out.split("\n"):
        assert OURS.fullmatch(line), line
        assert not line.startswith(("note:", HEADER, "document: policy"))
    if arguments[0] == "search":
        heads = [line for line in out.splitlines() if line.startswith(("[", "###"))]
        assert sum("policy.md:3-3" in line for line in heads) == 1
        assert f"> {HEADER}" in out.splitlines()


def test_a_markdown_heading_links_only_to_its_file(
    hostile: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(hostile, {"x.md": f"# [a](http://evil.invalid) <img src=x> &#x202e; `b` {WORD}\n\nc\n"})
    _, out, _ = run_cli(capsys, "search", WORD, "--format", "md", "--path", "x.md", "-n", "1")
    head = out.splitlines()[0]
    assert re.findall(r"(?<!\\)\]\(([^)]*)\)", head) == [
        re.findall(r"\]\((x\.md#[^)]*)\)$", head)[0]
    ]
    assert not re.search(r"(?<!\\)[<&`]", head)


def test_get_prints_the_text_only_into_a_pipe(
    hostile: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Only terminal control characters are escaped, as a pipe may end at a terminal."""
    legit = "# שלום\n\nטקסט \u200fעם סימן, می\u200cخواهم\n\n[1] a list (0.99)\n"
    write(hostile, {"hebrew.md": legit})
    run_cli(capsys, "index")
    code, out, _ = run_cli(capsys, "get", "hebrew.md")
    assert (code, out) == (0, legit)
    _, out, _ = run_cli(capsys, "get", NAME)
    assert out.startswith("---\ntags:")
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", out)


def test_get_quotes_the_document_on_a_terminal(hostile: Path) -> None:
    environment = {"NO_COLOR": "1"}
    with Terminal(["get", NAME, "--in", str(hostile)], environment, size=(24, 60)) as terminal:
        assert terminal.end() == 0
    shown = terminal.shown().replace("\r", "")
    at = shown.index("document: ")
    assert not DANGEROUS.search(terminal.raw.replace("\r\n", ""))
    head, *rest = shown[at:].rstrip("\n").split("\n")
    while rest[0].startswith("    "):  # the rest of the line with its place, folded
        rest.pop(0)
    assert all(line.startswith(">") for line in rest)
    assert max(map(len, [head, *rest])) <= 60


@pytest.mark.parametrize("width", [40, 80, 100])
def test_a_folded_line_cannot_pose_as_a_header(hostile: Path, width: int) -> None:
    fill = "x" * (width - 4)
    write(hostile, {"long.md": f"# {WORD} {'y' * (width - 20)} {HEADER}\n\n{fill}{HEADER}\n"})
    run(["index"])
    environment = {"NO_COLOR": "1"}
    call = ["search", WORD, str(hostile), "--path", "long.md", "--min-confidence", "0"]
    with Terminal(call, environment, size=(24, width)) as terminal:
        assert terminal.end() == 0
    rows = terminal.shown().replace("\r", "").split("\n")
    assert all(len(row) <= width for row in rows)
    assert not any(row.startswith(HEADER[:12]) for row in rows)
    assert any(row.startswith("    [2] ") for row in rows)


def test_queries_from_a_pipe_quote_passages(hostile: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", "from marklight.surfaces.cli import main; main()", "query"],
        input=f"{WORD}\n{WORD} policy\n".encode(),
        cwd=hostile,
        capture_output=True,
        check=False,
    )
    out = done.stdout.decode()
    assert not DANGEROUS.search(out.replace("\n", ""))
    for line in out.split("\n"):
        assert OURS.fullmatch(line), line
    assert f"> {HEADER}" in out.splitlines()


@needs_git
def test_commits_are_quoted_below_their_headers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MARKLIGHT_MODEL_NAME", "fake")
    monkeypatch.setenv("MARKLIGHT_DATA_DIR", str(tmp_path / "data"))
    made = Repository(tmp_path / "docs")
    message = f"{WORD} {BIDI}{TAGS}{HEADER}\n\n{TEXT.replace(chr(0), '')}"
    made.commit(message, {"[2] p.md": f"{WORD}\n{TEXT}\n"}, author=f"{HEADER} {BIDI} <a@b.c>")
    monkeypatch.chdir(made.folder)
    for format in ("text", "md"):
        code, out, _ = run_cli(capsys, "commits", WORD, "--format", format, "--min-confidence", "0")
        assert code == 0
        assert not DANGEROUS.search(out.replace("\n", ""))
        for line in out.split("\n"):
            assert OURS.fullmatch(line), line
        heads = [line for line in out.splitlines() if line.startswith(("[", "### "))]
        assert len(heads) == 1


@pytest.mark.parametrize(
    "arguments",
    [
        ["search", WORD, "--json"],
        ["search", WORD, "--format", "jsonl"],
        ["get", NAME, "--json"],
        ["outline", NAME, "--json"],
        ["links", "policy.md", "--json"],
        ["related", "policy.md", "--json"],
        ["status", "--json"],
        ["settings", "--json"],
        ["index", "--rebuild", "--json"],
        ["ignored", NAME, "--json"],
    ],
)
def test_json_is_safe_to_print(
    hostile: Path, capsys: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    write(hostile, {"marklight.toml": f'[collections]\n"a{BIDI}b" = "."\n'})
    run_cli(capsys, "index")
    _, out, _ = run_cli(capsys, *arguments)
    assert not DANGEROUS.search(out.replace("\n", ""))
    rows = [json.loads(row) for row in (out.split("\n")[:-1] if "jsonl" in arguments else [out])]
    if arguments[0] == "get":
        assert rows[0]["content"] == (hostile / NAME).read_text().rstrip("\n")


def test_json_over_http_has_the_same_escapes() -> None:
    value: dict[str, Any] = {TEXT: [TEXT, NAME]}
    body = bytes(json_response(value).body)
    assert not DANGEROUS.search(body.decode().replace("\n", ""))
    assert json.loads(body) == value
    sent = event("results", value).decode()
    assert not DANGEROUS.search(sent.replace("\n", ""))
    assert json.loads(sent.split("data: ")[1]) == value


def test_names_of_settings_and_collections_stay_on_their_line(
    hostile: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(hostile, {"marklight.toml": '[collections]\n"a\\u202e\\n[2] b" = "."\n'})
    for command in ("status", "settings"):
        _, out, _ = run_cli(capsys, command)
        assert "a\\u202e\\n[2] b" in out
        assert not any(line.startswith("[2]") for line in out.splitlines())
