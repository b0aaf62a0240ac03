"""Parent sections in place of passages."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

import marklight
from marklight.ports import Tools
from marklight.query import Query
from marklight.search.context import Parents
from marklight.surfaces.cli import run
from tests.making import hits_of, library, write

LONG = "\n\n".join(f"Paragraph {at} says that token {at} is refreshed. " * 12 for at in range(12))
PAGES = {
    "auth.md": f"# Auth\n\n## Refresh\n\n{LONG}\n\n## Logout\n\nA token ends when the user leaves.\n",
    "other.md": "# Other\n\nNothing about it.\n",
}


@pytest.fixture(scope="module")
def lib(tmp_path_factory: pytest.TempPathFactory) -> Iterator[marklight.Library]:
    folder = write(tmp_path_factory.mktemp("parents") / "docs", PAGES)
    with library(folder) as lib:
        lib.index()
        yield lib


def search(lib: marklight.Library, parents: bool = False) -> marklight.Answer:
    everything = {"search": {"skip": ["per_document", "near_duplicates", "semantic_duplicates"]}}
    return lib.search(
        "token refreshed", limit=100, min_confidence=0.0, settings=everything, parents=parents
    )


def test_each_section_is_returned_once_with_its_best_score(
    lib: marklight.Library,
) -> None:
    children, parents = search(lib), search(lib, parents=True)
    best: dict[str, float] = {}
    for hit in children.hits:
        best.setdefault(hit.chunk.parent, hit.score)
    assert len(best) < len(children.hits)
    assert {hit.chunk.id: hit.score for hit in parents.hits} == best


def test_a_section_contains_its_passages(lib: marklight.Library) -> None:
    children, parents = search(lib), search(lib, parents=True)
    sections = {hit.chunk.id: hit.chunk for hit in parents.hits}
    for hit in children.hits:
        section = sections[hit.chunk.parent]
        assert section.lines[0] <= hit.chunk.lines[0] <= hit.chunk.lines[1] <= section.lines[1]
        assert hit.chunk.text.strip() in section.text
    for path, text in PAGES.items():
        lines = text.split("\n")
        for section in (each for each in sections.values() if each.path == path):
            first, last = section.lines
            assert section.text in "\n".join(lines[first - 1 : last])


def test_get_follows_the_id_of_a_section(lib: marklight.Library) -> None:
    for hit in search(lib, parents=True).hits:
        extract = lib.get(hit.chunk.id)
        assert (extract.text, extract.lines) == (hit.chunk.text, hit.chunk.lines)
        assert extract.headings == hit.chunk.headings


def test_a_passage_without_a_section_is_unchanged(lib: marklight.Library) -> None:
    hits = hits_of({"a": 0.9, "b": 0.5})
    with lib.engine.snapshot() as snapshot:
        assert Parents()(Query("x", parents=True), hits, Tools(snapshot)) == hits


def test_the_command_line_shows_sections_and_gets_them_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MARKLIGHT_MODEL_NAME", "fake")
    monkeypatch.chdir(write(tmp_path / "docs", PAGES))
    assert run(["search", "token refreshed", "-n", "1", "--json", "--parents"]) == 0
    (section,) = json.loads(capsys.readouterr().out)["results"]
    assert run(["get", section["chunk_id"]]) == 0
    assert section["content"].strip() in capsys.readouterr().out
