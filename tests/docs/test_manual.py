"""The man page contains every command, and is valid roff."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from marklight.surfaces.cli import COMMANDS
from scripts.manual import manual


def test_groff_reports_no_warning() -> None:
    page = manual()
    assert all(f".SS marklight {name}".replace("-", r"\-") in page for name in COMMANDS)
    if not shutil.which("groff"):
        pytest.skip("no groff on this machine to read the manual page")
    done = subprocess.run(
        ["groff", "-ww", "-man", "-Tutf8", "-P-c"], input=page, capture_output=True, text=True
    )
    assert done.returncode == 0
    assert done.stderr == ""
    assert "marklight search" in done.stdout
