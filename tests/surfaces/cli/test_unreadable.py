"""Unreadable files are reported and not treated as deleted."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.making import write

DROP_FROM_BOUNDING_SET = 24
READ_EVERYTHING = (1, 2)
"""CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH, which let root ignore permissions."""

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="takes rights from root on Linux")


def _like_others() -> None:
    """Drop the capabilities that let root ignore permissions."""
    if os.getuid() == 0:
        libc = ctypes.CDLL(None, use_errno=True)
        for capability in READ_EVERYTHING:
            if libc.prctl(DROP_FROM_BOUNDING_SET, capability, 0, 0, 0):
                raise OSError(ctypes.get_errno(), "prctl")


def run(notes: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "marklight", *arguments],
        cwd=notes,
        env={**os.environ, "MARKLIGHT_MODEL_NAME": "none"},
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=_like_others,
    )


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    made = write(
        tmp_path / "notes",
        {"a.md": "# A\n\nAn otter.\n", "closed/b.md": "# B\n\nAn otter too.\n"},
    )
    assert "closed/b.md" in run(made, "search", "otter").stdout
    return made


def test_an_unreadable_folder_is_reported_and_its_documents_return(notes: Path) -> None:
    closed = notes / "closed"
    closed.chmod(0)
    try:
        message = "closed/ cannot be listed (permission denied); documents below it may be missing"
        for options in ([], ["--no-refresh"]):
            found = run(notes, "search", "otter", *options)
            assert "closed/b.md" not in found.stdout
            assert "a.md" in found.stdout
            assert found.stderr.count(message) == 1
        alone = run(notes, "search", "otter too", "--path", "closed/**")
        assert message in alone.stderr
        assert "no longer exist" not in alone.stdout + alone.stderr
        got = run(notes, "get", "closed/b.md")
        assert got.returncode == 1
        assert "closed/b.md cannot be read: permission denied for closed/" in got.stderr
    finally:
        closed.chmod(0o755)
    again = run(notes, "search", "otter")
    assert "closed/b.md" in again.stdout
    assert message not in again.stderr


def test_an_unreadable_file_is_reported(notes: Path) -> None:
    (notes / "a.md").chmod(0)
    found = run(notes, "search", "otter")
    assert "a.md" not in found.stdout
    assert "a.md cannot be read; `marklight status" in found.stderr
    got = run(notes, "get", "a.md")
    assert got.returncode == 1
    assert "a.md cannot be read: permission denied" in got.stderr
