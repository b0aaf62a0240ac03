"""An edit that leaves size and time stamps unchanged is found (racily clean files)."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from pathlib import Path

import pytest

import marklight
from marklight import model
from marklight.ingest import read as reading
from marklight.ingest.discover import ScannedFile
from marklight.ingest.file_batch import FileBatch
from tests.library.conftest import paths
from tests.making import library, write

SECOND, MILLISECOND = 10**9, 10**6


def page(word: str) -> dict[str, str]:
    return {"page.md": f"# Page\n\nA {word}.\n"}


@pytest.fixture
def coarse(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file system whose time stamps have steps of so many nanoseconds."""
    step = request.param

    def stamps(status: os.stat_result) -> tuple[int, int]:
        return status.st_mtime_ns // step * step, status.st_ctime_ns // step * step

    monkeypatch.setattr(model, "_stamps", stamps)


STEPS = pytest.mark.parametrize(
    "coarse", [SECOND, 2 * SECOND, 4 * MILLISECOND], ids=["1 s", "2 s", "4 ms"], indirect=True
)


@pytest.fixture
def frozen(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """All files have one time stamp, and the clock stands still until the test moves it."""
    clock = [1_700_000_000 * SECOND]
    stamp = clock[0]
    monkeypatch.setattr(model, "_stamps", lambda _: (stamp, stamp))
    monkeypatch.setattr(reading, "_now_ns", lambda: clock[0])
    return clock


def generation(lib: marklight.Library) -> int:
    return int(lib.status()["generation"])


@STEPS
@pytest.mark.usefixtures("coarse")
def test_an_edit_of_the_same_size_right_after_a_read_is_found(tmp_path: Path, engine: str) -> None:
    with library(write(tmp_path, page("wombat")), engine=engine) as lib:
        for before, after in [("wombat", "marmot"), ("badger", "ferret"), ("walrus", "iguana")] * 4:
            write(tmp_path, page(before))
            lib.index()
            write(tmp_path, page(after))
            assert after in lib.search(after, mode="keyword").hits[0].chunk.text
            write(tmp_path, page(before))
            assert before in lib.get("page.md").text


@pytest.mark.usefixtures("frozen")
def test_results_are_compared_by_content_after_the_search_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with library(write(tmp_path, page("wombat"))) as lib:
        lib.index()
        write(tmp_path, page("marmot"))
        answer = lib.search("page", mode="keyword", refresh=False)
        assert "A file is shown as indexed before the last change" in " ".join(answer.notices)
        write(tmp_path, page("wombat"))
        assert not lib.search("page", mode="keyword", refresh=False).notices


def test_a_file_with_equal_content_has_not_changed(
    tmp_path: Path, frozen: list[int], engine: str
) -> None:
    with library(write(tmp_path, page("wombat")), engine=engine) as lib:
        assert [id.path for id in lib.index().added] == ["page.md"]
        first = generation(lib)
        report = lib.index()
        assert not report
        assert not report.skipped
        # Nothing is written as long as the state of the file is unknown.
        assert generation(lib) == first
        assert not lib.search("wombat", mode="keyword").notices
        assert generation(lib) == first


def test_a_file_is_compared_by_content_once_and_then_by_time_stamps(
    tmp_path: Path, frozen: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []
    real = FileBatch.read

    def counted(self: FileBatch, found: ScannedFile, *, rebuild: bool) -> None:
        read.append(found.path)
        real(self, found, rebuild=rebuild)

    monkeypatch.setattr(FileBatch, "read", counted)
    with library(write(tmp_path, page("wombat"))) as lib:
        lib.index()
        frozen[0] += 60 * SECOND
        for _ in range(3):
            assert paths(lib.search("wombat", mode="keyword")) == ["page.md"]
    assert len(read) == 2


def test_a_refused_file_is_tried_again_too(tmp_path: Path, frozen: list[int]) -> None:
    with library(write(tmp_path, {"page.md": b"\x00" * 20})) as lib:
        assert len(lib.index().skipped) == 1
        once = generation(lib)
        lib.index()
        assert generation(lib) == once
        write(tmp_path, {"page.md": b"# Page\n\nA wombat ...".ljust(20)[:20]})
        assert paths(lib.search("wombat", mode="keyword")) == ["page.md"]


def test_on_a_file_system_with_whole_seconds_every_edit_is_found(tmp_path: Path) -> None:
    image, place = tmp_path / "image", tmp_path / "mounted"
    place.mkdir()
    image.write_bytes(b"")
    os.truncate(image, 8_000_000)
    if not shutil.which("mkfs.ext4"):
        pytest.skip("there is no mkfs.ext4")
    # Inodes of 128 bytes have no place for parts of a second.
    made = subprocess.run(
        ["mkfs.ext4", "-q", "-F", "-I", "128", str(image)], capture_output=True, check=False
    )
    if made.returncode:
        pytest.skip(f"no image can be made: {made.stderr.decode()}")
    mounted = subprocess.run(
        ["mount", "-o", "loop", str(image), str(place)], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip(f"an image cannot be mounted: {mounted.stderr.decode().strip()}")
    try:
        folder = write(place / "notes", page("wombat"))
        assert (folder / "page.md").stat().st_mtime_ns % SECOND == 0
        with library(folder, engine=f"file:{tmp_path / 'index'}") as lib:
            for word in ("marmot", "badger", "ferret", "walrus", "iguana") * 2:
                write(folder, page(word))
                lib.index()
                write(folder, page("wombat"))
                time.sleep(0.1)
                assert "wombat" in lib.search("wombat", mode="keyword").hits[0].chunk.text
    finally:
        subprocess.run(["umount", str(place)], check=True)
