"""Every way to install prints one clear line where Python is too old."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
NEEDED = "Marklight needs Python 3.11 or later"
OLD = [
    path
    for minor in (10, 9, 8)
    for path in [
        shutil.which(f"python3.{minor}"),
        *map(str, Path.home().glob(f".pyenv/versions/3.{minor}.*/bin/python")),
    ]
    if path and subprocess.run([path, "-c", ""], capture_output=True).returncode == 0
][:1]
"""An old Python of this machine, if there is one."""
FAKE = """#!/bin/sh
case "$1" in
    --version) echo Python 3.9.18 ;;
    *) exit 1 ;;
esac
"""
"""A Python whose checks of its version fail."""


@pytest.mark.skipif(os.name == "nt", reason="the scripts are for a POSIX shell")
@pytest.mark.parametrize("script", ["demo", "test"])
def test_scripts_refuse_an_old_environment(tmp_path: Path, script: str) -> None:
    shutil.copytree(ROOT / "scripts", tmp_path / "scripts")
    python = tmp_path / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(FAKE)
    python.chmod(0o755)
    done = subprocess.run([tmp_path / "scripts" / script], capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr.startswith(f"{NEEDED}; .venv has Python 3.9.18. Delete .venv and run ")
    assert done.stderr.count("\n") == 1


def old_python() -> str:
    if not OLD:
        pytest.skip("no Python before 3.11 on this machine")
    return OLD[0]


def test_the_build_backend_refuses_an_old_python() -> None:
    done = subprocess.run(
        [old_python(), "-c", "import build_backend"],
        env={**os.environ, "PYTHONPATH": str(ROOT / "scripts")},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    assert done.stderr.startswith(f"{NEEDED}; this is Python 3.")
    assert done.stderr.count("\n") == 1


def test_the_package_refuses_an_old_python() -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    for arguments in (["-m", "marklight"], ["-c", "import marklight"]):
        done = subprocess.run(
            [old_python(), *arguments], env=environment, capture_output=True, text=True
        )
        assert done.returncode == 1
        assert NEEDED in done.stderr.strip().splitlines()[-1]


def test_the_build_backend_works_with_this_python() -> None:
    code = "import build_backend as b; print(b.get_requires_for_build_wheel())"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(ROOT / "scripts")},
        capture_output=True,
        text=True,
    )
    assert "hatchling" in done.stdout
