"""A watch reports the folders in which something changed; with inotify at once, elsewhere later."""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Event

import pytest

from marklight.ingest import discover as discovering
from marklight.ingest.discover import Discover, file_system
from marklight.ingest.scan_record import EVERYTHING
from marklight.ingest.watch import InotifyWatch, NotifyWatch, Watch
from tests.making import write

QUIET_MS = 200
"""Long enough that a busy machine delivers simultaneous changes in one batch."""
SECONDS = 60.0
"""Longer than any batch takes; only a failing test waits so long."""
PAGES = {
    "a.md": "A",
    "guide/b.md": "B",
    "guide/deep/c.md": "C",
    ".gitignore": "node_modules/\n",
    "node_modules/x/c.md": "C",
    ".git/HEAD": "",
}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return write(Path(os.path.realpath(tmp_path)) / "docs", PAGES)


@pytest.fixture
def watch(root: Path) -> Iterator[InotifyWatch]:
    watch = InotifyWatch(Discover(), QUIET_MS)
    Discover()({"docs": root}, on_folder=watch.add)
    assert not watch.problem
    assert not watch.take()
    yield watch
    watch.close()


def edit_through_memory(file: Path) -> None:
    with open(file, "r+b") as handle, mmap.mmap(handle.fileno(), 1) as memory:
        memory[0:1] = b"X"


@pytest.mark.parametrize(
    ("edit", "changed"),
    [
        (lambda root: (root / "a.md").write_text("new"), {""}),
        (lambda root: os.utime(root / "a.md"), {""}),
        (lambda root: (root / "a.md").chmod(0o600), {""}),
        (lambda root: edit_through_memory(root / "a.md"), {""}),
        (lambda root: (root / "guide/b.md").unlink(), {"guide"}),
        (lambda root: (root / "a.md").rename(root / "guide/b.md"), {"", "guide"}),
        (lambda root: write(root, {"guide/.ignore": "b.md"}), {"guide"}),
        (lambda root: (root / "link").symlink_to("guide"), {""}),
        (lambda root: (root / "new").mkdir(), {"", "new/"}),
        (lambda root: shutil.rmtree(root / "guide/deep"), {"guide", "guide/deep", "guide/deep/"}),
        (lambda root: (root / "guide").rename(root / "manual"), {"", "guide/", "manual/"}),
        (lambda root: write(root, {"node_modules/x/c.md": "2", ".git/index": ""}), set()),
        (lambda root: write(root, {"x.png": b"\x89", "a.md~": "", ".a.md.swp": "", "log": ""}), set()),
    ],
)  # fmt: skip
def test_an_event_is_there_as_soon_as_the_change_is_made(
    watch: Watch, root: Path, edit: Callable[[Path], object], changed: set[str]
) -> None:
    edit(root)
    assert watch.take() == {os.path.join(root, path) if path else str(root) for path in changed}
    assert not watch.take()


def test_a_folder_that_is_listed_again_is_watched(watch: Watch, root: Path) -> None:
    shutil.rmtree(root / "guide")
    write(root, {"guide/b.md": "B again"})
    Discover()({"docs": root}, on_folder=watch.add)
    watch.take()
    write(root, {"guide/b.md": "B once more"})
    assert watch.take() == {str(root / "guide")}


def test_a_queue_that_overflows_may_have_lost_any_change(watch: Watch, root: Path) -> None:
    size = int(Path("/proc/sys/fs/inotify/max_queued_events").read_text())
    for number in range(size + 10):  # equal events in succession are one
        os.utime(root / ("a.md" if number % 2 else "guide/b.md"))
    assert EVERYTHING in watch.take()
    write(root, {"a.md": "2"})
    assert watch.take() == {str(root)}


def test_folders_above_the_limit_of_the_system_are_a_problem(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(watch: InotifyWatch, folder: str) -> int:
        ctypes.set_errno(errno.ENOSPC)
        return -1

    watch = InotifyWatch(Discover(), QUIET_MS)
    monkeypatch.setattr(InotifyWatch, "_add_watch", full)
    watch.add(str(root))
    assert "more are not possible (No space left on device)" in watch.problem
    watch.close()


def test_a_file_system_that_is_not_known_to_be_local_is_a_problem(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(discovering, "LOCAL", frozenset())
    monkeypatch.setattr(discovering, "_local_devices", {})
    watch = InotifyWatch(Discover(), QUIET_MS)
    watch.add(str(root))
    assert "that may not report all changes" in watch.problem
    watch.close()


@pytest.fixture(params=[InotifyWatch, NotifyWatch])
def waiting(request: pytest.FixtureRequest, root: Path) -> Iterator[Watch]:
    roots = () if request.param is InotifyWatch else ([str(root)],)
    watch = request.param(Discover(), QUIET_MS, *roots)
    Discover()({"docs": root}, on_folder=watch.add)
    yield watch
    watch.close()


def test_changes_in_quick_succession_are_one_batch(waiting: Watch, root: Path) -> None:
    assert not waiting.wait(0.05, Event())
    started = time.monotonic()
    for number in range(5):
        write(root, {f"n{number}.md": "x"})
        time.sleep(QUIET_MS / 4000)
    assert waiting.wait(SECONDS, Event())
    assert time.monotonic() - started >= QUIET_MS / 1000
    assert waiting.take() in ({EVERYTHING}, {str(root)})
    assert not waiting.wait(0.05, Event())


def test_other_files_wake_nobody(waiting: Watch, root: Path) -> None:
    write(root, {"node_modules/x/c.md": "2", ".git/index": "", "log": "", "guide/b.md~": ""})
    assert not waiting.wait(0.5, Event())


def test_waking_the_watcher_loses_no_events(waiting: Watch, root: Path) -> None:
    wake = Event()
    wake.set()
    write(root, {"a.md": "2"})
    assert not waiting.wait(SECONDS, wake)
    assert waiting.wait(SECONDS, Event())


def test_a_file_system_is_recognised_by_its_mount() -> None:
    linux = (
        "/dev/sda1 / ext4 rw 0 0\nserver:/x /home/my\\040notes nfs4 rw 0 0\nbroken\n"
        "tmpfs /home/my\\040notes/fast tmpfs rw 0 0\n/dev/sdb /over ext4 rw 0 0\nhost /over 9p rw 0 0\n"
    )
    assert file_system("/home/my notes/docs", linux) == "nfs4"
    assert file_system("/home/my notes/fast/docs", linux) == "tmpfs"
    assert file_system("/home/other", linux) == "ext4"
    assert file_system("/over/docs", linux) == "9p"
    mac = (
        "/dev/disk3s1s1 on / (apfs, sealed, local, read-only, journaled)\n"
        "//ana@nas/notes on /Volumes/my notes (smbfs, nodev, nosuid, mounted by ana)\n"
    )
    assert file_system("/Users/ana/notes", mac) == "apfs"
    assert file_system("/Volumes/my notes/docs", mac) == "smbfs"
    assert file_system("/home", "") == ""
