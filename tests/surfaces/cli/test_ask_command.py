"""The command ask: checked sentences as they are written, then their sources."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from marklight.models.remote import client
from tests.models.chatting import Chat, chatting
from tests.surfaces.command_line import run_cli, run_json

QUERY = ("ask", "tokens expire", "--mode", "keyword", "--min-confidence", "0")
EXPIRE = "Tokens expire after an hour [1]."


@pytest.fixture
def does() -> Chat:
    return Chat(EXPIRE)


@pytest.fixture(autouse=True)
def model(does: Chat, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setattr(client, "FIRST_PAUSE_SECONDS", 0.01)
    with chatting(does) as address:
        monkeypatch.setenv("MARKLIGHT_ASK_NAME", "openai:m")
        monkeypatch.setenv("MARKLIGHT_ASK_ADDRESS", address)
        yield address


def test_sentences_end_with_citations_and_the_sources_follow(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, _ = run_cli(capsys, *QUERY)
    assert code == 0
    assert out == (
        "Tokens expire after an hour. [1]\n\n[1] guide/auth.md:5-5 § Auth > Token refresh\n"
    )


def test_json_is_that_of_the_library(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    value = run_json(capsys, *QUERY, "--json")
    assert value["answer"] == "Tokens expire after an hour. [1]"
    assert value["sources"][0]["path"] == "guide/auth.md"


def test_an_abstention_calls_no_model_and_exits_with_1(
    folder: Path, does: Chat, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = run_cli(capsys, "ask", "zeppelin hangar", "--mode", "keyword")
    assert (code, out) == (1, "")
    assert "note: No passage matches the query" in err
    assert does.requests == []
    code, out, _ = run_cli(capsys, "ask", "zeppelin hangar", "--mode", "keyword", "--json")
    assert code == 1
    assert json.loads(out)["answer"] is None


def test_without_a_model_the_message_shows_the_settings(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MARKLIGHT_ASK_NAME")
    monkeypatch.delenv("MARKLIGHT_ASK_ADDRESS")
    code, out, err = run_cli(capsys, *QUERY)
    assert (code, out) == (2, "")
    assert "No language model is configured" in err
    assert 'ask.name = "ollama:MODEL"' in err


def test_an_unsupported_sentence_is_marked_and_exits_with_1_if_it_is_the_only_one(
    folder: Path, does: Chat, capsys: pytest.CaptureFixture[str]
) -> None:
    does.reply = "Penguins eat krill in Antarctica [1]."
    code, out, err = run_cli(capsys, *QUERY)
    assert code == 1
    assert out.startswith("Penguins eat krill in Antarctica. [1] (unsupported)\n")
    assert "The passages support no sentence of the answer" in err
    code, out, err = run_cli(capsys, *QUERY, "--set", "ask.unsupported=remove")
    assert (code, out) == (1, "")
    assert "1 sentence removed" in err


def test_a_model_without_an_answer_exits_with_1_and_lists_the_passages(
    folder: Path, does: Chat, capsys: pytest.CaptureFixture[str]
) -> None:
    does.reply = "NO ANSWER"
    code, out, err = run_cli(capsys, *QUERY)
    assert (code, out) == (1, "")
    assert "do not answer the query, according to openai:m" in err
    assert "[1] guide/auth.md:5-5" in err


def test_lists_and_code_keep_their_shape(
    folder: Path, does: Chat, capsys: pytest.CaptureFixture[str]
) -> None:
    does.reply = (
        "Two steps [1]:\n\n- Tokens expire [1].\n- Refresh them [1].\n\n```\nrefresh call\n```"
    )
    _, out, _ = run_cli(capsys, *QUERY)
    lines = out.splitlines()
    assert lines[1:4] == ["", "- Tokens expire. [1]", "- Refresh them. [1]"]
    assert "> refresh call" in lines


def test_no_text_of_the_model_poses_as_a_source_or_controls_the_terminal(
    folder: Path, does: Chat, capsys: pytest.CaptureFixture[str]
) -> None:
    does.reply = (
        "Tokens\x1b[2J\x1b]0;x\x07 expire [1].\n[1] trusted.md:1-2 § Trusted\n"
        "```\n[1] trusted.md:1-2 § Trusted\n```\nnote: \u202ereversed [1]."
    )
    _, out, _ = run_cli(capsys, *QUERY)
    assert "\x1b" not in out
    assert "\u202e" not in out
    sources = [line for line in out.splitlines() if line.startswith("[")]
    assert sources == ["[1] guide/auth.md:5-5 § Auth > Token refresh"]


def test_a_failing_server_exits_with_3(
    folder: Path, does: Chat, capsys: pytest.CaptureFixture[str]
) -> None:
    does.statuses = [500] * 9
    code, out, err = run_cli(capsys, *QUERY)
    assert (code, out) == (3, "")
    assert "status 500" in err


def test_a_first_remote_server_is_named_once(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, _, err = run_cli(capsys, *QUERY)
    assert "are sent to" not in err, "a server on this machine needs no notice"


def test_models_list_and_verify_include_the_language_model(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, _ = run_cli(capsys, "models", "list")
    assert code == 0
    assert "openai:m" in out
    assert "language model" in out
    code, out, _ = run_cli(capsys, "models", "verify", "openai:m")
    assert (code, out) == (0, "openai:m: ok\n")


def test_ctrl_c_ends_a_silent_model_at_once(folder: Path, does: Chat, tmp_path: Path) -> None:
    does.pause_seconds = 60
    run = [sys.executable, "-P", "-c", "from marklight.surfaces.cli import main; main()"]
    process = subprocess.Popen(
        [*run, *QUERY, "--in", str(folder)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "MARKLIGHT_DAEMON": "off"},
    )
    while not does.requests and process.poll() is None:
        pass
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert out == ""
    assert "Interrupted" in err
