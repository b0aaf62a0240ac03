"""Link graphs around one document and of a whole library."""

from __future__ import annotations

from pathlib import Path

import pytest

import marklight
from marklight.errors import NotFound, UsageError
from marklight.report import Graph
from tests.making import library, write, written_by_another

# far ── mid ⇄ hub ─► one, two; two ─► one; alone has no link, and hub one that leads nowhere.
PAGES = {
    "hub.md": "# Hub\n\n[[one]] and [[two]] and [[mid]] and [[nowhere]], [here](#hub).\n",
    "one.md": "# One\n\nfirst\n",
    "two.md": "# Two\n\n[[one]] twice [[one]]\n",
    "mid.md": "# Mid\n\n[[hub]]\n",
    "far.md": "# Far\n\n[[mid]]\n",
    "alone.md": "# Alone\n\nnobody\n",
}


@pytest.fixture
def lib(tmp_path: Path, engine: str) -> marklight.Library:
    lib = library(write(tmp_path / "docs", PAGES), engine=engine)
    lib.index()
    return lib


def drawn(graph: Graph) -> set[str]:
    found = graph.to_dict()
    name = [each["path"].removesuffix(".md") for each in found["nodes"]]
    return {f"{name[each['from']]} {name[each['to']]}" for each in found["edges"]}


def names(graph: Graph) -> list[str]:
    return [each.document.path.removesuffix(".md") for each in graph.nodes]


def test_a_graph_has_the_neighbours_of_a_document_and_all_links_between_them(
    lib: marklight.Library,
) -> None:
    found = lib.graph("hub.md")
    assert names(found)[0] == "hub"
    assert sorted(names(found)) == ["hub", "mid", "one", "two"]
    assert drawn(found) == {"hub one", "hub two", "hub mid", "mid hub", "two one"}
    assert {each.distance for each in found.nodes[1:]} == {1}
    hub = found.nodes[0]
    assert (hub.title, hub.distance) == ("Hub", 0)
    assert hub.degree == 4, "three that it links to, one that links to it"


def test_each_level_of_depth_adds_one_link_in_both_directions(lib: marklight.Library) -> None:
    distances = {each.document.path: each.distance for each in lib.graph("far.md", depth=3).nodes}
    assert distances == {"far.md": 0, "mid.md": 1, "hub.md": 2, "one.md": 3, "two.md": 3}
    assert sorted(names(lib.graph("far.md", depth=2))) == ["far", "hub", "mid"]
    assert names(lib.graph("alone.md", depth=3)) == ["alone"]


def test_above_the_limit_the_best_linked_stay_and_the_rest_is_counted(
    lib: marklight.Library,
) -> None:
    found = lib.graph("hub.md", limit=2)
    # mid has far, hub and hub again; one and two have two each.
    assert names(found) == ["hub", "mid"]
    assert found.more == {"nodes": 2}
    assert lib.graph("hub.md").more == {}
    assert names(lib.graph("hub.md", limit=1)) == ["hub"]


def test_the_graph_of_a_library_has_its_best_linked_documents(lib: marklight.Library) -> None:
    found = lib.graph()
    assert names(found)[:2] == ["hub", "mid"]
    assert sorted(names(found)) == ["far", "hub", "mid", "one", "two"]
    assert drawn(found) == {"hub one", "hub two", "hub mid", "mid hub", "two one", "far mid"}
    assert {each.distance for each in found.nodes} == {None}
    assert "path" not in found.to_dict()
    few = lib.graph(limit=2)
    assert (names(few), drawn(few), few.more) == (
        ["hub", "mid"],
        {"hub mid", "mid hub"},
        {"nodes": 3},
    )


def test_deleted_files_are_not_in_the_graph(lib: marklight.Library) -> None:
    (lib.place.folder / "mid.md").unlink()
    with written_by_another(lib):
        assert sorted(names(lib.graph("hub.md", depth=3))) == ["hub", "one", "two"]
        assert "mid" not in names(lib.graph())


def test_what_makes_no_sense_is_refused(lib: marklight.Library) -> None:
    for depth, limit in ((0, 9), (4, 9), (1, 0), (1, 501)):
        with pytest.raises(UsageError):
            lib.graph("hub.md", depth=depth, limit=limit)
    with pytest.raises(NotFound, match=r"hub\.md"):
        lib.graph("hubb.md")
