"""The command list, and search --documents."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.making import write
from tests.surfaces.command_line import run_cli, run_json

NOTES = {
    f"notes/{number:02}.md": f"---\ndate: 2026-01-{number:02}\n---\n# Note {number}\n\nAbout rivers.\n"
    for number in range(1, 13)
}


def test_list_prints_one_line_a_document_and_the_count(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(folder, NOTES)
    code, out, _ = run_cli(capsys, "list", "rivers", "--sort", "date")
    lines = out.splitlines()
    assert (code, len(lines)) == (0, 13)
    assert lines[0] == "notes/12.md § Note 12 (1 passage, 2026-01-12)"
    assert lines[-1] == "12 documents, 12 passages"


def test_a_limit_never_hides_the_count(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(folder, NOTES)
    arguments = ("list", "rivers", "--sort", "path", "-n", "5")
    code, out, _ = run_cli(capsys, *arguments, "--page", "3")
    assert (code, out.splitlines()[-1]) == (
        0,
        "12 documents, 12 passages; 11 to 12 (page 3 of 3)",
    )
    assert out.splitlines()[0].startswith("notes/11.md")
    code, out, err = run_cli(capsys, *arguments, "--page", "4")
    assert (code, out) == (1, "")
    assert err.splitlines()[-1].startswith("note: There is no page 4: 12 documents")


def test_all_formats_list_the_same_documents(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = run_json(capsys, "list", "tokens", "--mode", "keyword", "--json")
    assert (found["total"], found["documents"][0]["path"]) == (1, "guide/auth.md")
    _, out, _ = run_cli(capsys, "list", "tokens", "--mode", "keyword", "--format", "jsonl")
    assert [json.loads(line)["path"] for line in out.splitlines()] == ["guide/auth.md"]
    _, out, _ = run_cli(capsys, "list", "tokens", "--mode", "keyword", "--format", "files")
    assert out == "guide/auth.md\n"
    _, out, _ = run_cli(capsys, "list", "tokens", "--mode", "keyword", "--format", "md")
    assert out.startswith("- [guide/auth.md § Auth](guide/auth.md) (1 passage")


def test_search_documents_lists_as_list_does(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(folder, NOTES)
    listed = run_json(capsys, "list", "rivers", "--json")
    searched = run_json(capsys, "search", "rivers", "--documents", "--json")
    assert {**searched, "took_ms": 0} == {**listed, "took_ms": 0}
    assert len(searched["documents"]) == 12
    limited = run_json(capsys, "search", "rivers", "--documents", "-n", "5", "--json")
    assert (len(limited["documents"]), limited["total"]) == (5, 12)
    code, _, err = run_cli(capsys, "search", "rivers", "--documents", "--parents")
    assert (code, "--documents cannot be combined with --parents" in err) == (2, True)


def test_the_last_word_may_be_unfinished_with_prefix(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ("tokens refr", "--mode", "keyword", "--min-confidence", "1", "--format", "files")
    for command in (("list",), ("search", "--documents")):
        assert run_cli(capsys, *command, *arguments)[:2] == (1, "")
        found = run_cli(capsys, *command, *arguments, "--prefix")
        assert found[:2] == (0, "guide/auth.md\n")


def test_list_without_a_query_lists_by_filters(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, _ = run_cli(capsys, "list", "--format", "files")
    assert (code, out.split()) == (0, ["espresso.md", "guide/auth.md", "guide/deploy.md"])
    code, out, _ = run_cli(capsys, "list", "--tag", "kitchen", "--format", "files")
    assert (code, out.split()) == (0, ["espresso.md"])


def test_nothing_found_is_exit_code_1_with_a_reason(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = run_cli(capsys, "list", "zebra", "--mode", "keyword")
    assert (code, out) == (1, "")
    assert err.splitlines()[-1] == "note: No document matches the query"


def test_a_folder_in_place_of_the_query_is_not_mistaken_for_words(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, _ = run_cli(capsys, "list", "./guide", "--format", "files")
    assert (code, out.split()) == (0, ["guide/auth.md", "guide/deploy.md"])
    _, _, err = run_cli(capsys, "list", "guide")
    assert "guide is also a folder. To list its documents, use --in guide" in err
