"""Communities are detected when the index is made, and again only when links changed."""

from __future__ import annotations

from pathlib import Path

import pytest

from marklight import Library
from marklight.model import DocumentId
from tests.making import library, write

PAGES = {
    "a.md": "# A\n\nApples. See [[b]] and [[c]].\n",
    "b.md": "# B\n\nBananas. See [[c]].\n",
    "c.md": "# C\n\nCherries.\n",
    "x.md": "# X\n\nXylophones. See [[y]].\n",
    "y.md": "# Y\n\nYaks.\n",
    "alone.md": "# Alone\n\nNobody.\n",
}


def groups(lib: Library) -> list[str]:
    with lib.engine.snapshot() as snapshot:
        known = snapshot.links.communities(DocumentId("default", name) for name in PAGES)
    found: dict[int, str] = {}
    for id, number in sorted(known.items()):
        found[number] = found.get(number, "") + id.path[0]
    return sorted(found.values())


def generation(lib: Library) -> int:
    with lib.engine.snapshot() as snapshot:
        return snapshot.generation


@pytest.mark.parametrize("by_search", [True, False])
def test_a_new_library_has_communities(tmp_path: Path, engine: str, by_search: bool) -> None:
    with library(write(tmp_path / "docs", PAGES), engine=engine) as lib:
        if by_search:
            lib.search("apples")
        else:
            lib.index()
        assert groups(lib) == ["abc", "xy"]


def test_communities_are_detected_again_only_when_links_changed(
    tmp_path: Path, engine: str
) -> None:
    folder = write(tmp_path / "docs", PAGES)
    with library(folder, engine=engine) as lib:
        lib.index()
        before = generation(lib)
        lib.index()
        assert generation(lib) == before
        write(folder, {"a.md": "# A\n\nOther apples. See [[b]] and [[c]].\n"})
        lib.index()
        with lib.engine.snapshot() as snapshot:
            grouped = int(snapshot.status.manifest()["communities"])
            assert grouped == snapshot.links.last_changed() <= before
        assert groups(lib) == ["abc", "xy"]
        write(folder, {"y.md": "# Y\n\nYaks.\n", "x.md": "# X\n\nXylophones alone.\n"})
        lib.search("xylophones")
        assert groups(lib) == ["abc", "xy"]  # a question does not wait for it
        lib.index()
        assert groups(lib) == ["abc"]


def test_a_library_without_links_is_checked_once(tmp_path: Path, engine: str) -> None:
    folder = write(tmp_path / "docs", {"a.md": "apples\n", "b.md": "bananas\n"})
    with library(folder, engine=engine) as lib:
        lib.index()
        assert groups(lib) == []
        before = generation(lib)
        lib.index()
        assert generation(lib) == before
