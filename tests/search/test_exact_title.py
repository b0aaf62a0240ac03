"""Documents with the query among the keywords of their frontmatter."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import marklight
from marklight.answer import Hits
from marklight.operations import ModeName
from marklight.ports import Tools
from marklight.query import Filters, Query
from marklight.search.exact import with_keyword_matches
from tests.making import hits_of, library, write

LOUD = {
    f"loud-{at}.md": f"# Page {at}\n\n{'The canary release of the day. ' * at} Of {at * 7} and {at * 11}.\n"
    for at in range(1, 13)
}
PAGES = {
    **LOUD,
    "rollout.md": "---\nkeywords: [Canary Release, slowly, rare]\n---\n\n# Going live\n\nA few get it first.\n",
    "other.md": "---\nkeywords: [slowly]\n---\n\n# Tea\n\nLeaves in hot water.\n",
    "third.md": "---\nkeywords: [slowly]\n---\n\n# Ink\n\nIt dries.\n",
}


@pytest.fixture(scope="module")
def lib(tmp_path_factory: pytest.TempPathFactory) -> Iterator[marklight.Library]:
    folder = write(tmp_path_factory.mktemp("keyed") / "docs", PAGES)
    with library(folder) as lib:
        lib.index()
        yield lib


def paths(hits: Hits) -> list[str]:
    return [hit.chunk.path for hit in hits]


@pytest.mark.parametrize("mode", ["hybrid", "keyword", "semantic"])
def test_a_document_with_the_keyword_is_among_the_first_five(
    lib: marklight.Library, mode: ModeName
) -> None:
    found = paths(lib.search("canary release", mode=mode, refresh=False).hits)
    assert "rollout.md" in found[:5]
    skipped = lib.search(
        "canary release", mode=mode, refresh=False, settings={"search": {"skip": ["exact_title"]}}
    )
    assert "rollout.md" not in paths(skipped.hits)[:5]


def lifted(lib: marklight.Library, text: str, hits: Hits, filters: Filters | None = None) -> Hits:
    with lib.engine.snapshot() as snapshot:
        return with_keyword_matches(
            Query(text, filters=filters or Filters()), hits, Tools(snapshot)
        )


def test_three_hits_stay_before_a_keyword_match(
    lib: marklight.Library,
) -> None:
    hits = hits_of({"a": 0.9, "b": 0.8, "c": 0.7, "d": 0.6, "e": 0.5})
    found = lifted(lib, "rare", hits)
    assert paths(found) == ["a.md", "b.md", "c.md", "rollout.md", "d.md", "e.md"]
    assert 0.6 < found[3].score < 0.7
    ((only, score),) = [(each.chunk.path, each.score) for each in lifted(lib, "rare", ())]
    assert (only, score) == ("rollout.md", 2 / 6)


def test_two_keyword_matches_at_most_are_raised(
    lib: marklight.Library,
) -> None:
    hits = hits_of({"a": 0.4, "b": 0.3})
    assert len(lifted(lib, "slowly", hits)) == 4
    assert lifted(lib, "slow", hits) is hits


def test_an_added_keyword_match_passes_the_filters(lib: marklight.Library) -> None:
    assert paths(lifted(lib, "slowly", (), Filters(paths=("t*.md",)))) == ["third.md"]
    # Nobody knows whether its first passage does.
    assert lifted(lib, "slowly", (), Filters(without=("tea",))) == ()


def test_a_missing_file_is_not_added(lib: marklight.Library) -> None:
    with lib.engine.snapshot() as snapshot:
        assert (
            with_keyword_matches(Query("rare"), (), Tools(snapshot, exists=lambda _: False)) == ()
        )


BEGINNINGS = {
    "kubernetes.md": "# Kubernetes\n\nRuns containers on many machines.\n",
    "kubectl.md": "# kubectl\n\nThe command for a cluster.\n",
    "notes/plan.md": "---\naliases: [Zephyr plan]\n---\n\n# Plan\n\nNothing is decided.\n",
    "talk.md": "# Talk\n\nWe talked about Kubernetes, Kubernetes and Kubernetes.\n",
    "port.md": "# Port\n\nA port is a number.\n",
    "portal.md": "# Portal\n\nA portal is a gate. " + "Open the portal. " * 9 + "\n",
    "days/2024-03-12.md": "# Standup\n\nAda reported on the roof.\n",
    "days/2024-04-02.md": "# Standup\n\nBob reported on the roof.\n",
    **LOUD,
}


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory) -> Iterator[marklight.Library]:
    folder = write(tmp_path_factory.mktemp("begun") / "docs", BEGINNINGS)
    with library(folder) as lib:
        lib.index()
        yield lib


@pytest.mark.parametrize("mode", ["hybrid", "keyword"])
@pytest.mark.parametrize(
    "text, path",
    [
        ("kuber", "kubernetes.md"),
        ("kubec", "kubectl.md"),
        ("zeph", "notes/plan.md"),
        ("port", "port.md"),
        ("porta", "portal.md"),
    ],
)
def test_a_word_finds_the_title_that_begins_with_it_first(
    begun: marklight.Library, text: str, path: str, mode: ModeName
) -> None:
    for prefix in (False, True):
        answer = begun.search(text, mode=mode, prefix=prefix, refresh=False)
        assert paths(answer.hits)[0] == path, prefix


def test_a_date_in_words_finds_the_document_of_that_date_first(begun: marklight.Library) -> None:
    for text, path in {
        "standup march 2024": "days/2024-03-12.md",
        "roof 2024-04": "days/2024-04-02.md",
        "march 2024": "days/2024-03-12.md",
    }.items():
        assert paths(begun.search(text, refresh=False).hits)[0] == path, text


def test_filters_alone_list_documents_the_latest_first(begun: marklight.Library) -> None:
    found = begun.search("after:2024-03 before:2024-04 path:days/**", refresh=False)
    assert paths(found.hits) == ["days/2024-04-02.md", "days/2024-03-12.md"]
    assert found.abstained is None
    assert len(begun.search("after:2024", limit=7, refresh=False).hits) == 7
    assert paths(begun.search("path:days -Bob", refresh=False).hits) == ["days/2024-03-12.md"]
    none = begun.search("before:1990", refresh=False)
    assert (none.hits, none.abstained) == ((), "No passage matches before:1990")


def test_a_section_that_only_embeds_the_document_is_not_raised(tmp_path: Path) -> None:
    long = "Boil bones for hours, strain them, and reduce the broth with care. " * 30
    pages = {
        "Sourdough starter.md": "# Sourdough starter\n\nFeed it twice a day with flour.\n",
        "Kitchen.md": f"# Kitchen\n\n## Soup\n\n{long}\n\n## Sourdough starter\n\n![[Sourdough starter]]\n\n"
        f"## Stock\n\n{long}\n",
        "Cellar.md": f"# Cellar\n\n## Jars\n\n{long}\n\n## Sourdough starter\n\nOne jar, third shelf.\n\n"
        f"## Wine\n\n{long}\n",
    }
    with library(write(tmp_path / "docs", pages)) as lib:
        answer = lib.search("sourdough starter", min_confidence=0)
        raised = [hit.chunk.path for hit in answer.hits if hit.exact_match]
        assert raised == ["Sourdough starter.md", "Cellar.md"]
