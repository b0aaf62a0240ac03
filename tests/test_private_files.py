"""Files for this user alone: their mode, atomic replacement, and no symbolic link followed."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import platformdirs
import pytest
from platformdirs.macos import MacOS
from platformdirs.unix import Unix

from marklight.private_files import (
    cache_folder,
    config_folder,
    create_private,
    data_folder,
    is_own,
    make_private_folder,
    open_private,
    read_private,
    state_folder,
    write_private,
)

pytestmark = pytest.mark.skipif(os.name == "nt", reason="Windows has neither modes nor FIFOs")


def test_a_file_and_its_new_folders_are_for_this_user_alone(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        make_private_folder(tmp_path / "a" / "b")
        write_private(tmp_path / "a" / "b" / "file", b"text")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o700
    assert stat.S_IMODE((tmp_path / "a" / "b").stat().st_mode) == 0o700
    assert stat.S_IMODE((tmp_path / "a" / "b" / "file").stat().st_mode) == 0o600


def test_writing_replaces_a_symbolic_link_and_leaves_its_target_alone(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("mine")
    (tmp_path / "file").symlink_to(victim)
    write_private(tmp_path / "file", b"ours")
    assert victim.read_text() == "mine"
    assert (tmp_path / "file").read_bytes() == b"ours"
    assert not (tmp_path / "file").is_symlink()
    assert sorted(os.listdir(tmp_path)) == ["file", "victim"]


def test_neither_a_link_nor_a_fifo_nor_a_large_file_is_read(tmp_path: Path) -> None:
    (tmp_path / "target").write_bytes(b"12345")
    (tmp_path / "link").symlink_to(tmp_path / "target")
    os.mkfifo(tmp_path / "fifo")
    for name, reason in (("link", "symbolic links"), ("fifo", "regular file")):
        with pytest.raises(OSError, match=reason):
            read_private(tmp_path / name)
    with pytest.raises(OSError, match="larger"):
        read_private(tmp_path / "target", limit_bytes=4)
    assert read_private(tmp_path / "target", limit_bytes=5) == b"12345"


def test_a_link_to_a_folder_is_not_accepted_as_a_new_folder(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "folder").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(NotADirectoryError):
        make_private_folder(tmp_path / "folder")


def test_creating_fails_if_anything_exists_even_a_dangling_link(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    with pytest.raises(FileExistsError):
        create_private(tmp_path / "link")
    assert not (tmp_path / "nowhere").exists()


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="needs root to chown")
def test_a_file_of_another_user_is_not_read(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"theirs")
    os.chown(file, 12345, 12345)
    assert not is_own(file.stat())
    with pytest.raises(PermissionError):
        read_private(file)
    os.close(open_private(file))


@pytest.mark.parametrize("variables", [False, True])
@pytest.mark.parametrize(("system", "platform"), [("linux", Unix), ("darwin", MacOS)])
def test_the_user_folders_are_those_of_the_platform(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    system: str,
    platform: type[platformdirs.PlatformDirs],
    variables: bool,
) -> None:
    monkeypatch.setattr("sys.platform", system)
    folders = {
        "cache": cache_folder,
        "config": config_folder,
        "data": data_folder,
        "state": state_folder,
    }
    for kind, folder in folders.items():
        monkeypatch.delenv(f"MARKLIGHT_{kind.upper()}_DIR", raising=False)
        monkeypatch.setenv(f"XDG_{kind.upper()}_HOME", str(tmp_path / kind) if variables else "")
        expected = getattr(platform("marklight", appauthor=False), f"user_{kind}_dir")
        assert str(folder()) == os.path.realpath(expected)
