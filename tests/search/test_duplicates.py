"""Exact, near and semantic duplicates, and diversification."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from marklight.answer import Answer, Hit, Hits, best_first
from marklight.errors import SettingsError
from marklight.model import Batch, DocumentId, Vectors
from marklight.models.fake import FakeEmbedder
from marklight.ports import Refine, Tools
from marklight.query import Query
from marklight.search.duplicates import (
    Diversity,
    ExactDuplicates,
    NearDuplicates,
    SemanticDuplicates,
    signature,
)
from marklight.text.analyzer import normalize
from tests.contracts.builders import entry
from tests.making import chunk, hits_of, no_snapshot
from tests.oracle import MemoryEngine
from tests.search.stage_settings import build_stage

QUERY = Query("anything")
TOOLS = Tools(no_snapshot())


def trigrams(text: str) -> frozenset[str]:
    """The runs of three characters of a flat text; a shorter text is its own only one."""
    if len(text) < 3:
        return frozenset([text])
    return frozenset(text[at : at + 3] for at in range(len(text) - 2))


def jaccard(one: frozenset[str], other: frozenset[str]) -> float:
    return len(one & other) / len(one | other)


def reported(texts: list[str]) -> Hits:
    """A hit for each text, in documents of the same title, the first one best."""
    chunks = [replace(chunk(f"{at:03}", text), title="same") for at, text in enumerate(texts)]
    return tuple(Hit(each, 1 - at / 1000) for at, each in enumerate(chunks))


same_or_not = st.lists(
    st.tuples(st.integers(0, 14), st.sampled_from("ab"), st.sampled_from([" ", "\n", " \t "])),
    max_size=6,
)
"""Texts that begin alike for some words, end in a letter, and differ in their white space."""


@given(same_or_not)
@example([(13, "a", " "), (13, "b", " "), (13, "a", "\n")])
def test_exact_duplicates_ignore_white_space_and_long_common_prefixes(
    made: list[tuple[int, str, str]],
) -> None:
    texts = [space.join(["word"] * count + [end, ""]) for count, end, space in made]
    found = ExactDuplicates()(QUERY, reported(texts), TOOLS)
    assert [hit.chunk.text for hit in found] == [
        text for at, text in enumerate(texts) if text.split() not in [e.split() for e in texts[:at]]
    ]


def test_trigrams_ignore_case_and_accents() -> None:
    assert trigrams(normalize("Café  \n au")) == {"caf", "afe", "fe ", "e a", " au"}
    assert trigrams("ab") == {"ab"}
    # abc, bcd against bcd, cde: one of three.
    assert jaccard(trigrams("abcd"), trigrams("bcde")) == pytest.approx(1 / 3)


def test_the_better_of_two_near_duplicates_is_kept_at_a_jaccard_of_0_7() -> None:
    # The runs of "abcdefghij" are 8; one more letter makes 9, two 10, three 11, four 12.
    ten = "abcdefghij"
    assert jaccard(trigrams(ten), trigrams(ten + "klm")) == pytest.approx(8 / 11)  # 0.727
    assert jaccard(trigrams(ten), trigrams(ten + "klmn")) == pytest.approx(8 / 12)  # 0.667
    found = NearDuplicates()(QUERY, reported([ten, ten + "klm", ten + "klmn"]), TOOLS)
    assert [hit.chunk.text for hit in found] == [ten, ten + "klmn"]


def test_a_dropped_passage_drops_no_other() -> None:
    # Each is near the one before it, but the third is not near the first, which stays.
    one, two, three = "abcdefghij", "abcdefghijklm", "abcdefghijklmnopq"
    assert jaccard(trigrams(two), trigrams(three)) == pytest.approx(11 / 15)
    found = NearDuplicates()(QUERY, reported([one, two, three]), TOOLS)
    assert [hit.chunk.text for hit in found] == [one, three]


DAY = "Walked to the office along the river, wrote the report and cooked pasta in the evening"


def test_a_near_duplicate_with_a_query_term_that_the_better_one_lacks_is_kept() -> None:
    days = [f"{DAY}.", f"{DAY} with Ann.", f"{DAY} with quince.", f"{DAY} with quinces!"]
    near = [jaccard(trigrams(normalize(days[0])), trigrams(normalize(day))) for day in days]
    assert min(near) > 0.7
    found = NearDuplicates()(Query("pasta with quince"), reported(days), TOOLS)
    assert [hit.chunk.text for hit in found] == [days[0], days[2]]
    assert [[each.chunk_id for each in hit.similar] for hit in found] == [["001"], ["003"]]


@pytest.mark.parametrize("place", ["headings", "path"])
def test_query_terms_in_path_and_headings_count_too(place: str) -> None:
    first, second = reported([f"{DAY} 1", f"{DAY} 2"])
    changed = {
        "headings": replace(second.chunk, headings=("2026-03-05",)),
        "path": replace(second.chunk, document=DocumentId("default", "2026-03-05.md")),
    }[place]
    hits = (first, replace(second, chunk=changed))
    assert NearDuplicates()(Query("what did I do on 2026-03-05"), hits, TOOLS) == hits
    assert names(NearDuplicates()(Query("what did I do"), hits, TOOLS)) == names(hits[:1])


SIBLINGS = ["Shows the version and exits.", "Shows the version  and exits."]


@pytest.mark.parametrize("stage", [ExactDuplicates(), NearDuplicates()])
def test_documents_with_other_titles_are_never_merged(stage: Refine) -> None:
    first, second = reported(SIBLINGS)
    sibling = replace(second, chunk=replace(second.chunk, title="other"))
    assert stage(Query("show the version"), (first, sibling), TOOLS) == (first, sibling)
    # Two passages of one document may be merged, whatever its title.
    own = replace(sibling, chunk=replace(sibling.chunk, document=first.chunk.document))
    assert len(stage(Query("show the version"), (first, own), TOOLS)) == 1


def test_merged_passages_are_the_similar_of_the_best_one() -> None:
    texts = [
        "Shows the version and exits.",
        "Shows the version  and exits.",
        "Shows the version and exits!",
    ]
    equal = ExactDuplicates()(QUERY, reported(texts), TOOLS)
    assert [[each.path for each in hit.similar] for hit in equal] == [["001.md"], []]
    (near,) = NearDuplicates()(QUERY, equal, TOOLS)
    assert [(each.path, each.score) for each in near.similar] == [
        ("001.md", 0.999),
        ("002.md", 0.998),
    ]
    answer = Answer(QUERY, (near,)).to_dict()
    assert [each["path"] for each in answer["results"][0]["similar"]] == ["001.md", "002.md"]


@pytest.mark.parametrize("stage", [ExactDuplicates(), NearDuplicates()])
def test_with_all_nothing_is_merged(stage: Refine) -> None:
    hits = reported(SIBLINGS)
    assert stage(Query("anything", all=True), hits, TOOLS) == hits


def brute_force(texts: list[str], overlap: float) -> list[str]:
    kept: list[str] = []
    for text in texts:
        sets = [trigrams(normalize(other)) for other in kept]
        if all(jaccard(trigrams(normalize(text)), other) < overlap for other in sets):
            kept.append(text)
    return kept


@given(
    st.lists(st.text("abé日🙂 \n", max_size=12), max_size=12), st.sampled_from([0.2, 0.5, 0.7, 1.0])
)
@example(["", "", "a"], 0.7)
@example(["aa", "aa a"], 0.2)
@example(["\U000e0101ab", "\ud800ab", "ab\udfff"], 0.7)
def test_near_duplicates_equal_those_of_comparing_all_pairs(
    texts: list[str], overlap: float
) -> None:
    hits = tuple(
        replace(hit, chunk=replace(hit.chunk, text=text))
        for hit, text in zip(reported(texts), texts, strict=True)
    )
    found = NearDuplicates(overlap)(QUERY, hits, TOOLS)
    assert [hit.chunk.text for hit in found] == brute_force(texts, overlap)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("marklight.search.duplicates.sys", SimpleNamespace(modules={}))
        assert NearDuplicates(overlap)(QUERY, hits, TOOLS) == found  # before numpy is imported


@given(st.lists(st.text(max_size=30).map(normalize), min_size=1, max_size=6))
def test_signatures_never_differ_in_more_bits_than_trigrams(texts: list[str]) -> None:
    known = [signature.__wrapped__(text) for text in texts]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("marklight.search.duplicates.sys", SimpleNamespace(modules={}))
        assert [signature.__wrapped__(text) for text in texts] == known  # before numpy is imported
    sets = [trigrams(text.ljust(3, "\0")) for text in texts]
    for one, own in zip(known, sets, strict=True):
        assert len(own) == one.size
        for two, other in zip(known, sets, strict=True):
            assert (one.bits ^ two.bits).bit_count() <= len(own ^ other)


def test_passages_of_one_document_are_merged_only_if_they_are_equal() -> None:
    rows = ["| 5.2.0 | four are open |", "| 5.2.1 | four are open |", "| 5.2.0 |  four are open |"]
    assert jaccard(trigrams(normalize(rows[0])), trigrams(normalize(rows[1]))) > 0.7
    versions = reported(rows)
    same = tuple(
        replace(hit, chunk=replace(hit.chunk, document=DocumentId("default", "versions.md")))
        for hit in versions
    )
    for stage in (NearDuplicates(), ExactDuplicates()):
        found = stage(QUERY, same, TOOLS)
        assert [hit.chunk.id for hit in found] == ["000", "001"]
        assert [[each.chunk_id for each in hit.similar] for hit in found] == [["002"], []]
    # Of documents with the same title, the copies are listed with their paths.
    (merged,) = NearDuplicates()(QUERY, versions, TOOLS)
    assert [each.path for each in merged.similar] == ["001.md", "002.md"]


@pytest.mark.parametrize("stage", [ExactDuplicates(), NearDuplicates()])
def test_duplicates_are_merged_among_the_hits_that_can_be_shown(stage: Refine) -> None:
    fruits = ["an apple", "a pear", "an apple", "some figs", "a pear", "some figs"]
    tools = replace(TOOLS, shown=1)
    # The hits of two documents are enough, so the others are not compared.
    assert names(stage(QUERY, reported(fruits), tools)) == [
        "000",
        "001",
        "002",
        "003",
        "004",
        "005",
    ]
    assert names(stage(QUERY, reported(fruits), TOOLS)) == ["000", "001", "003"]
    # Of the first two one is left, and so of the first four; eight are compared then.
    found = stage(QUERY, reported(fruits[:1] * 5 + fruits[1:]), tools)
    assert names(found) == ["000", "005", "007", "008", "009"]


@pytest.mark.parametrize("overlap", [0.0, 1.1])
def test_an_overlap_out_of_bounds_is_an_error(overlap: float) -> None:
    with pytest.raises(SettingsError, match="overlap"):
        build_stage(NearDuplicates, overlap=overlap)


# Meaning: passages a to d at these angles, so that their cosines are known.
ANGLES = {"a": 0.0, "b": 20.0, "c": 40.0, "d": 90.0}


@pytest.fixture(scope="module")
def meanings() -> tuple[Tools, dict[str, Hit]]:
    """Four passages with vectors in a plane, and one without."""
    model = FakeEmbedder(dimension=2)
    entries = [entry(f"{name}.md", f"the text of {name}") for name in "abcde"]
    rows = [[np.cos(np.radians(angle)), np.sin(np.radians(angle))] for angle in ANGLES.values()]
    digests = tuple(each.chunks[0].digest for each in entries[:4])
    engine = MemoryEngine()
    with engine.writing(1):
        engine.commit(Batch(entries=tuple(entries)))
        matrix = np.array(rows, np.float32)
        engine.commit(Batch(vectors=Vectors(model.fingerprint, digests, matrix)))
    with engine.snapshot() as snapshot:
        hits = {name: Hit(each.chunks[0], 0.0) for name, each in zip("abcde", entries, strict=True)}
        return Tools(snapshot, model), hits


def meant(meanings: tuple[Tools, dict[str, Hit]], scores: dict[str, float]) -> Hits:
    return best_first(replace(meanings[1][name], score=score) for name, score in scores.items())


def names(hits: Hits) -> list[str]:
    return [hit.chunk.path.removesuffix(".md") for hit in hits]


def test_the_best_of_semantic_duplicates_is_kept(meanings: tuple[Tools, dict[str, Hit]]) -> None:
    # cos 20° is 0.94, cos 40° 0.77: b goes because of a, and c stays since b is gone.
    hits = meant(meanings, {"a": 0.9, "b": 0.8, "c": 0.7, "d": 0.6, "e": 0.5})
    assert names(SemanticDuplicates(0.85)(QUERY, hits, meanings[0])) == ["a", "c", "d", "e"]
    hits = meant(meanings, {"a": 0.8, "b": 0.9, "c": 0.7, "d": 0.6})
    assert names(SemanticDuplicates(0.85)(QUERY, hits, meanings[0])) == ["b", "d"]
    assert names(SemanticDuplicates(0.95)(QUERY, hits, meanings[0])) == ["b", "a", "c", "d"]


def test_a_semantic_duplicate_with_a_new_query_term_is_kept(
    meanings: tuple[Tools, dict[str, Hit]],
) -> None:
    # Each is called by its letter: a and b are near, and so are b and c.
    hits = meant(meanings, {"a": 0.9, "b": 0.8, "c": 0.7, "d": 0.6})
    assert names(SemanticDuplicates(0.85)(Query("text b"), hits, meanings[0])) == ["a", "b", "d"]


def test_a_cosine_of_one_keeps_even_equal_vectors() -> None:
    model = FakeEmbedder(dimension=2)
    twins = [entry(f"{name}.md", f"the text of {name}") for name in "ab"]
    digests = tuple(each.chunks[0].digest for each in twins)
    engine = MemoryEngine()
    with engine.writing(1):
        vectors = Vectors(model.fingerprint, digests, np.array([[1, 0], [1, 0]], np.float32))
        engine.commit(Batch(entries=tuple(twins), vectors=vectors))
    hits = tuple(Hit(each.chunks[0], 0.5) for each in twins)
    with engine.snapshot() as snapshot:
        assert SemanticDuplicates(1)(QUERY, hits, Tools(snapshot, model)) == hits
        (kept,) = SemanticDuplicates(0.99)(QUERY, hits, Tools(snapshot, model))
        assert names((kept,)) == ["a"]
        assert [each.path for each in kept.similar] == ["b.md"]


def test_without_a_model_there_are_no_semantic_duplicates(
    meanings: tuple[Tools, dict[str, Hit]],
) -> None:
    hits = meant(meanings, {"a": 0.9, "b": 0.8})
    assert SemanticDuplicates(0.85)(QUERY, hits, replace(meanings[0], embedder=None)) == hits
    other = FakeEmbedder(dimension=3)
    assert SemanticDuplicates(0.85)(QUERY, hits, replace(meanings[0], embedder=other)) == hits
    with pytest.raises(SettingsError, match="cosine"):
        build_stage(SemanticDuplicates, cosine=0)


def test_diversity_moves_a_similar_passage_behind_a_different_one(
    meanings: tuple[Tools, dict[str, Hit]],
) -> None:
    # After a: b is worth .7 x .8 - .3 x .94 = .278, d .7 x .6 - .3 x 0 = .42; then b before c,
    # .278 against .7 x .7 - .3 x .77 = .26.
    hits = meant(meanings, {"a": 0.9, "b": 0.8, "c": 0.7, "d": 0.6})
    found = Diversity()(QUERY, hits, meanings[0])
    assert names(found) == ["a", "d", "b", "c"]
    assert [round(hit.score, 6) for hit in found] == [0.9, 0.6, 0.6, 0.6]
    assert found == best_first(found)
    assert [why.stage for hit in found for why in hit.why] == ["diversity", "diversity"]


def test_with_a_relevance_of_one_nothing_moves(meanings: tuple[Tools, dict[str, Hit]]) -> None:
    hits = meant(meanings, {"a": 0.9, "b": 0.8, "c": 0.7, "d": 0.6})
    assert Diversity(relevance=1)(QUERY, hits, meanings[0]) == hits
    with pytest.raises(SettingsError, match="relevance"):
        build_stage(Diversity, relevance=2)


def test_diversity_compares_trigrams_where_there_are_no_vectors() -> None:
    texts = ["apples and pears", "apples and pears too", "something else entirely"]
    hits = tuple(
        replace(hit, score=score)
        for hit, score in zip(reported(texts), [0.9, 0.8, 0.75], strict=True)
    )
    found = Diversity()(QUERY, hits, TOOLS)
    assert [hit.chunk.text for hit in found] == [texts[0], texts[2], texts[1]]


@given(st.dictionaries(st.text("abc", min_size=1), st.floats(0, 1) | st.just(0.0), max_size=8))
def test_diversity_drops_nothing(scores: dict[str, float]) -> None:
    hits = hits_of(scores)
    found = Diversity()(QUERY, hits, TOOLS)
    assert {hit.chunk.id for hit in found} == set(scores)


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("when did I buy it", "bought"),
        ("all colors", "colour"),
        ("how to organise", "organized"),
        ("the mouse", "mice"),
    ],
)
def test_an_irregular_form_of_a_query_term_keeps_a_near_duplicate(query: str, message: str) -> None:
    day = "Went to the market in the morning, then worked in the garden until it was dark."
    found = NearDuplicates()(
        Query(query), reported([day, f"{day} {message}", f"{day} bread"]), TOOLS
    )
    assert [hit.chunk.text for hit in found] == [day, f"{day} {message}"]
