"""The man page is up to date and valid roff."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from .manual import MANUAL, manual


def test_the_manual_page_is_current() -> None:
    assert MANUAL.read_text() == manual(), "run python -m tests.docs.reference"


def test_groff_reports_no_warning() -> None:
    if not shutil.which("groff"):
        pytest.skip("no groff on this machine to read the manual page")
    done = subprocess.run(
        ["groff", "-ww", "-man", "-Tutf8", "-P-c", str(MANUAL)], capture_output=True, text=True
    )
    assert done.returncode == 0
    assert done.stderr == ""
    assert "marklight search" in done.stdout
