"""Contract of the metadata reader and of filters, which apply before ranking in every kind of search."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from typing import Any

import pytest

from marklight.errors import UsageError
from marklight.model import Batch, DocumentId, Entry, FileState
from marklight.ports import FIELD_BOOSTS, DocumentMatch, Engine
from marklight.query import CollectionGlob, Filters
from marklight.text.analyzer import analyze
from tests.contracts.builders import commit, embedding, entry, find, id_of, put, vector

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
        "metadata": {
            "status": ["done", "draft"],
            "n": {"x": 3},
            "files": ["docs/x.md"],
            "Authors": "Di, Cy",
            "Published": "March 12, 2024",
        },
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
    (Filters(paths=(CollectionGlob("docs", "/guide/**"),)), "ab"),
    (Filters(paths=(CollectionGlob("docs", "/c.md"), "b.md")), "bc"),
    (Filters(paths=(CollectionGlob("other", "**"), "c.md")), "c"),
    (Filters(exclude=(CollectionGlob("docs", "/guide/*.md"),)), "bco"),
    (Filters(exclude=(CollectionGlob("other", "**"), "c.md")), "abo"),
    (Filters(paths=("/[[]odd] (name).md",)), "o"),
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
    (Filters(before="2025-12-31"), "co"),
    (Filters(after="2025-12-31", before="2025-12-31"), "o"),
    (Filters(after="2025-12-31T23", before="2025-12-31T23"), "o"),
    (Filters(after="2026-01-01T08:30+01:00", before="2025-12-31T23:30-08:00"), "o"),
    (Filters(after="2026-01-01T07:30:01Z", before="2026-01"), "a"),
    (Filters(before="2026-01-01T07:29Z"), "c"),
    (Filters(dated=(("2026-01-01", "2026-01-31"),)), "a"),
    (Filters(dated=(("2026-02-01", "2026-02-28"), ("2024-03-12", "2024-03-12"))), "bc"),
    (Filters(dated=(("2025-12-31", "2025-12-31"),)), "o"),
    (Filters(dated=(("2024-03-01", "2024-03-31"),), tags=("web",)), ""),
    (Filters(where=(("author", "bo"),)), "b"),
    (Filters(where=(("author", "cy"),)), "c"),
    (Filters(languages=("python",)), "o"),
    (Filters(languages=("C++", "go")), "o"),
    (Filters(languages=("py",)), "o"),
    (Filters(languages=("cpp",)), "o"),
    (Filters(languages=("c",)), ""),
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
"""Filters, and the documents that match: a, b, c or the odd one."""


def test_filters_apply_to_every_kind_of_search(engine: Engine) -> None:
    entries = [entry(path, "word", code="word", **more) for path, more in FILTERED.items()]
    put(engine, *entries)
    commit(engine, embedding(*entries))
    letters = dict(zip((each.chunks[0].id for each in entries), "abco", strict=True))
    with engine.snapshot() as snapshot:
        for filters, expected in CASES:
            for results in (
                snapshot.lexical.search(["word"], FIELD_BOOSTS, filters, 9),
                snapshot.lexical.search_code(["word"], filters, 9),
                snapshot.vectors.search(vector("q"), "m", filters, 9),
            ):
                matching = "".join(sorted(letters[each.chunk_id] for each in results))
                assert matching == expected, filters


def test_a_repeated_filter_matches_what_later_commits_changed(engine: Engine) -> None:
    filters, paths = Filters(paths=("guide/**",)), ["guide/a.md", "c.md", "guide/b.md", "d.md"]
    entries = {path: entry(path, f"word {path}") for path in paths}

    def found() -> list[str]:
        chunks = {each.chunks[0].id: path for path, each in entries.items()}
        with engine.snapshot() as snapshot:
            by_vector, again = (snapshot.vectors.search(vector("q"), "m", filters, 9) for _ in "12")
            by_term = snapshot.lexical.search(["word"], FIELD_BOOSTS, filters, 9)
        assert by_vector == again
        assert {each.chunk_id for each in by_vector} == {each.chunk_id for each in by_term}
        return sorted(chunks[each.chunk_id] for each in by_vector)

    def add(*paths: str) -> None:
        put(engine, *(entries[path] for path in paths))
        commit(engine, embedding(*(entries[path] for path in paths)))

    add("guide/a.md", "c.md")
    assert found() == ["guide/a.md"]
    add("guide/b.md", "d.md")
    assert found() == ["guide/a.md", "guide/b.md"]
    commit(engine, Batch(removed=(id_of("guide/a.md"),)))
    assert found() == ["guide/b.md"]


@pytest.mark.parametrize("date", ["yesterday", "2026-02-30", "2026-13"])
def test_an_invalid_date_in_a_filter_is_an_error(engine: Engine, date: str) -> None:
    put(engine, entry("a.md", "word"))
    with engine.snapshot() as snapshot, pytest.raises(UsageError, match=date):
        snapshot.lexical.search(["word"], FIELD_BOOSTS, Filters(after=date), 9)


def test_a_document_with_an_invalid_date_has_its_file_time(engine: Engine) -> None:
    put(engine, entry("a.md", "word", date="soon", mtime_ns=0))
    with engine.snapshot() as snapshot:
        assert find(snapshot, "word", Filters(before="1970-01-01")) == ["a.md"]
    state = FileState(1, 1_700_000_000_000_000_000)
    commit(engine, Batch(touched=((id_of("a.md"), state),)))
    with engine.snapshot() as snapshot:
        assert find(snapshot, "word", Filters(after="2023-11-14", before="2023-11-14")) == ["a.md"]


@pytest.fixture
def new_york(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Set the time zone of this process: five hours behind UTC in winter."""
    monkeypatch.setenv("TZ", "EST5")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.usefixtures("new_york")
def test_a_day_is_one_of_the_users_time_zone_or_as_the_document_writes_it(engine: Engine) -> None:
    late = 86_400 + 4 * 3600 + 1800  # 04:30 UTC on 2 January 1970, 23:30 on the 1st in New York
    put(
        engine,
        entry("file.md", "word", mtime_ns=late * 10**9),
        entry("day.md", "word", date="1970-01-01"),
        entry("zone.md", "word", date="1970-01-02T04:30:00Z"),
        entry("local.md", "word", date="1970-01-01T23:30:00-05:00"),
        entry("1970-01-01.md", "word", date="1970-01-03"),
    )
    first, second = ((Filters(after=day, before=day)) for day in ("1970-01-01", "1970-01-02"))
    with engine.snapshot() as snapshot:
        assert sorted(find(snapshot, "word", first)) == ["day.md", "file.md", "local.md", "zone.md"]
        assert find(snapshot, "word", second) == ["zone.md"]
        dated = Filters(dated=(("1970-01-01", "1970-01-01"),))
        assert sorted(find(snapshot, "word", dated)) == [
            "1970-01-01.md",
            "day.md",
            "file.md",
            "local.md",
        ]


def test_texts_of_any_length_can_be_filtered_and_found(engine: Engine) -> None:
    long, other = "long " * 1000 + "text", "long " * 1000 + "other"
    put(
        engine,
        entry(
            "a.md",
            "words",
            title=long,
            headings=(f"heading {long}",),
            languages=(long,),
            tags=(f"{long}/inner",),
            author=long,
            metadata={long: long, "outer": {long: 1}, "key": [long, other]},
        ),
        entry("b.md", "words", title=other, tags=(other,), metadata={"key": other}),
    )
    with engine.snapshot() as snapshot:
        for filters in (
            Filters(where=((long.upper(), long),)),
            Filters(where=((f"outer.{long}", "1"),)),
            Filters(where=(("key", long), ("key", other))),
            Filters(tags=(long,)),
            Filters(tags=(f"#{long}/inner",)),
            Filters(languages=(long.title(),)),
            Filters(authors=("long long",)),
            Filters(where=(("author", long),)),
        ):
            assert snapshot.metadata.matching_documents(filters, 9) == [id_of("a.md")], filters
        assert snapshot.metadata.matching_documents(Filters(tags=(other,)), 9) == [id_of("b.md")]
        assert snapshot.metadata.has_key(long)
        assert not snapshot.metadata.has_key(other)
        assert list(snapshot.metadata.values("key", 9).values()) == [2, 1]
        for title in (long, f"HEADING  {long}"):
            (found,) = snapshot.documents.find_by_title(title, Filters(), 9)
            assert snapshot.documents.owners([found.chunk_id])[found.chunk_id] == id_of("a.md")


def test_a_document_matches_if_its_passages_have_all_terms_together(engine: Engine) -> None:
    put(
        engine,
        entry("a.md", "apple", "nothing", "pear and plum"),
        entry("b.md", "apple", "apple pear"),
        entry("c.md", "apple", title="Pear"),
        entry("d.md", "plum"),
    )
    with engine.snapshot() as snapshot:
        found = snapshot.metadata.documents_with_terms([["appl"], ["pear"]], "whole", Filters())
        best = {
            chunk.path: chunk.ordinal
            for chunk in snapshot.documents.chunks([match.best for match in found.values()])
        }
    assert {id.path: match.passages for id, match in found.items()} == {
        "a.md": 2,
        "b.md": 2,
        "c.md": 1,
    }
    assert best == {"a.md": 0, "b.md": 1, "c.md": 0}


def test_one_term_of_a_group_is_enough(engine: Engine) -> None:
    put(engine, entry("a.md", "apple"), entry("b.md", "pear plum"), entry("c.md", "plum"))
    with engine.snapshot() as snapshot:
        either = [["appl", "pear", "none"]]
        found = snapshot.metadata.documents_with_terms(either, "whole", Filters())
        missing = [["appl"], ["none"]]
        assert not snapshot.metadata.documents_with_terms(missing, "whole", Filters())
    assert {id.path for id in found} == {"a.md", "b.md"}


def test_deleted_and_replaced_documents_are_not_listed(engine: Engine) -> None:
    put(engine, entry("a.md", "apple"), entry("b.md", "apple", "apple"), entry("c.md", "apple"))
    commit(engine, Batch(entries=(entry("b.md", "apple"),), removed=(id_of("a.md"),)))
    with engine.snapshot() as snapshot:
        for groups in ([["appl"]], []):
            found = snapshot.metadata.documents_with_terms(groups, "whole", Filters())
            assert {id.path: match.passages for id, match in found.items()} == {
                "b.md": 1,
                "c.md": 1,
            }


WORDS = "apple pear plum zebra quince the river stone cloud lamp".split()
TAGS, FOLDERS, DATES = ("red", "blue"), ("guide", "notes"), ("2025-03-01", "2026-01-31")


def random_entry(chance: random.Random, number: int) -> Entry:
    return entry(
        f"{chance.choice(FOLDERS)}/{number}.md",
        *(
            " ".join(chance.choices(WORDS, k=chance.randrange(1, 7)))
            for _ in range(chance.randrange(0, 5))
        ),
        title=" ".join(chance.choices(WORDS, k=chance.randrange(0, 2))),
        tags=tuple(chance.sample(TAGS, chance.randrange(0, 3))),
        date=chance.choice(DATES),
    )


def random_filters(chance: random.Random) -> Filters:
    return Filters(
        paths=tuple(f"{name}/**" for name in chance.sample(FOLDERS, chance.choice([0, 0, 1]))),
        tags=tuple(chance.sample(TAGS, chance.choice([0, 0, 1]))),
        after=chance.choice([None, None, "2026"]),
        phrases=tuple(chance.sample(WORDS, chance.choice([0, 0, 0, 1]))),
        without=tuple(chance.sample(WORDS, chance.choice([0, 0, 0, 1]))),
    )


def brute_force(
    entries: list[Entry], words: list[str], filters: Filters
) -> dict[DocumentId, DocumentMatch]:
    """Return what the documents that match contain, by reading all of their words."""
    matching = {}
    for each in entries:
        document = each.document
        if not (
            all(document.id.path.startswith(str(glob).removesuffix("**")) for glob in filters.paths)
            and (not filters.tags or set(filters.tags) & set(document.tags))
            and (filters.after is None or (document.date or "") >= filters.after)
        ):
            continue
        held: dict[str, set[str]] = {}
        for chunk in each.chunks:
            body = f"{chunk.title} {chunk.text}".split()
            if not set(filters.phrases) <= set(body) or set(filters.without) & set(body):
                continue
            common = {*body, *document.tags} & set(words)
            if common or not words:
                held[chunk.id] = common
        if held and set().union(*held.values()) == set(words):
            matching[document.id] = DocumentMatch(
                len(held), max(held, key=lambda chunk: len(held[chunk]))
            )
    return matching


def test_documents_with_terms_are_those_that_brute_force_finds(engine: Engine) -> None:
    chance = random.Random(17)
    entries = [random_entry(chance, number) for number in range(40)]
    put(engine, *entries)
    found_some = 0
    with engine.snapshot() as snapshot:
        for _ in range(150):
            words = chance.sample(
                [*(word for word in WORDS if word != "the"), *TAGS], k=chance.randrange(0, 4)
            )
            filters = random_filters(chance)
            found = snapshot.metadata.documents_with_terms(
                [analyze(word) for word in words], "whole", filters
            )
            assert found == brute_force(entries, words, filters), (words, filters)
            found_some += bool(found)
    assert found_some > 50


def test_authors_are_found_with_and_without_accents(engine: Engine) -> None:
    put(
        engine,
        entry("a.md", "words", metadata={"author": ["Jörg Müller", "joerg@x.org"]}),
        entry("b.md", "words", metadata={"author": "Muller"}),
    )
    with engine.snapshot() as snapshot:
        for name in ("muller", "Müller", "MÜLLER"):
            found = snapshot.metadata.matching_documents(Filters(authors=(name,)), 9)
            assert found == [id_of("a.md"), id_of("b.md")], name
        exact = Filters(where=(("author", "Jörg Müller"),))
        assert snapshot.metadata.matching_documents(exact, 9) == [id_of("a.md")]
