"""Commands about models on a server; an API key is never printed."""

from __future__ import annotations

import json
import logging
import traceback
from collections.abc import Callable
from pathlib import Path

import pytest

import marklight
from marklight.errors import ModelError
from marklight.models.remote import client
from marklight.surfaces.cli import run as main
from tests.making import write
from tests.models.serving import Behaviour

Run = Callable[..., tuple[int, str]]
KEY = "secret-key-of-the-test"


@pytest.fixture
def folder(tmp_path: Path, address: str, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(client, "FIRST_PAUSE_SECONDS", 0.01)
    for variable in ("CACHE", "DATA", "STATE"):
        monkeypatch.setenv(f"MARKLIGHT_{variable}_DIR", str(tmp_path / variable))
    for table in ("MODEL", "RERANKER"):
        monkeypatch.setenv(f"MARKLIGHT_{table}_NAME", "openai:m")
        monkeypatch.setenv(f"MARKLIGHT_{table}_ADDRESS", address)
    folder = write(
        tmp_path / "docs", {"a.md": "# Auth\n\nA refresh token gives a new access token.\n"}
    )
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def run(capfd: pytest.CaptureFixture[str]) -> Run:
    def run(*arguments: str) -> tuple[int, str]:
        try:
            code, shown = main(arguments), ""
        except ModelError as error:  # as with --debug
            code, shown = error.exit_code, "".join(traceback.format_exception(error))
        return code, "".join([*capfd.readouterr(), shown])

    return run


def test_remote_models_are_listed_and_verified(
    folder: Path, does: Behaviour, address: str, monkeypatch: pytest.MonkeyPatch, run: Run
) -> None:
    monkeypatch.delenv("MARKLIGHT_RERANKER_NAME")
    assert f"at {address}" in run("models", "list")[1]
    code, output = run("models", "verify", "openai:m")
    assert (code, output) == (0, "openai:m: ok\n")
    rows = {row["name"]: row for row in json.loads(run("models", "list", "--json")[1])}
    assert rows["openai:m"]["dimension"] == 64
    does.statuses = [401]
    code, output = run("models", "verify", "openai:m")
    assert code == 3
    assert "status 401" in output


@pytest.mark.parametrize("refused", [False, True])
def test_an_api_key_is_never_printed(
    refused: bool,
    folder: Path,
    does: Behaviour,
    address: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    run: Run,
    tmp_path: Path,
) -> None:
    caplog.set_level(logging.DEBUG)
    monkeypatch.setenv("MY_KEY", KEY)
    does.key, does.says_key = KEY, refused
    for table in ("MODEL", "RERANKER"):
        monkeypatch.setenv(f"MARKLIGHT_{table}_KEY_VARIABLE", "MY_KEY")
    output = [
        run(*arguments)[1]
        for arguments in (
            ["index"],
            ["--debug", "index"],
            ["search", "new access token please", "--explain", "--json", "--rerank"],
            ["--debug", "search", "access token", "--mode", "semantic"],
            ["status", "--json"],
            ["settings"],
            ["settings", "--json"],
            ["doctor"],
            ["models", "list"],
            ["models", "verify"],
        )
    ]
    with marklight.open(folder) as lib:
        output += [
            repr(lib.models.embedder),
            repr(lib.models.embedder_server),
            repr(lib.settings),
            str(lib.status()),
        ]
        try:
            lib.search("token", mode="semantic")
        except ModelError as error:
            output += [repr(error), "".join(traceback.format_exception(error))]
    kept = [
        file.read_bytes().decode("utf-8", "replace")
        for file in tmp_path.rglob("*")
        if file.is_file()
    ]
    assert f"Bearer {KEY}" in does.keys
    assert any("requires a valid API key" in one for one in output) == refused
    assert not [one for one in [*output, *kept, caplog.text] if KEY in one]
