"""Contract of `LexicalReader`: BM25 scores as computed by hand, and term coverage."""

from __future__ import annotations

from math import log

import pytest

from marklight.model import Batch
from marklight.ports import FIELD_BOOSTS, Engine
from marklight.query import Filters
from marklight.text.analyzer import analyze, code_terms, query_terms
from tests.contracts.builders import commit, entry, find, id_of, put


def test_a_score_is_bm25_computed_by_hand(engine: Engine) -> None:
    put(engine, entry("a.md", "apple apple pear"), entry("b.md", "plum"), entry("c.md", "apple"))
    with engine.snapshot() as snapshot:
        results = snapshot.lexical.search(analyze("apple"), {"body": 2.0}, Filters(), 9)
    # Two of three passages have the word; they have 3, 1 and 1 words, 5/3 on average.
    rarity = log(1 + (3 - 2 + 0.5) / (2 + 0.5))
    long = 2 * 2.2 / (2 + 1.2 * (0.25 + 0.75 * 3 / (5 / 3)))
    short = 1 * 2.2 / (1 + 1.2 * (0.25 + 0.75 * 1 / (5 / 3)))
    assert sorted(each.score for each in results) == pytest.approx(
        sorted((2 * rarity * long, 2 * rarity * short)), abs=1e-4
    )


def test_scores_of_fields_are_weighted_and_added(engine: Engine) -> None:
    fields = {
        "t.md": entry("t.md", "x", title="zebra"),
        "h.md": entry("h.md", "x", headings=("zebra",)),
        "m.md": entry("m.md", "x", merged=("zebra",)),
        "k.md": entry("k.md", "x", keywords=("zebra",)),
        "d.md": entry("d.md", "x", description="zebra"),
        "g.md": entry("g.md", "x", tags=("zebra",)),
        "l.md": entry("l.md", "x", aliases=("zebra",)),
        "u.md": entry("u.md", "x", author="zebra"),
        "b.md": entry("b.md", "zebra"),
    }
    put(engine, *fields.values())
    with engine.snapshot() as snapshot:
        assert sorted(find(snapshot, "zebra")) == sorted(fields)
        for field in FIELD_BOOSTS:
            one = snapshot.lexical.search(["zebra"], {field: 1.0}, Filters(), 9)
            two = snapshot.lexical.search(["zebra"], {field: 2.0}, Filters(), 9)
            assert [2 * each.score for each in one] == pytest.approx(
                [each.score for each in two], abs=2e-4
            )


def test_the_field_whole_repeats_the_title_three_times(engine: Engine) -> None:
    put(engine, entry("a.md", "pear", title="zebra", tags=("plum",)), entry("b.md", "zebra pear"))
    with engine.snapshot() as snapshot:
        results = snapshot.lexical.search(["zebra"], {"whole": 1.0}, Filters(), 9)
        assert find(snapshot, "zebra") == ["a.md", "b.md"]
    # Both passages have the word, 3 times in 5 and once in 2; that is 3.5 on average.
    rarity = log(1 + 0.5 / 2.5)
    title = 3 * 2.2 / (3 + 1.2 * (0.25 + 0.75 * 5 / 3.5))
    body = 1 * 2.2 / (1 + 1.2 * (0.25 + 0.75 * 2 / 3.5))
    assert [each.score for each in results] == pytest.approx(
        [rarity * title, rarity * body], abs=1e-4
    )


def test_identifiers_in_prose_match_their_parts_and_the_reverse(engine: Engine) -> None:
    put(
        engine,
        entry("a.md", "call getUserById once"),
        entry("b.md", "the users are fetched by their id"),
        entry("c.md", "nothing"),
    )
    with engine.snapshot() as snapshot:
        assert find(snapshot, "user") == ["b.md", "a.md"]
        assert len(snapshot.lexical.search(analyze("user"), {"body": 1.0}, Filters(), 9)) == 1
        named = snapshot.lexical.search(query_terms("get_user_by_id"), FIELD_BOOSTS, Filters(), 9)
        assert [each.path for each in snapshot.documents.chunks([named[0].chunk_id])] == ["a.md"]


def test_the_length_of_a_field_is_rounded_to_one_byte(engine: Engine) -> None:
    put(engine, entry("a.md", "zebra " + "other " * 94), entry("b.md", "x"))
    with engine.snapshot() as snapshot:
        (results,) = snapshot.lexical.search(["zebra"], {"body": 1.0}, Filters(), 9)
    # 95 words: 71 above 24, of which four bits keep 64; the average is not rounded.
    often = 2.2 / (1 + 1.2 * (0.25 + 0.75 * 88 / 48))
    assert results.score == pytest.approx(log(1 + 1.5 / 1.5) * often, abs=1e-4)


def test_a_repeated_query_term_counts_repeatedly(engine: Engine) -> None:
    put(engine, entry("a.md", "zebra house"), entry("b.md", "house"))
    with engine.snapshot() as snapshot:
        (one,) = snapshot.lexical.search(["zebra"], {"body": 1.0}, Filters(), 9)
        (three,) = snapshot.lexical.search(["zebra"] * 3, {"body": 1.0}, Filters(), 9)
        assert three.score == pytest.approx(3 * one.score, abs=1e-4)


def test_term_coverage_is_weighted_by_idf(engine: Engine) -> None:
    put(
        engine,
        entry("a.md", "apple pear", title="zebra"),
        entry("b.md", "apple", keywords=("plum",)),
        entry("c.md", "cherry"),
    )
    terms = analyze("apple pear zebra plum cherry nowhere")
    with engine.snapshot() as snapshot:
        ids = {
            path: snapshot.documents.chunks_of(id_of(path))[0].id
            for path in ("a.md", "b.md", "c.md")
        }
        results = snapshot.lexical.term_coverage(terms, [*ids.values(), "none"])
        none = (
            snapshot.lexical.term_coverage(terms, []),
            snapshot.lexical.term_coverage([], list(ids.values())),
        )
    # Of three passages, and a hundred that one thinks of, two have `apple` and one each of the others;
    # `nowhere` counts as if one had it.
    two, one = log(1 + 101.5 / 2.5), log(1 + 102.5 / 1.5)
    whole = two + 5 * one
    assert none == ({}, {})
    assert set(results) == set(ids.values())
    assert results[ids["a.md"]] == pytest.approx(((two + 2 * one) / whole, one / whole))
    assert results[ids["b.md"]] == pytest.approx(((two + one) / whole, 0))
    assert results[ids["c.md"]] == pytest.approx((one / whole, 0))


def test_a_term_exists_if_an_undeleted_passage_contains_it(engine: Engine) -> None:
    terms = ["appl", "pear", "plum", "user", "zebra", "none"]
    with engine.snapshot() as empty:
        assert empty.lexical.existing_terms(terms) == set()
    put(engine, entry("a.md", "apples", title="plum"), entry("b.md", "pear getUserById"))
    with engine.snapshot() as before:
        commit(engine, Batch(entries=(entry("c.md", "zebra"),), removed=(id_of("a.md"),)))
        assert before.lexical.existing_terms(terms) == {"appl", "pear", "plum", "user"}
        with engine.snapshot() as snapshot:
            assert snapshot.lexical.existing_terms(terms) == {"pear", "user", "zebra"}
            assert snapshot.lexical.existing_terms([]) == set()


def test_term_coverage_uses_the_first_terms_of_a_long_query(engine: Engine) -> None:
    put(engine, entry("a.md", " ".join(f"w{at}x" for at in range(0, 40, 2))))
    terms = [f"w{at}x" for at in range(40)]
    with engine.snapshot() as snapshot:
        (results,) = snapshot.lexical.term_coverage(
            terms, [snapshot.documents.chunks_of(id_of("a.md"))[0].id]
        ).values()
    assert results.anywhere == pytest.approx(18 / 36)


def test_a_field_with_weight_zero_matches_nothing(engine: Engine) -> None:
    put(engine, entry("a.md", "word", title="zebra"))
    with engine.snapshot() as snapshot:
        assert snapshot.lexical.search(["zebra"], {"title": 0.0, "body": 1.0}, Filters(), 9) == []
        assert snapshot.lexical.search(["zebra"], {}, Filters(), 9) == []


def test_query_terms_are_never_parsed_as_syntax(engine: Engine) -> None:
    put(engine, entry("a.md", "C++ and C# and .NET, Node.js; a-b/c"), entry("b.md", "nothing"))
    queries = ["C++", "c#", ".NET", "node.js", "a-b/c", 'AND OR NOT "', "title:(x", "c++ ^2 ~ * ?"]
    with engine.snapshot() as snapshot:
        for query in queries:
            results = snapshot.lexical.search(query_terms(query), FIELD_BOOSTS, Filters(), 9)
            assert len(results) <= 1, query
        assert [find(snapshot, query) for query in queries[:5]] == [["a.md"]] * 5


def test_text_without_spaces_is_found(engine: Engine) -> None:
    put(engine, entry("a.md", "東京都の天気予報です"), entry("b.md", "大阪の天気"))
    with engine.snapshot() as snapshot:
        assert find(snapshot, "東京") == ["a.md"]
        assert find(snapshot, "天気予報")[0] == "a.md"
        assert sorted(find(snapshot, "天気")) == ["a.md", "b.md"]


def test_code_is_found_by_parts_of_identifiers(engine: Engine) -> None:
    put(
        engine,
        entry("a.md", "x", code="def get_user_by_id(): ...", languages=("python",)),
        entry("b.md", "x", code="std::vector<int> v;", languages=("cpp",)),
        entry("c.md", "get user"),
    )
    with engine.snapshot() as snapshot:

        def code(query: str) -> list[str]:
            results = snapshot.lexical.search_code(code_terms(query), Filters(), 9)
            return [
                each.path for each in snapshot.documents.chunks([one.chunk_id for one in results])
            ]

        assert code("getUserById") == ["a.md"]
        assert code("std::vector") == ["b.md"]
        assert code("nothing") == code("") == []


def test_results_are_limited_and_ties_ordered_by_id(engine: Engine) -> None:
    many = [entry(f"{at}.md", "same words") for at in range(60)]
    put(engine, *many)
    ids = sorted(each.chunks[0].id for each in many)
    with engine.snapshot() as snapshot:
        for limit in (0, 1, 7, 60, 100, 10**9):
            results = snapshot.lexical.search(analyze("same"), FIELD_BOOSTS, Filters(), limit)
            assert [each.chunk_id for each in results] == ids[:limit]


def test_deleted_passages_never_replace_others_in_the_results(engine: Engine) -> None:
    put(engine, *(entry(f"{at}.md", "rare rare rare") for at in range(50)))
    put(engine, entry("last.md", "rare among many other words that make it long"))
    commit(engine, Batch(removed=tuple(id_of(f"{at}.md") for at in range(50))))
    with engine.snapshot() as snapshot:
        assert find(snapshot, "rare", limit=1) == ["last.md"]
