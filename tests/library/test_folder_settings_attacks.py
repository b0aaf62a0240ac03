"""Test attacks by a folder's settings: private files, other libraries, keys, commands, models, a daemon."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Any

import pytest

import marklight
from marklight.library.configuration import read_settings
from marklight.library.folder_settings import ALLOWED
from tests.making import index_of, library, write
from tests.models.pairs import write_folder
from tests.models.serving import Behaviour


@pytest.fixture(autouse=True)
def _own_data(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MARKLIGHT_DATA_DIR", str(tmp_path_factory.mktemp("data")))
    monkeypatch.setenv("HOME", str(tmp_path_factory.mktemp("home")))


def _settings(folder: Path, text: str, **given: Any) -> Any:
    write(folder, {"marklight.toml": text})
    return read_settings(folder, environ={}, given=given)


def test_a_collection_outside_the_folder_is_not_read(tmp_path: Path) -> None:
    keys = write(Path.home() / ".ssh", {"id_ed25519": "-----BEGIN PRIVATE KEY----- zebra"})
    text = f'[collections]\nnotes = "."\nkeys = "{keys}"\nhome = "~/.ssh"\nup = "notes/../../.."\n'
    write(tmp_path, {"a.md": "# Apples\n\nApples.\n"})
    write(
        tmp_path, {"marklight.toml": f'{text}[files]\nhidden = true\nparsers = {{"*" = "plain"}}\n'}
    )
    with library(tmp_path) as lib:
        assert list(lib.collections) == ["notes"]
        answer = lib.search("private key zebra", min_confidence=0.0)
        assert {hit.chunk.path for hit in answer.hits} <= {"a.md"}
        assert answer.index.documents == 1
        assert all(f"collections.{name} (" in answer.notices[0] for name in ("keys", "home", "up"))


def test_a_collection_that_is_a_symbolic_link_out_of_the_folder_is_not_read(tmp_path: Path) -> None:
    secret = write(Path.home() / "secret", {"plan.md": "# Plan\n\nThe zebra plan.\n"})
    write(
        tmp_path, {"a.md": "# Apples\n\nApples.\n", "marklight.toml": 'collections.docs = "docs"\n'}
    )
    (tmp_path / "docs").symlink_to(secret)
    with library(tmp_path) as lib:
        assert list(lib.collections) == ["default"]
        assert [hit.chunk.path for hit in lib.search("zebra plan").hits] == []
        assert "collections.docs" in lib.index().notices[0]


def test_a_collection_that_becomes_a_symbolic_link_later_is_not_read(tmp_path: Path) -> None:
    secret = write(Path.home() / "secret", {"plan.md": "# Plan\n\nThe zebra plan.\n"})
    write(tmp_path, {"docs/a.md": "# Apples\n\nApples.\n", "more/b.md": "# Beans\n\nBeans.\n"})
    write(tmp_path, {"marklight.toml": 'collections = {docs = "docs", more = "more"}\n'})
    with library(tmp_path) as lib:
        lib.index()
        (tmp_path / "docs").rename(tmp_path / "old")
        (tmp_path / "docs").symlink_to(secret)
        lib.index()
        assert [hit.chunk.path for hit in lib.search("zebra plan", min_confidence=0.5).hits] == []
        assert "has become a symbolic link" in str(lib.status()["failed"])


def test_a_hidden_folder_cannot_be_a_collection(tmp_path: Path) -> None:
    for name in (".git", ".ssh", "part/.private"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / ".ssh")
    text = 'a = ".git"\nb = ".ssh"\nc = "part/.private"\nd = "link"\n'
    assert _settings(tmp_path, f"[collections]\n{text}")["collections"] == {}


def test_links_that_lead_outside_are_not_followed(tmp_path: Path) -> None:
    secret = write(Path.home() / "secret", {"plan.md": "# Plan\n\nThe zebra plan.\n"})
    write(
        tmp_path,
        {"a.md": "# Apples\n\nApples.\n", "marklight.toml": "files.follow_outside = true\n"},
    )
    (tmp_path / "plan.md").symlink_to(secret / "plan.md")
    (tmp_path / "more").symlink_to(secret)
    with library(tmp_path) as lib:
        assert [one.path for one in lib.index().added] == ["a.md"]
        assert "files.follow_outside" in lib.index().notices[0]


def test_nothing_of_another_library_changes(tmp_path: Path) -> None:
    other = write(tmp_path / "other", {"mine.md": "# Mine\n\nMy own zebra.\n"})
    with library(other) as lib:
        lib.index()
    before = _contents(index_of(other))
    for where in (os.path.relpath(index_of(other), tmp_path / "hostile"), index_of(other)):
        hostile = write(tmp_path / "hostile", {"a.md": "# A\n\nApples.\n"})
        write(hostile, {"marklight.toml": f'engine = "file:{where}"\n'})
        with library(hostile) as lib:
            assert str(lib.address) == f"file:{index_of(hostile)}"
            lib.index()
            assert "engine" in lib.search("apples").notices[0]
    assert _contents(index_of(other)) == before
    with library(other) as lib:
        assert [hit.chunk.path for hit in lib.search("zebra").hits] == ["mine.md"]


def _contents(folder: Path) -> dict[str, bytes]:
    return {
        str(file): file.read_bytes()
        for file in sorted(folder.rglob("*"))
        if file.is_file() and not file.name.endswith((".db-wal", ".db-shm", ".lock"))
    }


def test_no_key_and_no_text_is_sent_to_a_server_that_a_folder_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, does: Behaviour, address: str
) -> None:
    monkeypatch.setenv("MY_SECRET", "hunter2")
    model = f'name = "openai:m"\naddress = "{address}"\nkey_variable = "MY_SECRET"\n'
    text = f'[model]\n{model}query_prefix = "x"\n[reranker]\n{model}'
    write(tmp_path, {"a.md": "# Apples\n\nApples.\n", "marklight.toml": text})
    with library(tmp_path) as lib:
        lib.index()
        (notice,) = lib.search("apples").notices
    assert does.requests == []
    assert "model.key_variable" in notice
    assert "reranker.address" in notice


@pytest.mark.parametrize("file", ["marklight.toml", "pyproject.toml"])
def test_no_database_that_a_folder_names_is_connected_to(tmp_path: Path, file: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        port = listener.getsockname()[1]
        address = f"postgresql://127.0.0.1:{port}/x?vectors=qdrant://127.0.0.1:{port}"
        text = (
            f'engine = "{address}&library=stolen"\n'
            f'postgres = {{connections = 900}}\nqdrant = {{ca_file = "ca.pem"}}\n'
            'queue = {embed = "workers"}\n'
        )
        header = "[tool.marklight]\n" if file == "pyproject.toml" else ""
        write(tmp_path, {"a.md": "# Apples\n\nApples.\n", file: header + text})
        with library(tmp_path) as lib:
            lib.index()
            (notice,) = lib.search("apples").notices
            lib.status(), lib.get("a.md"), lib.tags()
            assert str(lib.address) == f"file:{index_of(tmp_path)}"
            assert lib.server_settings is None
        with pytest.raises(BlockingIOError):
            listener.accept()
    for key in ("engine", "postgres.connections", "qdrant.ca_file", "queue.embed"):
        assert key in notice
    assert "127.0.0.1" not in notice


def test_no_setting_of_a_server_engine_is_on_the_allow_list() -> None:
    tables = ("engine", "postgres.", "qdrant.", "queue.")
    assert [key for key in ALLOWED if key.startswith(tables)] == []


def test_a_command_that_a_folder_names_is_not_run(tmp_path: Path) -> None:
    text = f'[model]\nname = "ollama:m"\nkey_command = "touch {tmp_path}/ran"\n'
    found = _settings(tmp_path, text)
    assert found["model.key_command"] == ""
    assert not (tmp_path / "ran").exists()


def test_a_model_in_the_folder_is_not_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_folder(tmp_path / "pairs")
    monkeypatch.setenv("MARKLIGHT_MODEL_NAME", "fake")
    write(tmp_path, {"a.md": "# Apples\n\nApples.\n"})
    write(
        tmp_path, {"marklight.toml": f'reranker.name = "{tmp_path}/pairs"\nmodel.name = "./own"\n'}
    )
    with marklight.open(tmp_path) as lib:
        assert (lib.settings["model.name"], lib.settings["reranker.name"]) == ("fake", "")
        answer = lib.search("how do apples grow", explain=True)
        assert "rerank" not in str(answer.to_dict()["results"])
        assert "reranker.name" in answer.notices[0]


def test_a_folder_starts_no_daemon(tmp_path: Path) -> None:
    from marklight.surfaces.daemon.lifecycle import is_autostart

    text = "[serve]\nstart = true\nidle_minutes = 525600.0\nhost = '0.0.0.0'\ntoken = 'known'\n"
    write(tmp_path, {"marklight.toml": text})
    assert not is_autostart(tmp_path, [])
    with library(tmp_path) as lib:
        assert (lib.serve.start, lib.serve.idle_minutes) == (False, 30.0)
        assert (lib.serve.host, lib.serve.token) == ("127.0.0.1", "")
    assert is_autostart(tmp_path, ["serve.start=true"])
