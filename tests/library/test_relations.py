"""Links, backlinks and related documents, through the public API."""

from __future__ import annotations

from pathlib import Path

import pytest

import marklight
from marklight.errors import NotFound, UsageError
from marklight.model import DocumentId
from marklight.search.relations import links
from tests.making import library, write, written_by_another

PAGES = {
    "hub.md": "# Hub\n\nSee [rollback](deploy/rollback.md#undo) and [[scale]] and [[nowhere]].\n\n"
    "Below: [here](#hub).\n",
    "deploy/rollback.md": "---\ntags: [deploy, rare]\n---\n# Rolling back\n\nBack to the [hub](../hub.md).\n\n"
    "## Tests\n\n- [[scale]]\n",
    "deploy/scale.md": "---\ntags: [deploy, rare]\n---\n# Scaling\n\nMore replicas carry more load.\n",
    "kitchen.md": "---\ntags: [deploy]\n---\n# Espresso\n\nGrind the beans finely.\n",
    "barista.md": "# Coffee\n\nGrind the beans of the espresso finely.\n",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write(tmp_path / "docs", PAGES)


@pytest.fixture
def lib(folder: Path, engine: str) -> marklight.Library:
    lib = library(folder, engine=engine)
    lib.index()
    return lib


def test_links_are_listed_at_both_ends_with_line_type_and_fragment(lib: marklight.Library) -> None:
    found = lib.links("hub.md").to_dict()
    assert [(each["path"], each["line"], each["fragment"]) for each in found["out"]] == [
        ("deploy/rollback.md", 3, "undo"),
        ("deploy/scale.md", 3, ""),
    ]
    assert [(each["path"], each["line"]) for each in found["in"]] == [("deploy/rollback.md", 6)]
    assert [each["target"] for each in found["unresolved"]] == ["nowhere"]
    back = lib.links("deploy/scale.md").to_dict()["in"]
    assert [(each["path"], each["type"]) for each in back] == [
        ("deploy/rollback.md", "tests"),
        ("hub.md", "links_to"),
    ]


def test_links_of_a_document_to_itself_are_not_listed(lib: marklight.Library) -> None:
    found = lib.links("hub.md")
    assert all(link.target != found.document for link in found.out)
    assert all(link.source != found.document for link in found.back)


def test_a_library_lists_unresolved_links_and_orphans(lib: marklight.Library) -> None:
    found = lib.links().to_dict()
    assert [(each["path"], each["target"]) for each in found["unresolved"]] == [
        ("hub.md", "nowhere")
    ]
    assert [each["path"] for each in found["orphans"]] == ["barista.md", "kitchen.md"]
    assert "out" not in found
    cut = lib.links(limit=1)
    assert (len(cut.orphans), cut.more) == (1, {"orphans": 1})


def test_a_list_of_links_is_limited_and_counts_the_rest(
    lib: marklight.Library, folder: Path
) -> None:
    write(folder, {f"many/{number}.md": "[[hub]]\n" for number in range(12)})
    found = lib.links("hub.md", limit=5)
    assert len(found.back) == 5
    assert found.more == {"in": 13 - 5}


def test_backlinks_of_a_hub_are_counted_up_to_a_limit_with_a_notice(
    lib: marklight.Library, folder: Path
) -> None:
    write(folder, {f"many/{number}.md": "[[hub]]\n" for number in range(12)})
    lib.index()
    with lib.engine.snapshot() as snapshot:
        hub = DocumentId("default", "hub.md")
        for most, more in [(8, {"in": 8 - 5}), (99, {"in": 13 - 5})]:
            found = links(hub, snapshot, 5, lambda _: True, max_backlinks=most)
            assert found.more == more
            assert bool(found.notices) == (most == 8)


def test_related_documents_have_readable_reasons(lib: marklight.Library) -> None:
    found = lib.related("deploy/rollback.md")
    reasons = {each.document.path: each.reasons for each in found.relatives}
    assert reasons["hub.md"][0] == "links here, linked from here"
    assert reasons["deploy/scale.md"][:2] == (
        "linked from here (tests)",
        "2 shared tags: deploy, rare",
    )
    assert "deploy/rollback.md" not in reasons
    scores = [each.score for each in found.relatives]
    assert scores == sorted(scores, reverse=True)
    assert all(0 <= score <= 1 for score in scores)


def test_rare_tags_count_more_than_common_ones(folder: Path, engine: str) -> None:
    with marklight.open(folder, {"engine": engine, "model": {"name": "none"}}) as lib:
        lib.index()
        scores = {each.document.path: each.score for each in lib.related("kitchen.md").relatives}
        # Its one tag is all it has, whoever shares it: 0.4.
        assert scores == pytest.approx({"deploy/rollback.md": 0.4, "deploy/scale.md": 0.4})
        write(folder, {"kitchen.md": "---\ntags: [deploy, rare, alone]\n---\nx\n"})
        write(folder, {"only.md": "---\ntags: [deploy]\n---\nx\n"})
        scores = {each.document.path: each.score for each in lib.related("kitchen.md").relatives}
        # Of six documents four have `deploy`, three `rare` and one `alone`: ln 1.5, ln 2, ln 6.
        assert scores["deploy/scale.md"] == pytest.approx(
            0.4 * (0.4055 + 0.6931) / 2.8904, abs=1e-3
        )
        assert "only.md" not in scores, "0.4 * 0.4055 / 2.8904 = 0.06 is too little to tell"


def test_embeddings_relate_documents_without_links_and_tags(lib: marklight.Library) -> None:
    first = lib.related("barista.md").relatives[0]
    assert first.document.path == "kitchen.md"
    assert first.reasons[0].startswith("meaning 0.")


def test_without_a_model_embeddings_are_not_used(folder: Path, engine: str) -> None:
    with marklight.open(folder, {"engine": engine, "model": {"name": "none"}}) as lib:
        lib.index()
        assert lib.related("barista.md").relatives == ()


def test_the_limit_is_applied_and_validated(lib: marklight.Library) -> None:
    assert len(lib.related("deploy/rollback.md", limit=1).relatives) == 1
    with pytest.raises(UsageError, match="1 to 100"):
        lib.related("hub.md", limit=0)
    with pytest.raises(UsageError, match="limit"):
        lib.links("hub.md", limit=0)


def test_deleted_files_are_neither_linked_nor_related(lib: marklight.Library, folder: Path) -> None:
    (folder / "deploy" / "scale.md").unlink()
    with written_by_another(lib):
        assert [link.link.target for link in lib.links("hub.md").unresolved] == ["scale", "nowhere"]
        related = [each.document.path for each in lib.related("hub.md").relatives]
        assert "deploy/scale.md" not in related
        with pytest.raises(NotFound, match="no longer on the disk"):
            lib.links("deploy/scale.md")


def test_an_unknown_document_is_an_error(lib: marklight.Library) -> None:
    for ask in (lib.links, lib.related):
        with pytest.raises(NotFound, match=r"No document is called 'hubb\.md'.*hub\.md"):
            ask("hubb.md")


def test_documents_that_all_others_resemble_as_much_are_not_related(tmp_path: Path) -> None:
    shared = "The weekly report of the office has these parts as usual."
    pages = {f"{at}.md": f"{shared} number{at}\n" for at in range(12)}
    pages["near.md"] = "Bread, olives, thyme, sesame, cumin, mint, figs and dates with oil.\n"
    pages["other.md"] = "Bread, olives, thyme, sesame, cumin, mint, figs and dates with salt.\n"
    lib = library(write(tmp_path / "docs", pages))
    lib.index()
    assert [each.document.path for each in lib.related("near.md").relatives] == ["other.md"]
    assert len(lib.related("1.md").relatives) < 3, "a hash of the fake model may collide"
