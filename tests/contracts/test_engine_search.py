"""What every engine owes to words: the same scores as arithmetic gives, and filters before ranks."""

from __future__ import annotations

from math import log
from typing import Any

import pytest

from marklight.answer import Filters
from marklight.errors import UsageError
from marklight.model import Batch, FileState
from marklight.ports import FIELD_BOOSTS, Engine
from marklight.text import analyze, code_terms, query_terms
from tests.contracts.builders import embedding, entry, id_of, vector
from tests.contracts.test_engines import commit, find, put


def test_a_score_is_bm25_by_hand(engine: Engine) -> None:
    put(engine, entry("a.md", "apple apple pear"), entry("b.md", "plum"), entry("c.md", "apple"))
    with engine.snapshot() as snapshot:
        found = snapshot.lexical.search(analyze("apple"), {"body": 2.0}, Filters(), 9)
    # Two of three passages have the word; they have 3, 1 and 1 words, 5/3 on average.
    rarity = log(1 + (3 - 2 + 0.5) / (2 + 0.5))
    long = 2 * 2.2 / (2 + 1.2 * (0.25 + 0.75 * 3 / (5 / 3)))
    short = 1 * 2.2 / (1 + 1.2 * (0.25 + 0.75 * 1 / (5 / 3)))
    assert sorted(each.score for each in found) == pytest.approx(
        sorted((2 * rarity * long, 2 * rarity * short)), abs=1e-4
    )


def test_fields_count_by_their_weight_and_add_up(engine: Engine) -> None:
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


def test_the_whole_is_one_text_with_the_title_three_times(engine: Engine) -> None:
    put(engine, entry("a.md", "pear", title="zebra", tags=("plum",)), entry("b.md", "zebra pear"))
    with engine.snapshot() as snapshot:
        found = snapshot.lexical.search(["zebra"], {"whole": 1.0}, Filters(), 9)
        assert find(snapshot, "zebra") == ["a.md", "b.md"]
    # Both passages have the word, 3 times in 5 and once in 2; that is 3.5 on average.
    rarity = log(1 + 0.5 / 2.5)
    title = 3 * 2.2 / (3 + 1.2 * (0.25 + 0.75 * 5 / 3.5))
    body = 1 * 2.2 / (1 + 1.2 * (0.25 + 0.75 * 2 / 3.5))
    assert [each.score for each in found] == pytest.approx(
        [rarity * title, rarity * body], abs=1e-4
    )


def test_names_in_prose_are_found_by_their_parts_and_the_other_way_round(engine: Engine) -> None:
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


def test_a_long_text_counts_by_a_length_in_one_byte(engine: Engine) -> None:
    put(engine, entry("a.md", "zebra " + "other " * 94), entry("b.md", "x"))
    with engine.snapshot() as snapshot:
        (found,) = snapshot.lexical.search(["zebra"], {"body": 1.0}, Filters(), 9)
    # 95 words: 71 above 24, of which four bits keep 64; the average is not rounded.
    often = 2.2 / (1 + 1.2 * (0.25 + 0.75 * 88 / 48))
    assert found.score == pytest.approx(log(1 + 1.5 / 1.5) * often, abs=1e-4)


def test_a_word_counts_as_often_as_it_is_asked_for(engine: Engine) -> None:
    put(engine, entry("a.md", "zebra house"), entry("b.md", "house"))
    with engine.snapshot() as snapshot:
        (one,) = snapshot.lexical.search(["zebra"], {"body": 1.0}, Filters(), 9)
        (three,) = snapshot.lexical.search(["zebra"] * 3, {"body": 1.0}, Filters(), 9)
        assert three.score == pytest.approx(3 * one.score, abs=1e-4)


def test_what_a_passage_has_of_the_words_counts_by_their_rarity(engine: Engine) -> None:
    put(
        engine,
        entry("a.md", "apple pear", title="zebra"),
        entry("b.md", "apple", keywords=("plum",)),
        entry("c.md", "cherry"),
    )
    asked = analyze("apple pear zebra plum cherry nowhere")
    with engine.snapshot() as snapshot:
        ids = {
            path: snapshot.documents.chunks_of(id_of(path))[0].id
            for path in ("a.md", "b.md", "c.md")
        }
        found = snapshot.lexical.term_coverage(asked, [*ids.values(), "none"])
        none = (
            snapshot.lexical.term_coverage(asked, []),
            snapshot.lexical.term_coverage([], list(ids.values())),
        )
    # Of three passages, and a hundred that one thinks of, two have `apple` and one each of the others;
    # `nowhere` counts as if one had it.
    two, one = log(1 + 101.5 / 2.5), log(1 + 102.5 / 1.5)
    whole = two + 5 * one
    assert none == ({}, {})
    assert set(found) == set(ids.values())
    assert found[ids["a.md"]] == pytest.approx(((two + 2 * one) / whole, one / whole, 0))
    assert found[ids["b.md"]] == pytest.approx(((two + one) / whole, 0, 0))
    assert found[ids["c.md"]] == pytest.approx((one / whole, 0, 0))


@pytest.mark.parametrize("passages, most", [(79, 0), (80, 1), (240, 3), (400, 3)])
def test_a_word_is_rare_that_hardly_any_passage_has(
    engine: Engine, passages: int, most: int
) -> None:
    held = ("one two three four", "two three four", "three four", "four")
    put(engine, *(entry(f"{at}.md", (*held, *["none"] * passages)[at]) for at in range(passages)))
    with engine.snapshot() as snapshot:
        first = snapshot.documents.chunks_of(id_of("0.md"))[0].id
        found = snapshot.lexical.term_coverage(analyze("one two three four"), [first])[first]
    # As if there were a hundred more without any of them.
    told = [log(1 + (passages + 100.5 - holders) / (holders + 0.5)) for holders in range(1, 5)]
    assert found == pytest.approx((1, 0, sum(told[:most]) / sum(told)))


def test_a_word_is_known_where_a_living_passage_has_it(engine: Engine) -> None:
    asked = ["appl", "pear", "plum", "user", "zebra", "none"]
    with engine.snapshot() as empty:
        assert empty.lexical.existing_terms(asked) == set()
    put(engine, entry("a.md", "apples", title="plum"), entry("b.md", "pear getUserById"))
    with engine.snapshot() as before:
        commit(engine, Batch(entries=(entry("c.md", "zebra"),), removed=(id_of("a.md"),)))
        assert before.lexical.existing_terms(asked) == {"appl", "pear", "plum", "user"}
        with engine.snapshot() as snapshot:
            assert snapshot.lexical.existing_terms(asked) == {"pear", "user", "zebra"}
            assert snapshot.lexical.existing_terms([]) == set()


def test_of_a_pasted_text_the_first_words_are_looked_for(engine: Engine) -> None:
    put(engine, entry("a.md", " ".join(f"w{at}x" for at in range(0, 40, 2))))
    asked = [f"w{at}x" for at in range(40)]
    with engine.snapshot() as snapshot:
        (found,) = snapshot.lexical.term_coverage(
            asked, [snapshot.documents.chunks_of(id_of("a.md"))[0].id]
        ).values()
    assert found.anywhere == pytest.approx(18 / 36)


def test_a_field_without_weight_finds_nothing(engine: Engine) -> None:
    put(engine, entry("a.md", "word", title="zebra"))
    with engine.snapshot() as snapshot:
        assert snapshot.lexical.search(["zebra"], {"title": 0.0, "body": 1.0}, Filters(), 9) == []
        assert snapshot.lexical.search(["zebra"], {}, Filters(), 9) == []


def test_words_are_data_and_never_syntax(engine: Engine) -> None:
    put(engine, entry("a.md", "C++ and C# and .NET, Node.js; a-b/c"), entry("b.md", "nothing"))
    queries = ["C++", "c#", ".NET", "node.js", "a-b/c", 'AND OR NOT "', "title:(x", "c++ ^2 ~ * ?"]
    with engine.snapshot() as snapshot:
        for query in queries:
            found = snapshot.lexical.search(query_terms(query), FIELD_BOOSTS, Filters(), 9)
            assert len(found) <= 1, query
        assert [find(snapshot, query) for query in queries[:5]] == [["a.md"]] * 5


def test_text_without_spaces_is_found(engine: Engine) -> None:
    put(engine, entry("a.md", "東京都の天気予報です"), entry("b.md", "大阪の天気"))
    with engine.snapshot() as snapshot:
        assert find(snapshot, "東京") == ["a.md"]
        assert find(snapshot, "天気予報")[0] == "a.md"
        assert sorted(find(snapshot, "天気")) == ["a.md", "b.md"]


def test_code_is_found_by_its_parts(engine: Engine) -> None:
    put(
        engine,
        entry("a.md", "x", code="def get_user_by_id(): ...", languages=("python",)),
        entry("b.md", "x", code="std::vector<int> v;", languages=("cpp",)),
        entry("c.md", "get user"),
    )
    with engine.snapshot() as snapshot:

        def code(query: str) -> list[str]:
            found = snapshot.lexical.search_code(code_terms(query), Filters(), 9)
            return [
                each.path for each in snapshot.documents.chunks([one.chunk_id for one in found])
            ]

        assert code("getUserById") == ["a.md"]
        assert code("std::vector") == ["b.md"]
        assert code("nothing") == code("") == []


def test_the_limit_cuts_and_ties_go_by_id(engine: Engine) -> None:
    many = [entry(f"{at}.md", "same words") for at in range(60)]
    put(engine, *many)
    ids = sorted(each.chunks[0].id for each in many)
    with engine.snapshot() as snapshot:
        for limit in (0, 1, 7, 60, 100, 10**9):
            found = snapshot.lexical.search(analyze("same"), FIELD_BOOSTS, Filters(), limit)
            assert [each.chunk_id for each in found] == ids[:limit]


def test_dead_passages_never_take_a_living_ones_place(engine: Engine) -> None:
    put(engine, *(entry(f"{at}.md", "rare rare rare") for at in range(50)))
    put(engine, entry("last.md", "rare among many other words that make it long"))
    commit(engine, Batch(removed=tuple(id_of(f"{at}.md") for at in range(50))))
    with engine.snapshot() as snapshot:
        assert find(snapshot, "rare", limit=1) == ["last.md"]


FILTERED: dict[str, dict[str, Any]] = {
    "guide/a.md": {
        "title": "The First",
        "tags": ("web/http",),
        "author": "Ann",
        "date": "2026-01-31",
    },
    "guide/deep/b.md": {
        "merged": ("x", "the 全文"),
        "tags": ("Web",),
        "metadata": {
            "status": "Draft",
            "files": ["src/A.py", "docs/x.md"],
            "author": ["Bo", "bo@x.org"],
        },
        "date": "2026-02",
    },
    "c.md": {
        "metadata": {"status": ["done", "draft"], "n": {"x": 3}, "files": ["docs/x.md"]},
        "category": "howto",
    },
    "[odd] (name).md": {"languages": ("Python", "c++"), "date": "2025-12-31T23:30:00-08:00"},
}


CASES = [
    (Filters(paths=("guide/*.md",)), "a"),
    (Filters(paths=("guide/**",)), "ab"),
    (Filters(paths=("guide/**/*.md",)), "ab"),
    (Filters(paths=("**/b.md",)), "b"),
    (Filters(paths=("guide",)), "ab"),
    (Filters(paths=("guide/deep/",)), "b"),
    (Filters(paths=("*.md",)), "abco"),
    (Filters(paths=("c.md", "b.md")), "bc"),
    (Filters(paths=("[odd] (name).md",)), "o"),
    (Filters(paths=("[[]odd] (name).md",)), "o"),
    (Filters(paths=("[!c].md",)), "ab"),
    (Filters(exclude=("guide",)), "co"),
    (Filters(exclude=("c.md", "guide/deep/**")), "ao"),
    (Filters(tags=("web",)), "ab"),
    (Filters(tags=("#web/http",)), "a"),
    (Filters(tags=("http",)), ""),
    (Filters(tags=("we",)), ""),
    (Filters(where=(("status", "draft"),)), "bc"),
    (Filters(where=(("Status", "DRAFT"), ("status", "done"))), "c"),
    (Filters(where=(("n.x", "3"),)), "c"),
    (Filters(where=(("category", "HowTo"),)), "c"),
    (Filters(where=(("author", "ann"),)), "a"),
    (Filters(after="2026"), "abo"),
    (Filters(after="2026-01-31", before="2026-01-31"), "a"),
    (Filters(after="2026-02"), "b"),
    (Filters(before="2025-12-31"), "c"),
    (Filters(after="2026-01-01T07", before="2026-01-01T07:30"), "o"),
    (Filters(after="2026-01-01T08:30+01:00", before="2025-12-31T23:30-08:00"), "o"),
    (Filters(after="2026-01-01T07:30:01Z", before="2026-01"), "a"),
    (Filters(before="2026-01-01T07:29"), "c"),
    (Filters(languages=("python",)), "o"),
    (Filters(languages=("C++", "go")), "o"),
    (Filters(collections=("docs",)), "abco"),
    (Filters(collections=("other",)), ""),
    (Filters(tags=("web",), exclude=("**/b.md",), after="2026"), "a"),
    (Filters(documents=(id_of("c.md"), id_of("none.md"))), "c"),
    (Filters(documents=(id_of("c.md", "other"),)), ""),
    (Filters(files=("src/**",)), "b"),
    (Filters(files=("a.PY",)), "b"),
    (Filters(files=("docs", "none")), "bc"),
    (Filters(files=("*.rs",)), ""),
    (Filters(authors=("an",)), "a"),
    (Filters(authors=("X.ORG", "ann")), "ab"),
    (Filters(authors=("bo",), files=("*.md",)), "b"),
    (Filters(authors=("%",)), ""),
    (Filters(also=Filters(files=("*.md",)), authors=("bo",)), "b"),
    (Filters(phrases=("the first",)), "a"),
    (Filters(phrases=("first",)), "a"),
    (Filters(phrases=("the",)), "ab"),
    (Filters(phrases=("word",)), "abco"),
    (Filters(phrases=("words",)), ""),
    (Filters(phrases=("文",)), "b"),
    (Filters(phrases=("the first", "文")), ""),
    (Filters(phrases=("?!",)), "abco"),
    (Filters(without=("the",)), "co"),
    (Filters(without=("first", "全文")), "co"),
    (Filters(without=("first",), tags=("web",)), "b"),
    (Filters(without=("word",)), ""),
    (Filters(phrases=("the",), without=("first",)), "b"),
]
"""Filters, and which of these documents pass: a, b, c or the odd one."""


def test_filters_hold_in_every_way_of_searching(engine: Engine) -> None:
    entries = [entry(path, "word", code="word", **more) for path, more in FILTERED.items()]
    put(engine, *entries)
    commit(engine, embedding(*entries))
    letters = dict(zip((each.chunks[0].id for each in entries), "abco", strict=True))
    with engine.snapshot() as snapshot:
        for filters, expected in CASES:
            for found in (
                snapshot.lexical.search(["word"], FIELD_BOOSTS, filters, 9),
                snapshot.lexical.search_code(["word"], filters, 9),
                snapshot.vectors.search(vector("q"), "m", filters, 9),
            ):
                passed = "".join(sorted(letters[each.chunk_id] for each in found))
                assert passed == expected, filters


@pytest.mark.parametrize("date", ["yesterday", "2026-02-30", "2026-13"])
def test_a_date_that_is_none_is_refused(engine: Engine, date: str) -> None:
    put(engine, entry("a.md", "word"))
    with engine.snapshot() as snapshot, pytest.raises(UsageError, match=date):
        snapshot.lexical.search(["word"], FIELD_BOOSTS, Filters(after=date), 9)


def test_a_document_whose_date_is_none_is_from_its_files_time(engine: Engine) -> None:
    put(engine, entry("a.md", "word", date="soon", mtime_ns=0))
    with engine.snapshot() as snapshot:
        assert find(snapshot, "word", Filters(before="1970-01-01")) == ["a.md"]
    state = FileState(1, 1_700_000_000_000_000_000)
    commit(engine, Batch(touched=((id_of("a.md"), state),)))
    with engine.snapshot() as snapshot:
        assert find(snapshot, "word", Filters(after="2023-11-14", before="2023-11-14")) == ["a.md"]
