"""Shell completion, run in the real shells where they are installed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import marklight
from tests.making import index_of, write

PAGES = {
    "guide/auth.md": "---\ntags: [security, security/tokens]\n---\n# Tokens\n\nThey expire.\n\n## Refresh them\n\nAgain.\n",
    "guide/backup.md": "---\ntags: [operations]\n---\n# Backup\n\nEvery night.\n",
}
PROGRAM = Path(sys.executable).with_name("marklight")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write(tmp_path / "docs", PAGES)
    (tmp_path / "marklight.toml").write_text('[collections]\nhandbook = "docs"\n')
    with marklight.open(tmp_path, {"model": {"name": "none"}}) as library:
        library.index()
    return tmp_path


def offered(folder: Path, *words: str) -> list[str]:
    """Return the completions of a command line, called as bash does."""
    line = ["marklight", *words]
    done = subprocess.run(
        [sys.executable, "-c", "from marklight.surfaces.cli import main; main()"],
        cwd=folder,
        capture_output=True,
        text=True,
        env={
            **os.environ,
            "_MARKLIGHT_COMPLETE": "bash_complete",
            "COMP_WORDS": " ".join(line),
            "COMP_CWORD": str(len(line) - 1),
        },
    )
    assert done.stderr == ""
    return [row.partition(",")[2] for row in done.stdout.splitlines() if row]


def test_commands_and_options_are_completed(folder: Path) -> None:
    assert "search" in offered(folder, "se")
    assert "--collection" in offered(folder, "search", "--coll")


def test_collections_tags_and_paths_are_completed_from_the_library(folder: Path) -> None:
    assert offered(folder, "search", "x", "--collection", "h") == ["handbook"]
    assert offered(folder, "search", "x", "--tag", "sec") == ["security", "security/tokens"]
    assert offered(folder, "search", "x", "--path", "guide/b") == ["guide/backup.md"]
    assert offered(folder, "get", "guide/a") == ["guide/auth.md"]
    assert offered(folder, "outline", "guide/") == ["guide/auth.md", "guide/backup.md"]


def test_headings_are_completed_after_a_hash(folder: Path) -> None:
    assert offered(folder, "get", "guide/auth.md#") == [
        "guide/auth.md#tokens",
        "guide/auth.md#refresh-them",
    ]


def test_completion_does_not_index_a_folder(tmp_path: Path) -> None:
    write(tmp_path, PAGES)
    assert offered(tmp_path, "search", "x", "--tag", "sec") == []
    assert not index_of(tmp_path).exists()


@pytest.mark.parametrize(
    "shell, check",
    [("bash", ["bash", "-n"]), ("zsh", ["zsh", "-n"]), ("fish", ["fish", "--no-execute"])],
)
def test_each_shell_can_parse_its_script(shell: str, check: list[str], tmp_path: Path) -> None:
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            "from marklight.surfaces.cli import main; main()",
            "--completion",
            shell,
        ],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0
    assert "_MARKLIGHT_COMPLETE" in done.stdout
    if not shutil.which(shell):
        pytest.skip(f"no {shell} on this machine to read it")
    script = tmp_path / "completion"
    script.write_text(done.stdout)
    assert subprocess.run([*check, str(script)], capture_output=True).returncode == 0


def test_bash_completes_interactively(folder: Path) -> None:
    """Call the completion function as bash does."""
    if not shutil.which("bash") or not PROGRAM.exists():
        pytest.skip("no bash, or the command is not installed beside this Python")
    script = f"""
        export PATH={PROGRAM.parent}:$PATH
        source <(marklight --completion bash)
        COMP_WORDS=(marklight get guide/b); COMP_CWORD=2
        _marklight_completion marklight
        printf '%s\\n' "${{COMPREPLY[@]}}"
    """
    done = subprocess.run(["bash", "-c", script], cwd=folder, capture_output=True, text=True)
    assert done.stdout == "guide/backup.md\n", done.stderr


def test_clients_are_completed(folder: Path) -> None:
    assert offered(folder, "install-mcp", "cl") == ["claude-code", "claude-desktop", "cline"]


def test_completions_are_those_of_the_library_that_the_line_names(
    folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    place = str(folder)
    assert offered(elsewhere, "search", "x", place, "--tag", "op") == ["operations"]
    assert offered(elsewhere, "search", "--in", place, "--tag", "op") == ["operations"]
    assert offered(elsewhere, "search", f"--in={place}", "x", "--path", "guide/b") == [
        "guide/backup.md"
    ]
    for command in ("get", "outline", "related", "links"):
        assert offered(elsewhere, command, "--in", place, "guide/b") == ["guide/backup.md"]
    assert offered(elsewhere, "search", "x", "--tag", "op") == []


def test_set_completes_keys_and_values(folder: Path) -> None:
    assert offered(folder, "search", "x", "--set", "search.recency.st") == [
        "search.recency.strength="
    ]
    assert offered(folder, "index", "--set", "files.hid") == ["files.hidden="]
    assert offered(folder, "index", "--set", "files.hidden=t") == ["files.hidden=true"]
    assert "search.fuse=learned" in offered(folder, "search", "x", "--set", "search.fuse=")


@pytest.mark.parametrize(
    "words, reply",
    [
        (["search", "x", "--in", "=", "FOLDER", "--tag", "op"], "operations"),
        (["search", "x", "--in", "FOLDER", "--tag", "=", "op"], "operations"),
        (["search", "x", "--in", "FOLDER", "--tag", "="], "operations\nsecurity\nsecurity/tokens"),
        (["index", "--set", "files.hid"], "files.hidden="),
        (["index", "--set", "files.hidden", "=", "t"], "true"),
        (["index", "--set", "files.hidden", "="], "true\nfalse"),
    ],
)
def test_bash_completes_words_with_an_equals_sign(
    folder: Path, tmp_path: Path, words: list[str], reply: str
) -> None:
    """Call the function with the words as bash splits them."""
    if not shutil.which("bash") or not PROGRAM.exists():
        pytest.skip("no bash, or the command is not installed beside this Python")
    line = " ".join(f"'{word}'" for word in ["marklight", *words]).replace("FOLDER", str(folder))
    script = f"""
        export PATH={PROGRAM.parent}:$PATH
        source <(marklight --completion bash)
        COMP_WORDS=({line}); COMP_CWORD={len(words)}
        _marklight_completion marklight
        printf '%s\\n' "${{COMPREPLY[@]}}"
    """
    done = subprocess.run(["bash", "-c", script], cwd="/", capture_output=True, text=True)
    assert done.stdout == f"{reply}\n", done.stderr
