"""Which documents belong together by their links."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import defaultdict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from marklight import engines
from marklight.ingest import links as linking
from marklight.model import Batch, DocumentId
from tests.contracts.builders import entry, id_of, link


def grouped(links: dict[str, str]) -> dict[DocumentId, int]:
    """Of pages with one letter for a name, each with the letters that it links to."""
    engine = engines.open("memory:")
    pages = (
        entry(f"{name}.md", "word", links=tuple(map(link, ends))) for name, ends in links.items()
    )
    with engine.writing(1):
        engine.commit(Batch(entries=tuple(pages)))
    with engine.snapshot() as snapshot:
        return dict(linking.louvain_communities(snapshot))


def named(groups: dict[DocumentId, int]) -> list[str]:
    found: dict[int, str] = defaultdict(str)
    for id, number in sorted(groups.items()):
        found[number] += id.path.removesuffix(".md")
    return [found[number] for number in sorted(found)]


def test_two_rings_with_one_bridge_are_two_communities() -> None:
    assert named(
        grouped({"a": "bc", "b": "c", "c": "ad", "d": "ef", "e": "f", "f": "d", "g": ""})
    ) == [
        "abc",
        "def",
    ]


def test_nothing_is_grouped_where_nothing_is_linked() -> None:
    assert grouped({}) == grouped({"a": "", "b": ""}) == {}
    assert grouped({"a": "a", "b": "z"}) == {}
    assert named(grouped({"a": "b", "b": ""})) == ["ab"]


def test_too_many_links_are_not_grouped(monkeypatch: pytest.MonkeyPatch) -> None:
    links = {"a": "bc", "b": "c", "c": ""}
    assert named(grouped(links)) == ["abc"]
    monkeypatch.setattr(linking, "MAX_PAIRS", 2)  # three pairs are one too many
    assert grouped(links) == {}


@settings(max_examples=50)
@given(st.dictionaries(st.sampled_from("abcdefgh"), st.text("abcdefghz", max_size=4), max_size=8))
def test_every_community_has_members_and_every_member_a_link(links: dict[str, str]) -> None:
    groups = grouped(links)
    assert groups == grouped(dict(reversed(links.items())))
    assert sorted(set(groups.values())) == list(range(len(set(groups.values()))))
    linked = {
        id_of(f"{end}.md")
        for name, ends in links.items()
        for other in ends
        if other in links and other != name
        for end in (name, other)
    }
    assert set(groups) <= linked
    assert all(len(each) > 1 for each in named(groups))


SCRIPT = """
from tests.ingest.test_communities import grouped
names = "abcdefghijklmnop"
links = {name: names[at // 4 * 4 :][:4] for at, name in enumerate(names)}
print(sorted(grouped(links).items()))
"""


def test_every_process_finds_the_same() -> None:
    said = {
        subprocess.run(
            [sys.executable, "-c", SCRIPT],
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)},
            capture_output=True,
            check=True,
            text=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(said) == 1
    assert "p.md" in said.pop()
