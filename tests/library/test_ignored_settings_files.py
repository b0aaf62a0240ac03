"""Test settings files that are ignored as a whole: foreign, writable by everybody, linked, no regular file, too large."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from typing import Any

import pytest

from marklight.library.configuration import read_settings
from tests.making import write


@pytest.fixture(autouse=True)
def _own_data(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MARKLIGHT_DATA_DIR", str(tmp_path_factory.mktemp("data")))
    monkeypatch.setenv("HOME", str(tmp_path_factory.mktemp("home")))


def _settings(folder: Path, text: str, **given: Any) -> Any:
    write(folder, {"marklight.toml": text})
    return read_settings(folder, environ={}, given=given)


def test_a_file_of_another_user_is_ignored(tmp_path: Path) -> None:
    if not hasattr(os, "geteuid") or os.geteuid() != 0:
        pytest.skip("only the administrator can give a file away")
    write(tmp_path, {"marklight.toml": "search.recency.strength = 0.0\n"})
    os.chown(tmp_path / "marklight.toml", 12345, 12345)
    _assert_ignored(tmp_path, "belongs to another user")


def test_a_file_is_checked_for_its_owner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, {"marklight.toml": "search.recency.strength = 0.0\n"})
    monkeypatch.setattr("marklight.trust.is_own", lambda _: False)
    _assert_ignored(tmp_path, "belongs to another user")


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="modes are of POSIX")
def test_a_file_that_everybody_may_write_is_ignored(tmp_path: Path) -> None:
    write(tmp_path, {"marklight.toml": "search.recency.strength = 0.0\n"})
    (tmp_path / "marklight.toml").chmod(0o666)
    _assert_ignored(tmp_path, "can be written by every user")
    (tmp_path / "marklight.toml").chmod(0o664)
    assert read_settings(tmp_path, environ={})["search.recency.strength"] == 0


def test_a_symbolic_link_to_a_file_outside_is_ignored(tmp_path: Path) -> None:
    folder = write(tmp_path / "folder", {"a.md": "a"})
    outside = write(tmp_path / "outside", {"x.toml": "search.recency.strength = 0.0\n"}) / "x.toml"
    (folder / "marklight.toml").symlink_to(outside)
    _assert_ignored(folder, "symbolic link that leads out")
    (folder / "marklight.toml").unlink()
    write(folder, {"conf/x.toml": "search.recency.strength = 0.0\n"})
    (folder / "marklight.toml").symlink_to(folder / "conf" / "x.toml")
    assert read_settings(folder, environ={})["search.recency.strength"] == 0
    (folder / "marklight.toml").unlink()
    (folder / "marklight.toml").symlink_to(folder / "nothing")
    _assert_ignored(folder, "broken symbolic link")


@pytest.mark.parametrize("name", ["marklight.toml", "pyproject.toml"])
def test_a_fifo_does_not_block(name: str, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / name)
    if name == "marklight.toml":
        _assert_ignored(tmp_path, "is not a regular file")
    else:
        assert read_settings(tmp_path, environ={}).notices == ()


def test_a_device_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "marklight.toml").symlink_to("/dev/zero")
    _assert_ignored(tmp_path, "is not a regular file")


def test_a_huge_file_is_not_read(tmp_path: Path) -> None:
    write(tmp_path, {"marklight.toml": "search.recency.strength = 0.0\n" + "#" * 1_000_000})
    _assert_ignored(tmp_path, "is larger than 1 MB")


def test_a_file_without_our_settings_is_no_reason_for_a_notice(tmp_path: Path) -> None:
    write(tmp_path, {"pyproject.toml": "[tool.other]\nx = 1\n"})
    (tmp_path / "pyproject.toml").chmod(0o666)
    assert read_settings(tmp_path, environ={}).notices == ()
    write(tmp_path, {"pyproject.toml": "[tool.marklight.search.recency]\nstrength = 0.0\n"})
    _assert_ignored(tmp_path, "can be written by every user", "pyproject.toml")


def _assert_ignored(folder: Path, why: str, name: str = "") -> None:
    found = read_settings(folder, environ={})
    assert found["search.recency.strength"] == 1.0
    (notice,) = found.notices
    assert why in notice
    assert str(folder / name) in notice
    assert dataclasses.asdict(found)["ignored"] == ()
