"""Documents that are linked with the best results."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import marklight
from marklight.answer import Answer
from marklight.search.context import Linked

PAGES = {
    "heating.md": "# Heating\n\nThe boiler is old. See [the contract](contract.md) and [[home]].\n",
    "contract.md": "# Agreement of March\n\nTwo visits a year by the fitter, 90 euros each.\n",
    "home.md": "# Home\n\nEverything starts here.\n",
    "back.md": "# Log\n\nRead [[heating]] again.\n",
    "far.md": "# Far\n\nOnly [[contract]] leads from here.\n",
    "alone.md": "# Piano\n\nThe strings are rusty.\n",
}


@pytest.fixture
def lib(tmp_path: Path) -> marklight.Library:
    for path, text in PAGES.items():
        (tmp_path / path).write_text(text)
    library = marklight.open(tmp_path, {"model": {"name": "none"}})
    library.index()
    return library


def search(
    lib: marklight.Library, text: str, linked: dict[str, Any] | None = None, **options: Any
) -> Answer:
    """Search with linked documents in every answer, unless the settings differ."""
    stage = {"below": 1.0, **(linked or {})}
    return lib.search(text, min_confidence=0, settings={"search": {"linked": stage}}, **options)


def linked(answer: Answer) -> dict[str, list[str]]:
    return {
        hit.chunk.path: sorted(one.path for one in hit.linked) for hit in answer.hits if hit.linked
    }


def test_documents_one_link_away_in_either_direction_are_added(lib: marklight.Library) -> None:
    answer = search(lib, "boiler")
    assert [hit.chunk.path for hit in answer.hits] == ["heating.md"]
    assert linked(answer) == {"heating.md": ["back.md", "contract.md", "home.md"]}


def test_a_result_is_not_listed_again(lib: marklight.Library) -> None:
    answer = search(lib, "boiler fitter")
    assert {hit.chunk.path for hit in answer.hits} == {"heating.md", "contract.md"}
    assert sorted(one.path for hit in answer.hits for one in hit.linked) == [
        "back.md",
        "far.md",
        "home.md",
    ]


def test_a_confident_answer_has_no_linked_documents(lib: marklight.Library) -> None:
    (hit,) = search(lib, "boiler", {"below": 0.0}).hits
    assert not hit.linked


def test_the_number_of_documents_is_limited(
    lib: marklight.Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Linked, "max_documents", 1)
    (hit,) = search(lib, "boiler").hits
    assert len(hit.linked) == 1


def test_linked_documents_pass_the_filters(lib: marklight.Library) -> None:
    answer = search(lib, "boiler", exclude=["home.md"])
    assert linked(answer) == {"heating.md": ["back.md", "contract.md"]}
    assert linked(search(lib, "boiler", path=["heating.md"])) == {}


def test_json_and_text_contain_them(lib: marklight.Library) -> None:
    answer = search(lib, "boiler")
    (result,) = answer.to_dict()["results"]
    one = result["linked"][0]
    assert one["path"] in ("back.md", "contract.md", "home.md")
    assert f"Linked with this result: {one['ref']} ({one['title']})" in str(answer)


def test_nothing_changes_in_ranking_and_scores(lib: marklight.Library) -> None:
    with_links, without = (
        search(lib, "boiler fitter"),
        search(lib, "boiler fitter", {"below": 0.0}),
    )
    assert [(hit.chunk.id, hit.score) for hit in with_links.hits] == [
        (hit.chunk.id, hit.score) for hit in without.hits
    ]
    assert not linked(without)
