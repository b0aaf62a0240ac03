"""Documents of a dataset are rendered, indexed and identified."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from marklight.eval.collection import UNTITLED, open_collection, render
from marklight.eval.dataset import Dataset, JudgedQuery, Judgement, Text
from marklight.ingest.document import parse_document
from marklight.ingest.read import Source, decode
from marklight.model import DocumentId, FileState
from marklight.text.analyzer import analyze
from tests.making import write

FAKE = ("model.name=fake",)


def ingested(text: Text) -> tuple[str, str]:
    """Return title and body after rendering to bytes and parsing."""
    source = Source(decode(render(text).encode("utf-8", "replace"))[0], FileState(0, 0, 0))
    document, parsed = parse_document(DocumentId("default", "000/000007.txt"), source)
    assert not document.remarks
    lines = source.text.split("\n")[parsed.body :]
    return document.title, "\n".join(lines)


@pytest.mark.parametrize(
    "text",
    [
        "def f():\n    # a comment, no heading\n    return __init__",
        "---\ntitle: another\n---\ntext",
        "* no list\n\n    no code\n\n| no | table |",
        "[[no link]] #notag ^block",
        "a\u2028b\x85c",
    ],
)
def test_a_rendered_text_is_ingested_unchanged(text: str) -> None:
    title, body = ingested(Text("d", 'It\'s "quoted": yes # no\ttab', text))
    assert title == 'It\'s "quoted": yes # no tab'
    assert body == f"{text}\n"


def test_a_blank_text_is_replaced_by_its_title() -> None:
    assert ingested(Text("d", "Only a title", " ")) == ("Only a title", "Only a title\n")


def test_a_missing_title_is_replaced_by_one_without_terms() -> None:
    assert ingested(Text("d", " ", "text")) == (UNTITLED, "text\n")
    assert analyze(UNTITLED) == []


@given(st.text(max_size=60), st.text(max_size=200))
def test_any_title_and_text_survive_rendering(title: str, text: str) -> None:
    called, body = ingested(Text("d", title, text))
    plain = " ".join("".join(char if char.isprintable() else " " for char in title).split())
    assert called == (plain or UNTITLED)
    if text.strip() and text.isprintable():
        assert body == f"{text}\n"


@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=5
)
@given(st.lists(st.text(max_size=40), min_size=1, max_size=4))
def test_every_document_is_indexed_under_its_id(tmp_path: Path, contents: list[str]) -> None:
    texts = tuple(Text(f"d{place}", "title", text) for place, text in enumerate(contents))
    dataset = Dataset("any", (JudgedQuery("q", "title", {"d0": Judgement(1, "")}),), texts=texts)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MARKLIGHT_CACHE_DIR", str(tmp_path))
        with open_collection(dataset, "keyword", FAKE) as collection:
            with collection.library.engine.snapshot() as snapshot:
                indexed = {collection.ids[id.path] for id in snapshot.documents.files()}
            assert indexed == {text.id for text in texts}


def test_a_settings_file_above_the_cache_is_ignored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "marklight.toml").write_text('[collections]\nall = "."\n')
    (tmp_path / "private.md").write_text("a secret")
    monkeypatch.setenv("MARKLIGHT_CACHE_DIR", str(tmp_path / "cache"))
    dataset = Dataset(
        "any", (JudgedQuery("q", "x", {"d": Judgement(1, "")}),), texts=(Text("d", "t", "x"),)
    )
    with open_collection(dataset, "keyword") as collection:
        assert collection.library.status()["documents"] == 1


def test_settings_of_an_evaluated_folder_cannot_include_files_outside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MARKLIGHT_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("MARKLIGHT_DATA_DIR", str(tmp_path / "data"))
    (tmp_path / "private.md").write_text("a secret")
    folder = write(
        tmp_path / "docs", {"a.md": "apples", "marklight.toml": "files.follow_outside = true\n"}
    )
    (folder / "link.md").symlink_to(tmp_path / "private.md")
    dataset = Dataset("any", (JudgedQuery("q", "x", {"a.md": Judgement(1, "")}),), folder=folder)
    with open_collection(dataset, "keyword") as collection:
        assert collection.library.status()["documents"] == 1
        assert "files.follow_outside" in collection.notices[0]


def test_all_files_of_a_dataset_have_the_same_modification_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MARKLIGHT_CACHE_DIR", str(tmp_path))
    texts = tuple(Text(f"d{place}", "t", "x") for place in range(3))
    dataset = Dataset("any", (JudgedQuery("q", "x", {"d0": Judgement(1, "")}),), texts=texts)
    with open_collection(dataset, "keyword"):
        pass
    times = {os.stat(file).st_mtime for file in tmp_path.rglob("*.txt")}
    assert times == {946_684_800}
