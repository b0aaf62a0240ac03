"""Run the shell examples of docs/terminal.md with the real programs."""

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
    script = f'marklight() {{ {program} "$@"; }}\nset -o pipefail\n{line}'
    env = {**os.environ, "MARKLIGHT_MODEL_NAME": "none"}
    done = subprocess.run(
        ["bash", "-c", script], cwd=folder, capture_output=True, text=True, env=env
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_files_can_be_passed_to_xargs(notes: Path) -> None:
    [line] = [each for each in LINES if "wc -l" in each]
    assert "guides/database.md" in run(line, notes, "bash xargs tr wc")


def test_results_can_be_read_by_jq(notes: Path) -> None:
    [line] = [each for each in LINES if "jq -r '\"" in each]
    first = run(line, notes, "bash jq").splitlines()[0]
    assert re.fullmatch(r"guides/database\.md:\d+ [01]\.\d+", first)


def test_a_result_chosen_in_fzf_is_opened_at_its_line(notes: Path) -> None:
    [line] = [each for each in LINES if "fzf" in each]
    # fzf runs without a terminal and takes the best match.
    line = line.replace("fzf ", "fzf --filter database ")
    assert re.match(r"guides/database\.md:\d+:", run(line, notes, "bash fzf"))


def test_paths_of_files_work_from_the_current_folder(notes: Path, tmp_path: Path) -> None:
    line = f"marklight search 'how long are backups kept' {notes} --format files"
    first, *_ = run(line, notes.parent, "bash").splitlines()
    assert first == "notes/guides/database.md"
    first, *_ = run(line, tmp_path, "bash").splitlines()
    assert first == str(notes / "guides" / "database.md")
