"""Query operators become filters; what only resembles them stays text."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from marklight.errors import UsageError
from marklight.model import Batch
from marklight.ports import Snapshot, Tools
from marklight.query import Filters, Query
from marklight.search.operators import Operators
from marklight.text.analyzer import query_terms
from tests.contracts.builders import entry
from tests.oracle import MemoryEngine


def a_snapshot() -> Snapshot:
    engine = MemoryEngine()
    with engine.writing(1):
        text = "x, roll back, a b, c d"
        engine.commit(
            Batch(
                entries=(
                    entry(
                        "a.md",
                        text,
                        metadata={"status": "draft"},
                        tags=("release/web",),
                        date="2024-03-12",
                    ),
                    *(entry(f"{n}.md", "y", date="2020-01-01") for n in range(3)),
                )
            )
        )
    return engine.snapshot().__enter__()


SNAPSHOT = a_snapshot()


def parse(text: str, filters: Filters | None = None) -> tuple[str, Filters, list[str]]:
    notices: list[str] = []
    query = Query(text, filters=filters or Filters())
    parsed = Operators()(query, Tools(SNAPSHOT, notify=notices.append))
    assert (parsed.raw_text or parsed.text) == text
    return parsed.text, parsed.filters, notices


@pytest.mark.parametrize(
    ("text", "left", "filters"),
    [
        ('"roll back" fast', "roll back fast", Filters(phrases=("roll back",))),
        ("say “roll back”, now", "say roll back, now", Filters(phrases=("roll back",))),
        ('"a b" "c d"', "a b c d", Filters(phrases=("a b", "c d"))),
        ("pods -draft", "pods", Filters(without=("draft",))),
        ('pods -"work in progress" up', "pods up", Filters(without=("work in progress",))),
        ("検索 -全文", "検索", Filters(without=("全文",))),
        ("tag:x pods", "pods", Filters(tags=("x",))),
        ("pods TAG:#a/b", "pods", Filters(tags=("a/b",))),
        ("pods path:docs/** path:x.md", "pods", Filters(paths=("docs/**", "x.md"))),
        ("pods after:2026-01-01", "pods", Filters(after="2026-01-01")),
        ("pods before:2026, please", "pods please", Filters(before="2026")),
        ('pods author:"Ada Lovelace"', "pods", Filters(where=(("author", "Ada Lovelace"),))),
        ("pods category:howto", "pods", Filters(where=(("category", "howto"),))),
        ("pods status:draft", "pods", Filters(where=(("status", "draft"),))),
        ("pods collection:docs", "pods", Filters(collections=("docs",))),
        ("pods lang:go language:C", "pods", Filters(languages=("go", "C"))),
        ("#release pods", "pods", Filters(tags=("release",))),
        ("pods, #release/web.", "pods, .", Filters(tags=("release/web",))),
        ("#Release", "Release", Filters(tags=("Release",))),
        ("path:docs/** after:2026", "", Filters(paths=("docs/**",), after="2026")),
        ("collection:docs", "", Filters(collections=("docs",))),
        ("path:docs -draft", "", Filters(paths=("docs",), without=("draft",))),
        ("pods after:2026/01/31", "pods", Filters(after="2026-01-31")),
        ('pods before:"march 2026"', "pods", Filters(before="2026-03")),
        ("tag:x author:Ada", "x Ada", Filters(tags=("x",), where=(("author", "Ada"),))),
        ("tag:x path:docs", "x", Filters(tags=("x",), paths=("docs",))),
        ("tag:x -draft", "x", Filters(tags=("x",), without=("draft",))),
    ],
)
def test_operators_become_filters(text: str, left: str, filters: Filters) -> None:
    assert parse(text)[:2] == (left, filters)


@pytest.mark.parametrize(
    "text",
    [
        "std::vector",
        "see http://x.org/tag:x",
        "http://x",
        "10:30",
        "localhost:8080",
        "C++ -O2",
        "grep --flag",
        "rm -f -rf x",
        "ls -la",
        "TypeError: foo",
        'an "unbalanced quote',
        '5" pipe and 6" hose',
        "a - b",
        "-",
        "tag:",
        "tag:# x",
        "after:lunch",
        "nokey:value",
        '""',
        '"!?" what',
        "-draft",
        "-draft -old",
        'print("hello world")',
        "well-known x-ray",
        "a AND b OR NOT c NEAR d* ^e (f) {g} [h] ~i :j",
        "key:",
        "::",
    ],
)
def test_other_text_is_not_parsed_as_operators(text: str) -> None:
    assert parse(text) == (text, Filters(), [])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("pods after:2026-02-31", "2026-02-31"),
        ("pods before:99", "99"),
        ("pods path:a*b*c*d*e*f", "wildcards"),
        ("pods collection:nowhere", "nowhere"),
    ],
)
def test_invalid_filters_raise_a_usage_error(text: str, message: str) -> None:
    with pytest.raises(UsageError) as error:
        parse(text)
    assert message in f"{error.value} {error.value.hint}"


def test_a_tag_that_no_document_has_is_text() -> None:
    for text in ("#include pods", "issue #17", "C# code", "#", "a#release"):
        left, filters, notices = parse(text)
        assert (left, filters) == (text, Filters())
        assert notices == (
            ["No document has the tag #include, so it is searched as text"]
            if "include" in text
            else []
        )


def with_dates(text: str) -> Query:
    noon = datetime(2024, 3, 20, 12).timestamp()
    return Operators()(Query(text), Tools(SNAPSHOT, now=noon))


@pytest.mark.parametrize(
    "text, dates, rest",
    [
        ("standup march 2024", ("2024-03-01", "2024-03-31"), "standup"),
        ("2024-03", ("2024-03-01", "2024-03-31"), ""),
        ("notes of last week", ("2024-03-11", "2024-03-17"), "notes of"),
    ],
)
def test_dates_in_words_are_read_as_a_condition_too(
    text: str, dates: tuple[str, str], rest: str
) -> None:
    query = with_dates(text)
    assert (query.text, query.filters) == (text, Filters())
    assert query.dated_reading == Query(rest, filters=Filters(dated=(dates,)))
    off = Operators(dates=False)(Query(text), Tools(SNAPSHOT, now=0))
    assert off.dated_reading is None


def test_dates_of_no_document_or_of_most_are_words_only() -> None:
    assert with_dates("standup march 1999").dated_reading is None
    assert with_dates("standup 2020").dated_reading is None
    assert with_dates("last mile").dated_reading is None


def test_filters_of_caller_and_query_are_combined() -> None:
    given = Filters(tags=("a",), after="2026-03", before="2026-05", collections=("docs", "x"))
    _, filters, _ = parse("pods tag:b after:2026-02 before:2026-04-01 collection:docs -old", given)
    assert filters == Filters(
        tags=("a",),
        also=Filters(tags=("b",)),
        after="2026-03",
        before="2026-04-01",
        collections=("docs",),
        without=("old",),
    )
    with pytest.raises(UsageError, match="not among the collections to search: x"):
        parse("pods collection:docs", replace(given, collections=("x",)))


@pytest.mark.parametrize("negated", ["-tag:release", "-path:a.md", "-status:draft"])
def test_a_filter_that_is_negated_is_ignored_with_a_notice(negated: str) -> None:
    left, filters, notices = parse(f"x {negated}")
    assert (left, filters) == ("x", Filters())
    assert notices == [f"A dash excludes words, not filters: {negated} is ignored"]


def test_one_notice_lists_the_excluded_words() -> None:
    assert parse("pods -draft")[2] == [
        'Passages with "draft" are left out (-draft). Remove the dash to search for it'
    ]
    assert parse('pods -draft -"to do"')[2] == [
        'Passages with "draft", "to do" are left out (-draft -"to do"). Remove the dash to search for them'
    ]


PIECES = st.sampled_from(
    '" “ ” - : -draft -"a b" "the end" tag:x status:draft path:** after:2026 before:x author:"A B'
    " AND OR NOT NEAR( * ^ ( ) { } [ ] ~ :: lang:c 検索 -検索 , . pods ''".split(" ")
)


@given(st.text() | st.lists(PIECES, max_size=8).map(" ".join) | st.lists(PIECES).map("".join))
def test_any_query_is_parsed_and_keeps_a_word(text: str) -> None:
    try:
        left, filters, _ = parse(text)
    except UsageError:
        assert any(f"{key}:" in text.lower() for key in ("after", "before", "path", "collection"))
        return
    if not left and filters.to_dict():
        return  # only filters: all documents that pass
    assert bool(query_terms(left)) == bool(query_terms(text))
    if not filters:
        assert left == text


def test_a_query_without_operators_reads_nothing_from_the_index() -> None:
    query = Query("how do pods restart")
    assert Operators()(query, Tools(cast(Snapshot, None))) is query


def test_a_text_with_too_many_operators_is_searched_as_text() -> None:
    few = " ".join(f"-word{number}" for number in range(50)) + " pods"
    assert len(parse(few)[1].without) == 50
    many = f"{few} -more"
    text, filters, notices = parse(many)
    assert (text, filters) == (many, Filters())
    assert "searched as text" in notices[0]


def test_a_query_cannot_widen_the_filters_of_its_caller() -> None:
    given = Filters(paths=("docs/**",), tags=("x",))
    _, filters, _ = parse("pods path:secret/** tag:y author:ann", given)
    assert filters == replace(
        given, where=(("author", "ann"),), also=Filters(paths=("secret/**",), tags=("y",))
    )
    assert filters.to_dict()["also"] == {"paths": ["secret/**"], "tags": ["y"]}
    assert parse("pods path:secret/**", Filters(tags=("x",)))[1] == Filters(
        tags=("x",), paths=("secret/**",)
    )


def test_a_missing_phrase_is_searched_as_words_unless_it_is_the_whole_query() -> None:
    left, filters, notices = parse('why "access denied" again')
    assert (left, filters) == ('why "access denied" again', Filters())
    assert notices == ['No passage contains "access denied". Searching for its words instead']
    assert parse('"access denied"') == ("access denied", Filters(phrases=("access denied",)), [])
    # One that stands somewhere stays a filter beside it.
    left, filters, notices = parse('"roll back" of "access denied" now')
    assert (left, filters.phrases) == ("roll back of access denied now", ("roll back",))
    assert len(notices) == 1
