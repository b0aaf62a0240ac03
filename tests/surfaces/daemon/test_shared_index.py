"""A daemon whose index is on a PostgreSQL server: it outlives restarts of the server, and shows no password."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.making import index_of, write
from tests.servers.postgres import PASSWORD, PostgresServer, new_server
from tests.surfaces.daemon.conftest import PAGES
from tests.surfaces.daemon.serving import command, loaded, of, serving
from tests.waiting import until

DOCUMENT = "guide/auth.md"


@pytest.fixture
def server() -> Iterator[PostgresServer]:
    with new_server() as made:
        made.sql("CREATE EXTENSION vector")
        yield made


@pytest.fixture
def folder(tmp_path: Path, server: PostgresServer, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, value in {
        "MARKLIGHT_MODEL_NAME": "fake",
        "MARKLIGHT_DATA_DIR": str(tmp_path / "data"),
        "MARKLIGHT_STATE_DIR": str(tmp_path / "state"),
        "MARKLIGHT_ENGINE": server.tcp_address(library="docs"),
    }.items():
        monkeypatch.setenv(name, value)
    folder = write(tmp_path / "docs", PAGES)
    monkeypatch.chdir(folder)
    return folder


def fetch(address: str, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(address + path) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def test_a_daemon_survives_a_restart_of_the_database(folder: Path, server: PostgresServer) -> None:
    query = "api/search?q=token+refresh"
    with serving(folder):
        address = of(folder).address
        until(lambda: DOCUMENT in fetch(address, query)[1])
        outputs = [fetch(address, "api/status")[1]]
        for stop in (server.stop, server.kill):
            stop()
            status, text = fetch(address, query)
            assert status == 503, text
            error = json.loads(text)["error"]
            assert error["hint"]
            outputs.append(text)
            done = command("search", "token refresh")
            assert done.returncode == 3
            outputs.append(done.stdout + done.stderr)
            server.start()
            status, text = fetch(address, query)
            assert (status, DOCUMENT in text) == (200, True), text
            done = command("search", "token refresh")
            assert DOCUMENT in done.stdout
            assert "marklight.library" not in loaded(done)
        write(folder, {"new.md": "# Zebra\n\nA zebra has stripes.\n"})
        until(lambda: "new.md" in fetch(address, "api/search?q=zebra+stripes")[1])
        outputs.append(fetch(address, "api/status")[1])
    assert not any(part in text for text in outputs for part in (PASSWORD, "%3A%20with"))
    assert not index_of(folder).exists()
