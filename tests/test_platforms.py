"""Calls that differ between platforms: the fallbacks of Windows run here by injected functions."""

from __future__ import annotations

import os
import platform
import signal
import subprocess
import sys
import unicodedata
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from marklight import platforms
from marklight.ingest.read import read
from tests.making import library, write


def test_a_file_that_another_process_has_open_is_replaced_once_it_is_closed(tmp_path: Path) -> None:
    source, target = tmp_path / "new", tmp_path / "file"
    source.write_text("new")
    target.write_text("old")
    refusals = [PermissionError(13, "in use"), PermissionError(13, "in use")]

    def replace(*given: Any) -> None:
        if refusals:
            raise refusals.pop()
        os.replace(*given)

    with pytest.raises(PermissionError):
        platforms.replace_file(source, target, windows=False, call=replace)
    assert target.read_text() == "old"
    platforms.replace_file(source, target, windows=True, call=replace)
    assert target.read_text() == "new"


def test_a_file_that_stays_open_is_an_error_after_a_time_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(platforms, "REPLACE_SECONDS", 0.05)

    def refuse(*_: Any) -> None:
        raise PermissionError(13, "in use")

    with pytest.raises(PermissionError, match="in use"):
        platforms.replace_file(tmp_path / "a", tmp_path / "b", windows=True, call=refuse)


class Kernel:
    """The calls of kernel32 that tell whether a process runs."""

    def __init__(self, handle: int, code: int = 0, error: int = 0) -> None:
        self.closed: list[Any] = []

        def open_process(access: int, inherit: bool, pid: int) -> int:
            return handle

        def exit_code(_: Any, pointer: Any) -> int:
            pointer._obj.value = code
            return 1

        self.OpenProcess, self.GetExitCodeProcess = open_process, exit_code
        self.GetLastError, self.CloseHandle = lambda: error, self.closed.append


@pytest.mark.parametrize(
    ("kernel", "expected"),
    [
        (Kernel(8, code=259), True),
        (Kernel(8, code=1), False),
        (Kernel(0, error=87), False),
        (Kernel(0, error=5), True),
    ],
    ids=["running", "ended", "no such process", "of another user"],
)
def test_windows_reports_whether_a_process_runs(kernel: Kernel, expected: bool) -> None:
    assert platforms.is_running(4711, windows=True, kernel=kernel) is expected
    assert len(kernel.closed) == int(bool(kernel.OpenProcess(0, False, 0)))


def test_a_process_that_has_ended_does_not_run() -> None:
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    assert platforms.is_running(process.pid)
    process.communicate(b"\n")
    assert not platforms.is_running(process.pid)


@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not enforce the limit")
def test_too_little_address_space_is_an_error_and_no_abort(tmp_path: Path) -> None:
    folder = write(tmp_path / "docs", {f"{number}.md": "# Zebra\n" for number in range(50)})
    script = (
        "import resource, sys\n"
        "resource.setrlimit(resource.RLIMIT_AS, (512 << 20, -1))\n"
        "from marklight.surfaces.cli import main\n"
        "main()"
    )
    run = subprocess.run(
        [sys.executable, "-c", script, "index", str(folder)],
        env={**os.environ, "MARKLIGHT_DATA_DIR": str(tmp_path / "data")},
        capture_output=True,
        text=True,
    )
    assert (run.returncode, run.stdout) == (3, "")
    assert run.stderr == (
        "marklight: This process may use 536 MB of address space; it needs 1,000."
        " Raise the limit with `ulimit -v`.\n"
    )


class WindowsEntry:
    """An entry of a listing as on Windows: its stat has neither device, inode nor number of links."""

    def __init__(self, entry: os.DirEntry[str]) -> None:
        self.name, self.path, self.inode = entry.name, entry.path, entry.inode
        self.is_file, self.is_dir, self.is_symlink = entry.is_file, entry.is_dir, entry.is_symlink
        self._entry = entry

    def stat(self, *, follow_symlinks: bool = True) -> os.stat_result:
        mode, _, _, _, *rest = self._entry.stat(follow_symlinks=follow_symlinks)
        details: Any = self._entry.stat(follow_symlinks=follow_symlinks).__reduce__()[1]
        return os.stat_result((mode, 0, 0, 0, *rest), details[1])


def test_a_file_that_was_replaced_is_not_read_where_listings_have_no_inodes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write(tmp_path / "docs", {"a.md": "# A\n", "b.md": "# B\n"})
    (tmp_path / "secret.md").write_text("# Secret\n")
    scandir = os.scandir

    @contextmanager
    def scan(path: str) -> Iterator[Iterator[WindowsEntry]]:
        with scandir(path) as entries:
            yield map(WindowsEntry, entries)

    def replace(path: str, *given: Any) -> Any:
        if path.endswith("b.md"):
            os.unlink(path)
            os.symlink(tmp_path / "secret.md", path)
        return read(path, *given)

    monkeypatch.setattr("marklight.ingest.discover.os.scandir", scan)
    with library(folder) as lib:
        assert len(lib.index().added) == 2
        assert not lib.index().changed
        write(folder, {"a.md": "# New\n", "b.md": "# New\n"})
        monkeypatch.setattr("marklight.ingest.file_batch.read", replace)
        report = lib.index()
        assert [id.path for id in report.changed] == ["a.md"]
        assert "was replaced while it was read" in report.skipped[0].reason
        assert not lib.search("secret", mode="keyword").hits


def test_signals_are_handled_without_the_event_loop() -> None:
    received: list[int] = []
    before = signal.getsignal(signal.SIGINT)
    restore = platforms.on_termination(lambda number, _: received.append(number))
    try:
        signal.raise_signal(signal.SIGTERM)
    finally:
        restore()
    assert received == [signal.SIGTERM]
    assert signal.getsignal(signal.SIGINT) is before


def test_heaps_are_limited_where_the_c_library_can() -> None:
    assert not platforms.limit_heaps("darwin")
    assert not platforms.limit_heaps("win32")
    if platform.libc_ver()[0] == "glibc":
        assert platforms.limit_heaps("linux")


def test_hints_and_globs_are_written_for_the_platform() -> None:
    assert platforms.kill_command(7, windows=True) == "taskkill /F /PID 7"
    assert platforms.kill_command(7, windows=False) == "kill -9 7"
    assert platforms.posix_path("guide\\*.md", windows=True) == "guide/*.md"
    assert platforms.posix_path("a\\b.md", windows=False) == "a\\b.md"


def test_a_document_is_found_with_backslashes_in_any_case_and_unicode_form(tmp_path: Path) -> None:
    decomposed = unicodedata.normalize("NFD", "Über.md")
    pages: dict[str, str | bytes] = {
        f"guide/{decomposed}": "# About\n\nText.\n",
        "guide/Con.md": "# Con\n\nSee [[Über]].\n",
    }
    with library(write(tmp_path / "docs", pages)) as lib:
        lib.index()
        for ref in ("guide\\Con.md", "guide/con.md", "GUIDE\\CON.MD:1-1", "guide\\con.md#con"):
            assert lib.get(ref).document.path == "guide/Con.md"
        for ref in ("guide/Über.md", f"guide\\{decomposed}"):
            assert lib.get(ref).document.path == f"guide/{decomposed}"
        assert [link.target for link in lib.links("guide/Con.md").out] == [
            lib.get("guide/Über.md").document
        ]
