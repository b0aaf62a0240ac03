"""Boilerplate as a user sees it: in `status`, in `--explain` and in JSON."""

from __future__ import annotations

from pathlib import Path

from marklight.formatting import PLAIN
from marklight.surfaces.cli.result_view import answer_view
from marklight.surfaces.cli.status_command import status_text
from marklight.surfaces.explain import explanation
from tests.making import library, write

SHARED = "Please fill in every field of this form before you send it."


def test_status_and_explain_report_boilerplate(tmp_path: Path) -> None:
    names = [f"{name}-{at}" for at, name in enumerate(["plum", "pear", "fig", "kiwi"] * 3)]
    files = {f"{name}.md": f"# {name}\n\n{SHARED}\n\nThe {name} is ripe.\n" for name in names}
    lib = library(write(tmp_path, files))
    lib.index()
    values = lib.status()
    assert values["boilerplate"] == {
        "passages": 0,
        "blocks": 1,
        "most_shared": [{"text": SHARED, "documents": 12}],
    }
    assert "1 repeated block of text, not ranked, such as" in status_text(values, tmp_path)
    answer = lib.search("plum-0", explain=True)
    assert f"{len(SHARED) + 2} of 80 characters are shared" in explanation(answer)
    (part,) = answer.to_dict()["results"][0]["boilerplate"]
    assert answer.hits[0].chunk.text[slice(*part)].strip() == SHARED


def test_passages_of_nothing_but_boilerplate_are_not_missing_a_vector(tmp_path: Path) -> None:
    words = [
        "plum",
        "pear",
        "fig",
        "kiwi",
        "lime",
        "date",
        "nut",
        "oat",
        "rye",
        "yam",
        "corn",
        "bean",
    ]
    files = {
        f"{word}.md": f"# {word}\n\nThe {word} is ripe. {word} " * 20 + f"\n\n## Form\n\n{SHARED}\n"
        for word in words
    }
    lib = library(write(tmp_path, files))
    lib.index()
    assert lib.status()["boilerplate"]["passages"] == len(words)
    assert lib.status()["pending"] == 0
    assert not lib.search("plum").notices


def test_status_without_boilerplate_has_no_row_for_it(tmp_path: Path) -> None:
    lib = library(write(tmp_path, {"a.md": "# A\n\nText.\n"}))
    lib.index()
    assert "oilerplate" not in status_text(lib.status(), tmp_path)


def test_a_snippet_has_no_boilerplate_unless_the_query_quotes_it(tmp_path: Path) -> None:
    names = [f"{name}-{at}" for at, name in enumerate(["plum", "pear", "fig", "kiwi"] * 3)]
    files = {f"{name}.md": f"# {name}\n\n{SHARED}\n\nThe {name} is ripe.\n" for name in names}
    lib = library(write(tmp_path, files))
    answer = lib.search("plum-0")
    (first, *_) = answer.to_dict()["results"]
    assert first["snippet"] == "The plum-0 is ripe."
    assert first["content"].startswith(SHARED)
    assert SHARED not in answer_view(answer, PLAIN, 100)
    quoted = '"before you send it"'
    answer = lib.search(quoted)
    assert all(SHARED in each["snippet"] for each in answer.to_dict()["results"])
    assert "fill in every field" in answer_view(answer, PLAIN, 100)
