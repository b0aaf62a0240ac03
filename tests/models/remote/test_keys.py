"""API keys: read from a variable or a command, sent to their server only."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from marklight.errors import ModelError, ModelServerError, SettingsError
from marklight.library.configuration import read_settings
from tests.models.remote.opening import opened
from tests.models.serving import Behaviour


def test_the_key_comes_from_a_variable(
    does: Behaviour, address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_KEY", "secret-key-of-the-test\n")
    does.key = "secret-key-of-the-test"
    opened(address, tmp_path, key_variable="MY_KEY").embed_query("a")
    assert set(does.keys) == {"Bearer secret-key-of-the-test"}


def test_the_key_comes_from_a_command_run_without_a_shell(
    does: Behaviour, address: str, tmp_path: Path
) -> None:
    script = tmp_path / "a command.py"
    script.write_text("import sys; print(sys.argv[1])")
    command = f'"{sys.executable}" "{script}" "$HOME;echo"'
    does.says_key = True
    with pytest.raises(ModelServerError, match="requires a valid API key"):
        opened(address, tmp_path, key_command=command).embed_query("a")
    assert does.keys[-1] == "Bearer $HOME;echo"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"key_variable": "NOT_SET_ANYWHERE"}, "NOT_SET_ANYWHERE .* is empty"),
        ({"key_command": "no-such-program-anywhere show"}, "cannot be run"),
        ({"key_command": f"{sys.executable} -c exit(3)"}, "status 3"),
        (
            {"key_command": f'{sys.executable} -c "print(str(1) + chr(10) + str(2))"'},
            "is not an API key",
        ),
    ],
)
def test_a_missing_key_is_reported_before_a_request(
    given: dict[str, str], message: str, does: Behaviour, address: str, tmp_path: Path
) -> None:
    with pytest.raises(ModelError, match=message):
        opened(address, tmp_path, **given).embed_query("a")
    assert not does.requests


def test_a_key_in_a_server_message_is_redacted(
    does: Behaviour, address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_KEY", "secret-key-of-the-test")
    does.says_key = True
    model = opened(address, tmp_path, key_variable="MY_KEY")
    with pytest.raises(ModelServerError) as raised:
        model.embed_query("a")
    assert "wrong key: Bearer …" in str(raised.value)
    assert "secret" not in repr(model) + repr(model.server) + str(raised.value)


@pytest.mark.parametrize(
    "given",
    [
        {"key_variable": "sk-proj-abcdefghijklmnop123456"},
        {"key_variable": "hf_AbCdEfGhIjKlMnOpQr"},
        {"key_command": "echo sk-proj-abcdefghijklmnop123456"},
        {"key_command": "sk-proj-abcdefghijklmnop123456"},
        {"key_command": "/bin/echo 0123456789abcdef01234567"},
        {"key_command": "keeper --key=x sk-proj-abcdefghijklmnop123456"},
        {"address": "https://me:secret@example.com"},
        {"address": "https://example.com/v1?api_key=abcdef"},
        {"api_key": "abcdef"},
        {"key": "abcdef"},
        {"key_variable": ["abcdef"]},
    ],
)
def test_a_key_in_the_settings_is_rejected_and_not_shown(given: dict[str, Any]) -> None:
    (name, value), *_ = given.items()
    with pytest.raises(SettingsError) as raised:
        read_settings(None, given={"model": {"name": "openai:m", "address": "http://h", **given}})
    assert str(value) not in str(raised.value)
    assert "key_variable" in str(raised.value)
    written = value if isinstance(value, str) else value[0]
    with pytest.raises(SettingsError) as raised:
        read_settings(None, ["model.name=openai:m", f"model.{name}={written}"])
    assert written not in str(raised.value)


@pytest.mark.parametrize(
    "given",
    [
        {"key_variable": "OPENAI_API_KEY_OF_THE_SECOND_TEAM_2"},
        {"key_variable": "hf_token"},
        {"key_command": "op read op://Private/abcdefghij1234567890klmnop/credential"},
        {"key_command": "pass show openai/key-2"},
    ],
)
def test_names_of_variables_and_entries_are_not_mistaken_for_keys(given: dict[str, str]) -> None:
    read_settings(None, given={"model": {"name": "ollama:m", **given}})
