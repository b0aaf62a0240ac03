"""The commands links and related, and the context levels of get."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from marklight.surfaces.cli import run
from tests.making import write

PAGES = {
    "guide/auth.md": "---\ntags: [security]\n---\n# Auth\n\nSee [tokens](tokens.md#expiry) and [[gone]].\n",
    "guide/tokens.md": "---\ntags: [security]\n---\n# Tokens\n\n## Tests\n\n- [auth](auth.md)\n",
    "alone.md": "# Alone\n\nNothing leads here.\n",
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MARKLIGHT_MODEL_NAME", "fake")
    monkeypatch.chdir(write(tmp_path / "docs", PAGES))
    run(["index"])
    return tmp_path / "docs"


def run_cli(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    capsys.readouterr()
    code = run(arguments)
    out, err = capsys.readouterr()
    return code, out, err


def run_json(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    code, out, err = run_cli(capsys, *arguments, "--json")
    assert code == 0, err
    return json.loads(out)


def test_links_lists_links_backlinks_and_broken_links(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, _ = run_cli(capsys, "links", "guide/auth.md")
    assert code == 0
    assert out.splitlines() == [
        "links to (1)",
        "      :6  guide/tokens.md#expiry",
        "",
        "linked from (1)",
        "  guide/tokens.md:8  (tests)",
        "",
        "broken links (1)",
        "  guide/auth.md:6  gone",
    ]


def test_links_of_a_library_lists_broken_links_and_orphans(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, _ = run_cli(capsys, "links", "--in", str(folder))
    assert code == 0
    assert out.splitlines() == [
        "broken links (1)",
        "  guide/auth.md:6  gone",
        "",
        "documents without links (1)",
        "  alone.md",
    ]
    write(folder, {f"other{number}.md": "text\n" for number in range(3)})
    _, out, _ = run_cli(capsys, "links", "-n", "2")
    assert out.splitlines()[-4:] == [
        "documents without links (4)",
        "  alone.md",
        "  other0.md",
        "  … and 2 more; raise -n to see them",
    ]


@pytest.mark.parametrize("written", [".", "./", "../{}/"])
def test_links_takes_a_path_that_is_written_as_a_folder(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, written: str
) -> None:
    run(["index", str(folder)])
    monkeypatch.chdir(folder)
    capsys.readouterr()
    assert run(["links", written.format(folder.name)]) == 0
    assert "documents without links" in capsys.readouterr().out


def test_links_as_json(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = run_json(capsys, "links", "guide/auth.md")
    assert found["path"] == "guide/auth.md"
    assert found["out"] == [
        {
            "path": "guide/tokens.md",
            "collection": "default",
            "ref": "guide/tokens.md",
            "line": 6,
            "type": "links_to",
            "target": "tokens.md",
            "fragment": "expiry",
            "text": "tokens",
        }
    ]
    assert {"in", "unresolved", "more", "notices"} <= set(found)
    assert {"orphans", "unresolved", "more", "notices"} == set(run_json(capsys, "links"))


def test_related_prints_score_path_title_and_reasons(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, _ = run_cli(capsys, "related", "guide/auth.md", "-n", "1")
    assert code == 0
    first, second = out.splitlines()
    assert first.endswith("guide/tokens.md  Tokens")
    assert 0 < float(first.split()[0]) <= 1
    assert second.strip().startswith("links here (tests), linked from here; 1 shared tag: security")
    found = run_json(capsys, "related", "guide/auth.md")
    assert found["related"][0]["path"] == "guide/tokens.md"
    assert set(found["related"][0]) == {"path", "collection", "ref", "title", "score", "reasons"}


@pytest.mark.parametrize("command", ["links", "related"])
def test_a_missing_document_is_one_line_and_exit_code_1(
    folder: Path, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    code, out, err = run_cli(capsys, command, "guide/aut.md")
    assert (code, out) == (1, "")
    assert err.startswith("marklight: No document is called 'guide/aut.md'")
    assert "guide/auth.md" in err


def test_a_document_without_related_documents_gets_a_note(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = run_cli(capsys, "links", "alone.md")
    assert (code, out) == (0, "")
    assert "No links" in err
    code, out, err = run_cli(capsys, "related", "alone.md", "--set", "model.name=none")
    assert (code, out) == (1, "")
    assert "No document is related to alone.md" in err


def test_names_cannot_control_the_terminal(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(folder, {"e\x1b[2Jvil.md": "# T\x1b[2J\n\n[x](guide/auth.md) [[no\x1bwhere]]\n"})
    for arguments in (["links", "guide/auth.md"], ["links"], ["related", "guide/auth.md"]):
        _, out, _ = run_cli(capsys, *arguments)
        assert "vil.md" in out
        assert "\x1b" not in out


def test_get_prints_a_context_level_and_lists_the_others(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (result,) = run_json(capsys, "search", "nothing leads here", "-n", "1")["results"]
    code, out, err = run_cli(capsys, "get", result["chunk_id"])
    assert code == 0
    assert out.splitlines()[-1] == "Nothing leads here."
    assert "--level" in err
    assert "parent 28 characters" in err
    code, out, _ = run_cli(capsys, "get", result["chunk_id"], "--level", "document")
    assert "# Alone" in out
    found = run_json(capsys, "get", result["chunk_id"])
    assert found["levels"] == result["levels"]
    code, out, err = run_cli(capsys, "get", "alone.md", "--level", "book")
    assert (code, out) == (2, "")
    assert "neighbours" in err
