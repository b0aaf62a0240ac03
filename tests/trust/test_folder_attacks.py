"""Attacks from a folder that was cloned, pulled or unpacked: each one worked when it was written."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from marklight.ingest import path_filter
from marklight.library.maintenance import examine
from tests.making import library, write
from tests.trust.forged_files import (
    STATE_PAGE,
    change_text,
    endless_schema,
    exchanged_words,
    pages_of,
    write_log,
)
from tests.trust.hostile_folder import marklight, place_in

pytestmark = pytest.mark.skipif(os.name == "nt", reason="needs symbolic links and modes")
FILES = {
    "copper.md": "# Copper\n\nCopper is held for 12 months.\n",
    "zebra.md": "# Zebra\n\nThe zebra grazes at dawn on the savannah.\n",
}


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder from elsewhere with an index in it that the user made; git overwrites files that it ignores."""
    monkeypatch.setenv("MARKLIGHT_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setenv("MARKLIGHT_INDEX_PLACE", "folder")
    return _indexed(tmp_path / "own")


@pytest.fixture
def theirs(own: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The attacker's index of the same documents, made on another machine."""
    with monkeypatch.context() as there:
        there.setenv("MARKLIGHT_DATA_DIR", str(tmp_path / "data-of-the-attacker"))
        return _indexed(tmp_path / "theirs") / ".marklight"


def _indexed(folder: Path) -> Path:
    write(folder, FILES)
    with library(folder) as lib:
        lib.index()
    return folder


def _search(
    folder: Path, question: str, *options: str, seconds: float = 60
) -> list[dict[str, Any]]:
    done = marklight(folder, "search", question, "--json", *options, seconds=seconds)
    assert done.returncode in (0, 1), done.stderr
    results: list[dict[str, Any]] = json.loads(done.stdout)["results"]
    return results


def _doctor(folder: Path) -> tuple[bool, str]:
    (found,) = [each for each in examine(folder, ["model.name=fake"]) if each.part == "library"]
    return found.ok, found.detail


def test_a_foreign_write_ahead_log_changes_no_text(own: Path, theirs: Path) -> None:
    change_text(theirs / "library.db", lambda text: text.replace("12 months", "72 months"))
    pages = pages_of(theirs / "library.db")
    total = len(pages)
    del pages[STATE_PAGE]
    write_log(own / ".marklight" / "library.db-wal", pages, total)
    (first, *_) = _search(own, "copper")
    assert "12 months" in first["content"]


def test_a_write_ahead_log_with_an_endless_schema_does_not_hang(own: Path, theirs: Path) -> None:
    pages = endless_schema(theirs / "library.db")
    write_log(own / ".marklight" / "library.db-wal", pages, max(pages))
    done = marklight(own, "search", "copper", "--json", seconds=40)
    assert done.returncode == 3
    assert "Move " in done.stderr  # one clear line that says what to do


@pytest.mark.parametrize("same_inode", [False, True])
def test_a_database_of_somebody_else_is_refused(own: Path, theirs: Path, same_inode: bool) -> None:
    store = own / ".marklight" / "library.db"
    if same_inode:
        store.write_bytes((theirs / "library.db").read_bytes())
    else:
        os.replace(theirs / "library.db", store)
    for command in (("search", "copper"), ("index",), ("index", "--rebuild"), ("status",)):
        done = marklight(own, *command)
        assert done.returncode == 3
        assert "was not created by you on this machine, so it is not used. Delete it" in done.stderr
    assert not _doctor(own)[0]


def test_doctor_compares_the_lexical_index_with_the_text(
    own: Path, theirs: Path, tmp_path: Path
) -> None:
    exchanged_words(theirs / "library.db", tmp_path / "forged")
    (build,) = (own / ".marklight" / "lexical").iterdir()
    shutil.copytree(tmp_path / "forged", build, dirs_exist_ok=True)
    _, result = _doctor(own)
    assert "nothing to repair" not in result
    found = _search(own, "zebra", "--mode", "keyword", "--min-confidence", "0")
    assert [each["path"] for each in found] == ["zebra.md"]


@pytest.mark.parametrize("name", ["scan.record", "lexical/*/meta.json", "lexical/*/marklight.json"])
def test_deeply_nested_json_in_an_index_does_not_crash(own: Path, name: str) -> None:
    place_in(own / ".marklight", name).write_text("[" * 60_000)
    assert [each["path"] for each in _search(own, "copper")] == ["copper.md"]
    assert _doctor(own)[0]


def test_a_document_replaced_by_a_link_during_indexing_is_not_followed(
    own: Path, tmp_path: Path
) -> None:
    private = tmp_path / "home" / "id_rsa"
    private.parent.mkdir()
    private.write_text("private key\n")
    write(own, {"new.md": "# New\n"})
    with library(own) as lib:
        found = lib.text_ingest.compare()
        (own / "new.md").unlink()
        (own / "new.md").symlink_to(private)
        with lib.engine.writing(1):
            lib.text_ingest.index_text(found)
        with lib.engine.snapshot() as snapshot:
            texts = [snapshot.documents.get(id).text for id in snapshot.documents.files()]  # type: ignore[union-attr]
    assert "private key\n" not in texts


def test_a_folder_replaced_by_a_link_during_indexing_is_not_followed(
    own: Path, tmp_path: Path
) -> None:
    private = write(tmp_path / "home", {"new.md": "private notes\n"})
    write(own, {"sub/new.md": "# New\n"})
    with library(own) as lib:
        found = lib.text_ingest.compare()
        shutil.rmtree(own / "sub")
        (own / "sub").symlink_to(private)
        with lib.engine.writing(1):
            lib.text_ingest.index_text(found)
        with lib.engine.snapshot() as snapshot:
            texts = [snapshot.documents.get(id).text for id in snapshot.documents.files()]  # type: ignore[union-attr]
    assert "private notes\n" not in texts


def test_an_ignore_file_that_is_a_link_out_of_the_folder_is_not_read(
    own: Path, tmp_path: Path
) -> None:
    private = tmp_path / "token"
    private.write_text("zebra*\n")
    (own / ".gitignore").symlink_to(private)
    assert "zebra*" not in marklight(own, "ignored", "zebra.md").stdout


def test_the_same_rules_in_many_folders_are_parsed_once(
    own: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parsed: list[int] = []
    usual = path_filter.Patterns.__init__

    def counted(self: path_filter.Patterns, lines: object) -> None:
        parsed.append(1)
        usual(self, lines)  # type: ignore[arg-type]

    monkeypatch.setattr(path_filter.Patterns, "__init__", counted)
    folder = own
    for depth in range(30):
        folder = folder / f"d{depth}"
        write(folder, {".gitignore": "a*b?c\n"})
    write(folder, {"deep.md": "# Deep\n"})
    with library(own) as lib:
        lib.index()
    assert len(parsed) <= 3


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="needs root to chown")
def test_a_settings_file_of_another_user_above_does_not_make_a_library(
    own: Path, tmp_path: Path
) -> None:
    shared = write(tmp_path / "shared", {"marklight.toml": "", "theirs.md": "# Copper of theirs\n"})
    mine = write(shared / "me", {"mine.md": "# Copper of mine\n"})
    for name in ("marklight.toml", "theirs.md"):
        os.chown(shared / name, 12345, 12345)
    assert [each["path"] for each in _search(mine, "copper")] == ["mine.md"]
    assert not (shared / ".marklight").exists()


def test_doctor_finds_a_damaged_date(own: Path) -> None:
    connection = sqlite3.connect(own / ".marklight" / "library.db")
    connection.execute("UPDATE documents SET timestamp = '2035' || substr(timestamp, 5)")
    connection.commit()
    connection.close()
    assert "nothing to repair" not in _doctor(own)[1]
    assert all(not each["dated"].startswith("2035") for each in _search(own, "copper"))


def test_doctor_reports_a_database_that_is_a_folder(own: Path) -> None:
    store = own / ".marklight" / "library.db"
    store.unlink()
    store.mkdir()
    ok, result = _doctor(own)
    assert not ok or "nothing to repair" not in result
