"""The lines in the page on terminals that hand results on to other programs, run by a shell with those programs."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from .examples import NOTES, ROOT

PAGE = (ROOT / "docs" / "terminal.md").read_text()
LINES: list[str] = re.findall(r"^```sh\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def notes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("notes") / "notes"
    shutil.copytree(ROOT / NOTES, folder, ignore=shutil.ignore_patterns(".marklight"))
    return folder


def run(line: str, folder: Path, needed: str) -> str:
    for program in needed.split():
        if not shutil.which(program):
            pytest.skip(f"no {program} on this machine")
    program = f"{sys.executable} -c 'from marklight.surfaces.cli import main; main()'"
    said = f'marklight() {{ {program} "$@"; }}\nset -o pipefail\n{line}'
    env = {**os.environ, "MARKLIGHT_MODEL_NAME": "none"}
    done = subprocess.run(["bash", "-c", said], cwd=folder, capture_output=True, text=True, env=env)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_files_can_be_handed_to_xargs(notes: Path) -> None:
    [line] = [each for each in LINES if "wc -l" in each]
    assert "guides/database.md" in run(line, notes, "bash xargs tr wc")


def test_results_can_be_read_by_jq(notes: Path) -> None:
    [line] = [each for each in LINES if "jq -r '\"" in each]
    first = run(line, notes, "bash jq").splitlines()[0]
    assert re.fullmatch(r"guides/database\.md:\d+ [01]\.\d+", first)


def test_a_choice_in_fzf_is_opened_at_its_line(notes: Path) -> None:
    [line] = [each for each in LINES if "fzf" in each]
    # Nobody is there to choose: fzf takes the best that fits, and the editor only tells how it was called.
    line = line.replace("fzf ", "fzf --filter database ").replace(' -o "$EDITOR"', " echo")
    assert re.match(r"\+\d+ guides/database\.md", run(line, notes, "bash jq fzf awk xargs"))


def test_files_are_named_as_they_can_be_opened_from_where_one_stands(
    notes: Path, tmp_path: Path
) -> None:
    line = f"marklight search 'how long are backups kept' {notes} --format files"
    first, *_ = run(line, notes.parent, "bash").splitlines()
    assert first == "notes/guides/database.md"
    first, *_ = run(line, tmp_path, "bash").splitlines()
    assert first == str(notes / "guides" / "database.md")
