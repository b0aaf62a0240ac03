"""Choice and limit of passages per document."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from marklight.answer import Hit, Hits
from marklight.ports import Tools
from marklight.query import Query
from marklight.search.duplicates import PerDocument
from tests.making import chunk, no_snapshot

TOOLS = Tools(no_snapshot())
QUERY = Query("pasta with quince")


def reported(*texts: str) -> Hits:
    """A hit for each `document: text`, the first one best."""
    parted = [text.split(": ") for text in texts]
    return tuple(
        Hit(chunk(f"{at:02}", text, f"{document}.md"), 1 - at / 100)
        for at, (document, text) in enumerate(parted)
    )


def shown(hits: Hits, query: Query = QUERY, most: int = 2) -> list[str]:
    found = PerDocument(most)(query, hits, TOOLS)
    return [f"{hit.chunk.path.removesuffix('.md')}: {hit.chunk.text}" for hit in found]


def test_the_best_passages_of_each_document_stay() -> None:
    hits = reported("a: one", "a: two", "b: three", "a: four", "b: five")
    assert shown(hits) == ["a: one", "a: two", "b: three", "b: five"]
    assert shown(hits, most=1) == ["a: one", "b: three"]


def test_the_last_passage_is_replaced_by_one_with_a_missing_rare_term() -> None:
    diary = ("d: pasta on Monday", "d: pasta on Tuesday", "d: soup on Friday", "d: quince jam")
    assert shown(reported(*diary)) == ["d: pasta on Monday", "d: quince jam"]
    # Its best one never does, and where another document has the word none need.
    assert shown(reported(*diary), most=1) == ["d: pasta on Monday"]
    assert shown(reported(*diary, "e: quince")) == [*diary[:2], "e: quince"]


def test_a_common_missing_term_replaces_nothing() -> None:
    often = [f"d: quince, jar {at}" for at in range(3)]
    assert shown(reported("d: pasta one", "d: pasta two", *often)) == [
        "d: pasta one",
        "d: pasta two",
    ]


def test_a_passage_with_an_equally_rare_term_is_not_replaced() -> None:
    hits = reported("d: plain bread", "d: pasta", "d: quince")
    assert shown(hits) == ["d: plain bread", "d: pasta"]


def test_nothing_is_replaced_beyond_five_hits() -> None:
    others = [f"{name}: bread" for name in "efgh"]
    hits = reported("d: pasta one", "d: pasta two", *others, "d: quince")
    assert shown(hits) == ["d: pasta one", "d: pasta two", *others]


words = st.sampled_from(["pasta", "quince", "bread", "pasta quince", "pasta bread"])


@given(st.lists(st.tuples(st.sampled_from("abc"), words), max_size=30), st.integers(1, 4))
def test_the_limit_keeps_the_order_and_the_best_of_each_document(
    made: list[tuple[str, str]], most: int
) -> None:
    hits = reported(*(f"{document}: {text}" for document, text in made))
    found = {hit.chunk: hit for hit in PerDocument(most)(QUERY, hits, TOOLS)}
    assert [hit.chunk for hit in hits if hit.chunk in found] == list(found)
    for name in {document for document, _ in made}:
        own = [hit.chunk for hit in hits if hit.chunk.path == f"{name}.md"]
        kept = [chunk for chunk in found if chunk in own]
        assert len(kept) == min(most, len(own))
        assert kept[0] == own[0]
        assert found[kept[0]].more == len(own) - len(kept)
