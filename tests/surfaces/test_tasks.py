"""Task lists: the filter `task:open` and `task:done`, and the tasks in a list of documents."""

from __future__ import annotations

from pathlib import Path

import pytest

from marklight.results import ListedTask
from marklight.surfaces.render import listing_as
from marklight.text.markdown import find_tasks
from tests.making import library, write
from tests.surfaces.command_line import run_json

PAGES = {
    "home.md": "# Home\n\n- [ ] call the **plumber**\n- [x] pay the rent\n  * [ ] water the plants\n",
    "work.md": "---\ntags: [office]\n---\n# Work\n\n> 1. [X] write the report\n",
    "code.md": "# Code\n\n```\n- [ ] an example\n```\n\nAn array[ ] and [x] are no tasks.\n",
}


def test_tasks_are_found_outside_of_code_and_comments() -> None:
    text = f"{PAGES['home.md']}\n<!--\n- [ ] hidden\n-->\n{PAGES['code.md']}"
    assert [(task.line, task.text, task.state) for task in find_tasks(text)] == [
        (3, "call the plumber", "open"),
        (4, "pay the rent", "done"),
        (5, "water the plants", "open"),
    ]
    assert [task.line for task in find_tasks("- [ ] a\r\n- [ ]\n-[ ] b\n+ [x] c")] == [1, 4]


def test_a_list_of_open_tasks_has_their_lines(tmp_path: Path) -> None:
    lib = library(write(tmp_path / "docs", PAGES))
    listing = lib.list_documents("task:open")
    assert listing_as(listing, "text").splitlines()[1:] == [
        "  :3  ☐ call the plumber",
        "  :5  ☐ water the plants",
        "1 document, 2 tasks",
    ]
    assert "\n  - [ ] call the plumber\n" in listing_as(listing, "md")
    (row,) = listing.to_dict()["documents"]
    assert row["tasks"][0] == {"line": 3, "text": "call the plumber", "done": False}
    done = lib.list_documents("task:done")
    assert [each.document.path for each in done.documents] == ["home.md", "work.md"]
    assert done.documents[1].tasks == (ListedTask(6, "write the report", True),)
    assert lib.list_documents("task:done tag:office").total == 1
    assert lib.list_documents("home").to_dict()["documents"][0]["tasks"] == []


def test_a_search_is_restricted_to_documents_with_open_tasks(tmp_path: Path) -> None:
    lib = library(write(tmp_path / "docs", PAGES))
    answer = lib.search("report rent task:open", mode="keyword")
    assert {hit.chunk.path for hit in answer.hits} == {"home.md"}
    assert {hit.chunk.path for hit in lib.search("task:done").hits} == {"home.md", "work.md"}
    answer = lib.search("rent", where={"task": "done"}, mode="keyword")
    assert [hit.chunk.path for hit in answer.hits] == ["home.md"]
    write(tmp_path / "docs", {"home.md": "# Home\n\n- [x] call the plumber\n"})
    assert lib.list_documents("task:open").documents == ()


def test_the_command_line_has_the_filter(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(folder, PAGES)
    found = run_json(capsys, "list", "task:open", "--json")
    assert [row["path"] for row in found["documents"]] == ["home.md"]
