"""The folder of a library on the command line: PATH or --in, in every command, and names of documents elsewhere."""

from __future__ import annotations

from pathlib import Path

import click
import pytest

from marklight.library import Library
from marklight.library.configuration import Index
from marklight.surfaces.cli import COMMANDS
from tests.making import index_of, write
from tests.surfaces.command_line import PAGES, run_cli
from tests.surfaces.terminal import Terminal
from tests.waiting import until

WITHOUT_LIBRARY = {"copy", "models", "eval"}
"""Commands that name no library: copy has FROM and TO, the others use none."""
READING = [
    ("search", "tokens expire"),
    ("get", "espresso.md"),
    ("outline", "guide/auth.md"),
    ("related", "guide/auth.md"),
    ("links", "guide/auth.md"),
    ("ignored", "espresso.md"),
    ("links",),
    ("status",),
    ("doctor",),
    ("settings",),
    ("index",),
    ("export", "archive"),
]
"""Commands that end, with what they need beside the folder."""


@pytest.fixture
def beside(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Path:
    """Return the folder of an indexed library, whose parent is the current folder."""
    assert run_cli(capsys, "index")[0] == 0
    monkeypatch.chdir(folder.parent)
    return folder


@pytest.mark.parametrize("name", sorted(set(COMMANDS) - WITHOUT_LIBRARY))
def test_every_command_on_a_library_accepts_path_and_in(name: str) -> None:
    command = COMMANDS[name]
    options = {word for each in command.params for word in each.opts}
    places = [
        each.human_readable_name.upper()
        for each in command.params
        if isinstance(each, click.Argument)
    ]
    assert "--in" in options
    assert any("PATH" in place for place in places)


@pytest.mark.parametrize("words", READING, ids=" ".join)
@pytest.mark.parametrize("option", [(), ("--in",)], ids=["PATH", "--in"])
def test_commands_work_on_the_library_that_is_named(
    beside: Path,
    capsys: pytest.CaptureFixture[str],
    words: tuple[str, ...],
    option: tuple[str, ...],
) -> None:
    code, _, err = run_cli(capsys, *words, *option, "docs")
    assert code in (0, 1), err
    assert "marklight:" not in err
    assert not index_of(beside.parent).exists()


def test_two_different_folders_are_refused(
    beside: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, err = run_cli(capsys, "get", "espresso.md", "docs", "--in", "other")
    assert code == 2
    assert "Two folders are given: docs and --in other" in err
    assert run_cli(capsys, "get", "espresso.md", "docs", "--in", "docs")[0] == 0


@pytest.mark.parametrize("command", ["get", "outline", "links", "related"])
def test_a_mistyped_path_names_the_similar_file(
    beside: Path, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    code, _, err = run_cli(capsys, command, str(beside / "guide" / "auht.md"))
    assert code == 1
    assert err == (
        f"marklight: No such file: {beside / 'guide' / 'auht.md'}."
        f" Did you mean {beside / 'guide' / 'auth.md'}?\n"
    )
    code, _, err = run_cli(capsys, command, "dosc/guide/auth.md:1-3")
    assert code == 1
    assert "No such file: dosc/guide/auth.md. Did you mean docs/guide/auth.md?" in err


def test_a_mistyped_path_is_found_from_inside_another_library(
    beside: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    other = write(beside.parent / "other", PAGES)
    run_cli(capsys, "index", "other")
    monkeypatch.chdir(other)
    assert run_cli(capsys, "get", str(beside / "espresso.md"))[0] == 0
    code, _, err = run_cli(capsys, "get", f"{beside / 'expresso.md'}#top")
    assert code == 1
    assert f"Did you mean {beside / 'espresso.md'}?" in err
    assert run_cli(capsys, "get", "/espresso.md")[0] == 0, "a path from the library's root"


def test_a_mistyped_folder_names_the_similar_one(
    beside: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, err = run_cli(capsys, "search", "tokens", "dosc")
    assert code == 2
    assert err == "marklight: No such folder: dosc. Did you mean docs?\n"


def test_links_of_a_folder_are_those_of_its_library(
    beside: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, _ = run_cli(capsys, "links", "docs")
    assert code == 0
    assert "documents without links" in out


@pytest.mark.parametrize(
    "words", [("index",), ("search", "tokens"), ("list",), ("query",)], ids=" ".join
)
def test_a_home_folder_is_refused_also_without_a_terminal(
    folder: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    words: tuple[str, ...],
) -> None:
    monkeypatch.setenv("HOME", str(folder))
    code, _, err = run_cli(capsys, *words, "--in", str(folder))
    assert code == 2
    assert f"{folder} is your home folder or above it, with 3 files to index. Name the" in err
    assert "`marklight index --yes` indexes it nevertheless" in err
    assert not index_of(folder).exists()
    if words == ("index",):
        assert run_cli(capsys, "index", "--yes")[0] == 0


@pytest.mark.parametrize("words", [("index",), ("search", "tokens")], ids=" ".join)
def test_a_folder_without_files_of_its_own_must_be_named(
    folder: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    words: tuple[str, ...],
) -> None:
    monkeypatch.chdir(folder.parent)
    code, _, err = run_cli(capsys, *words)
    assert code == 2
    assert "has no Markdown files of its own, only 3 files below it. Name the folder" in err
    assert not index_of(folder.parent).exists()
    assert run_cli(capsys, *words, "--in", ".")[0] == 0


def test_an_empty_folder_leaves_nothing_behind(
    tmp_path: Path, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    for words in (("index",), ("search", "tokens"), ("list",)):
        code, out, err = run_cli(capsys, *words, "--in", str(empty))
        assert (code, out) == (1, "")
        assert err == f"marklight: There are no Markdown or text files in {empty}\n"
    assert not index_of(empty).exists()
    (empty / "paper.pdf").touch()
    _, _, err = run_cli(capsys, "index", str(empty))
    assert err.endswith(f"in {empty}; 1 PDF file is not\n")


def test_formats_that_are_not_indexed_are_named_once(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(folder, {"a.pdf": "", "b.PDF": "", "guide/c.docx": "", ".hidden/d.pdf": ""})
    said = "note: Only Markdown and text is indexed; 2 PDF and 1 Word files are not\n"
    assert said in run_cli(capsys, "search", "tokens")[2]
    assert said not in run_cli(capsys, "search", "tokens")[2]


def test_a_first_search_on_a_terminal_leaves_embeddings_to_the_background(folder: Path) -> None:
    program = (
        "from marklight.library import refresh; refresh.AT_ONCE_SECONDS = 0.0;"
        "refresh.embed_for_query = lambda *_: '';"
        "from marklight.surfaces.cli import main; main()"
    )
    with Terminal(["search", "tokens"], {}, program=program, size=(24, 200)) as terminal:
        assert terminal.end() == 0
    assert "the rest is embedded in the background" in terminal.shown()
    assert "guide/auth.md" in terminal.shown()
    until(lambda: Library(folder).status()["pending"] == 0)


def test_a_folder_with_other_libraries_is_indexed_only_after_a_confirmation(
    beside: Path,
) -> None:
    above = beside.parent
    with Terminal(["index", str(above)], {}, size=(24, 200)) as terminal:
        terminal.until(f"There are no Markdown or text files in {above} but in other libraries:")
        assert terminal.end() == 1
    write(above, {"a.md": "# A\n"})
    with Terminal(["index", str(above)], {}, size=(24, 200)) as terminal:
        text = terminal.until("Index this folder? [y/N]: ")
        assert f"It contains other libraries, which keep their own index: {beside}" in text
        terminal.send("y\n")
        terminal.until(f"in {above}\n")
        assert terminal.end() == 0
    with Terminal(["index", str(above)], {}, size=(24, 200)) as terminal:
        assert "Index this folder?" not in terminal.until("nothing changed")


def test_yes_answers_the_question(folder: Path) -> None:
    with Terminal(["index", "-y"], {"HOME": str(folder)}, size=(24, 200)) as terminal:
        assert "Index this folder?" not in terminal.until("3 added")


def test_an_ordinary_folder_is_indexed_at_once(folder: Path) -> None:
    with Terminal(["search", "tokens"], {}, size=(24, 200)) as terminal:
        assert "Index this folder?" not in terminal.until("guide/auth.md")


def test_hints_name_the_folder_of_the_library(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    spaced = folder.rename(folder.parent / "my docs")
    monkeypatch.chdir(folder.parent)
    command = f"`marklight index '{spaced}'`"
    assert command in run_cli(capsys, "get", "espresso", "my docs")[2]
    assert command in run_cli(capsys, "status", "my docs")[2]
    monkeypatch.setattr(Index, "first_search_seconds", 0.0)
    _, out, _ = run_cli(capsys, "search", "tokens", "my docs", "--json")
    assert f"run {command} to embed the rest" in out
