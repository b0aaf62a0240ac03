"""Settings of model servers."""

from __future__ import annotations

from typing import Any

import pytest

from marklight.errors import ModelError, SettingsError
from marklight.library.configuration import Model, read_settings
from marklight.models import load


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"name": "openai:"}, "not a model on a server"),
        ({"name": "openai:m"}, "model.address is missing"),
        ({"name": "ollama:m", "address": "example"}, "not a"),
        ({"name": "ollama:m", "address": "ftp://example.com"}, "not a"),
        ({"name": "ollama:m", "address": "http://h:99999"}, "not a"),
        ({"name": "ollama:m", "address": "http://[::1"}, "not a"),
        ({"name": "ollama:m", "key_variable": "A", "key_command": "b"}, "both set"),
        ({"name": "ollama:m", "key_command": '"'}, "cannot be read"),
        ({"timeout_seconds": 0.0}, "model.timeout_seconds"),
        ({"token_limit": 3}, "model.token_limit"),
    ],
)
def test_invalid_settings_are_rejected(given: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        read_settings(None, given={"model": given})


@pytest.mark.parametrize(
    ("name", "address", "base"),
    [
        ("ollama:m", "", "http://127.0.0.1:11434"),
        ("ollama:m", "http://h:1/", "http://h:1"),
        ("openai:m", "http://h:1", "http://h:1/v1"),
        ("openai:m", "http://h:1/v1/", "http://h:1/v1"),
        ("openai:m", "https://h/v1beta/openai", "https://h/v1beta/openai"),
    ],
)
def test_common_spellings_of_an_address_are_accepted(name: str, address: str, base: str) -> None:
    server = Model(name=name, address=address).server
    assert server is not None
    assert server.base == base


def test_a_server_missing_from_the_settings_gets_no_request() -> None:
    with pytest.raises(ModelError, match="No server is configured for ollama:m"):
        load("ollama:m")
    other = Model(name="ollama:other").server
    with pytest.raises(ModelError, match="No server is configured for ollama:m"):
        load("ollama:m", server=other)
