"""Properties that hold for every answer, query and engine."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import marklight
from marklight.errors import UsageError
from marklight.ports import Tools
from marklight.query import Filters, Mode, Query
from tests.library.conftest import paths
from tests.making import library, write
from tests.oracle import MemoryEngine

WORDS = (
    "token refresh deploy rollback replica cluster espresso kitchen user login cache index".split()
)
NAMES = "getUserById parse_json_data HTTPResponseError".split()


@dataclass(frozen=True)
class Page:
    """A document by what filters ask about it."""

    path: str
    tag: str
    status: str
    date: str
    text: str


def talk(chance: random.Random, length: int) -> str:
    """Words that all share, each beside one that no other has, so that no two texts are alike."""
    return " ".join(
        f"{word} {chance.getrandbits(64):x}" for word in chance.choices(WORDS, k=length)
    )


def page(chance: random.Random, number: int) -> Page:
    # Passages of at most 40 words: the length of a longer one tantivy knows only roughly.
    tag, status = chance.choice(["red", "blue"]), chance.choice(["draft", "final"])
    dated = number % 3 > 0  # the others are as new as their files
    date = f"202{chance.randrange(7)}-0{chance.randrange(1, 9)}-11" if dated else "today"
    parts = [
        f"## {' '.join(chance.choices(WORDS, k=2))}\n\n"
        + f"only{number} {talk(chance, chance.choice([9, 14]))}"
        + f" See [[{chance.randrange(30)}]].\n\n```python\n{chance.choice(NAMES)}({number})\n```\n"
        for _ in range(chance.randrange(1, 5))
    ]
    title = " ".join(chance.choices(WORDS, k=2))
    top = f"---\ntitle: {title}\ntags: [{tag}]\nstatus: {status}\n{f'date: {date}' if dated else ''}\n---\n\n"
    folder = chance.choice(["guide", "guide/deep", "notes"])
    return Page(f"{folder}/{number}.md", tag, status, date, top + "\n".join(parts))


PAGES = [page(random.Random(seed), seed) for seed in range(30)]


def made(folder: Path, pages: list[Page], engine: str = "") -> marklight.Library:
    """Return an indexed library; without an address, in the brute-force engine."""
    with pytest.MonkeyPatch.context() as patch:
        if not engine:
            patch.setattr("marklight.library.open_engine", lambda *_: MemoryEngine())
        lib = library(write(folder, {page.path: page.text for page in pages}), engine=engine)
        lib.index()
        return lib


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[marklight.Library]]:
    """The same documents in both engines, the one that is brute force first."""
    folder = tmp_path_factory.mktemp("always")
    libraries = [made(folder / "docs", PAGES, at) for at in ("", f"file:{folder / 'index'}")]
    yield libraries
    for lib in libraries:
        lib.close()


questions = st.lists(
    st.sampled_from([*WORDS, *NAMES, "C++", "what", "is", "-token", '"', "only3", "日本", "?"]),
    min_size=1,
    max_size=5,
).map(" ".join)
options = st.fixed_dictionaries(
    {"limit": st.integers(1, 100), "mode": st.sampled_from([mode.value for mode in Mode])},
    optional={
        "min_confidence": st.sampled_from([0.0, 0.3, 0.9]),
        "path": st.sampled_from(["guide/**", "notes/*.md", "nowhere/**"]),
        "tag": st.sampled_from(["red", "blue"]),
        "after": st.just("2023-01-01"),
        "parents": st.booleans(),
        "context": st.integers(0, 2),
        "settings": st.sampled_from(
            [
                {"search": {"use": ["diversity"]}},
                {"search": {"fuse": "reciprocal", "use": ["calibrate"]}},
                {"search": {"fuse": "score_aware", "skip": ["per_document"]}},
            ]
        ),
    },
)


@settings(max_examples=40, suppress_health_check=list(HealthCheck))
@given(question=questions, chosen=options)
@example(question="token refresh", chosen={"limit": 100, "mode": "hybrid", "min_confidence": 0.0})
def test_every_answer_satisfies_its_invariants(
    both: list[marklight.Library], question: str, chosen: dict[str, Any]
) -> None:
    for lib in both:
        answer = lib.search(question, refresh=False, **chosen)
        scores = [hit.score for hit in answer.hits]
        ids = [hit.chunk.id for hit in answer.hits]
        assert len(ids) <= chosen["limit"]
        assert all(0.0 <= score <= 1.0 for score in scores)
        assert scores == sorted(scores, reverse=True)
        assert len(set(ids)) == len(ids)
        assert bool(answer.abstained) == (not ids)
        again = lib.search(question, refresh=False, **chosen)
        assert (again.hits, again.stats) == (answer.hits, answer.stats)
        if "skip" not in chosen.get("settings", {}).get("search", {}) and len(ids) >= 5:
            assert len(set(paths(answer)[:5])) >= 3


@settings(max_examples=40, suppress_health_check=list(HealthCheck))
@given(question=questions, chosen=options)
@example(question="token refresh", chosen={"limit": 100, "mode": "hybrid", "min_confidence": 0.0})
def test_every_engine_agrees_with_brute_force(
    both: list[marklight.Library], question: str, chosen: dict[str, Any]
) -> None:
    oracle, found = (lib.search(question, refresh=False, **chosen).hits for lib in both)
    scores = [hit.score for hit in oracle]
    assert [hit.score for hit in found] == pytest.approx(scores, abs=1e-3)
    # Those that score alike may change places, and the last of them their place in the answer.
    for at in range(1, len(scores) - 1):
        if scores[at - 1] - scores[at] > 2e-3 and scores[at] - scores[at + 1] > 2e-3:
            assert found[at].chunk == oracle[at].chunk


def test_the_queries_of_these_tests_have_enough_results(both: list[marklight.Library]) -> None:
    for lib in both:
        assert len(lib.search("token refresh", limit=100, min_confidence=0.0).hits) > 30


@pytest.mark.parametrize("text", ["", " ", "\n\t"])
def test_an_empty_query_is_an_error(both: list[marklight.Library], text: str) -> None:
    for lib in both:
        with pytest.raises(UsageError, match="empty"):
            lib.search(text)


@pytest.mark.parametrize("limit", [0, -1, 101, 10**9])
def test_a_limit_outside_1_to_100_is_an_error(both: list[marklight.Library], limit: int) -> None:
    for lib in both:
        with pytest.raises(UsageError, match="1 to 100"):
            lib.search("token", limit=limit)


FILTERS: dict[str, tuple[Filters, Callable[[Page], bool]]] = {
    "path": (Filters(paths=("guide/**",)), lambda page: page.path.startswith("guide/")),
    "exclude": (Filters(exclude=("guide/deep",)), lambda page: "deep" not in page.path),
    "tag": (Filters(tags=("red",)), lambda page: page.tag == "red"),
    "where": (Filters(where=(("status", "draft"),)), lambda page: page.status == "draft"),
    "after": (Filters(after="2023-05"), lambda page: page.date >= "2023-05"),
    "before": (Filters(before="2022"), lambda page: page.date < "2023"),
}


@pytest.mark.parametrize("name", FILTERS)
def test_a_filtered_search_equals_a_search_of_a_library_of_these_documents(
    both: list[marklight.Library], tmp_path: Path, name: str
) -> None:
    filters, passes = FILTERS[name]
    kept = [page for page in PAGES if passes(page)]
    assert 0 < len(kept) < len(PAGES)
    with made(tmp_path / "docs", kept) as smaller:
        for question in ("token refresh", "getUserById kitchen", "only3 cluster"):
            for lib in both:
                compare(lib, smaller, Query(question, limit=100, filters=filters))


def compare(larger: marklight.Library, smaller: marklight.Library, query: Query) -> None:
    """The same candidates; by meaning with the same scores, which do not hang on other documents."""
    with larger.engine.snapshot() as all, smaller.engine.snapshot() as few:
        for name, stage in larger.pipeline.retrieve.items():
            found = stage(query, 100, Tools(all, larger.models.embedder))
            alone = stage(Query(query.text), 100, Tools(few, smaller.models.embedder))
            assert {one.chunk_id for one in found} == {one.chunk_id for one in alone}
            if name == "semantic":
                assert [one.score for one in found] == pytest.approx(
                    [one.score for one in alone], abs=1e-5
                )


def test_auth_finds_authentication(tmp_path: Path) -> None:
    folder = write(
        tmp_path / "docs",
        {
            "a.md": "# Signing in\n\nAuthentication of a user takes a name and a password.\n",
            "b.md": "# Rolling back\n\nUse the undo command to return to an earlier revision.\n",
            "c.md": "# Espresso\n\nGrind the beans finely and press them hard.\n",
        },
    )
    with marklight.open(folder, {}) as lib:
        assert paths(lib.search("auth"))[0] == "a.md"


def test_a_broad_query_has_results_from_several_documents(tmp_path: Path) -> None:
    chance = random.Random(3)
    files = {f"{at}.md": f"# Thing {at}\n\nDeployment {talk(chance, 10)}\n" for at in range(4)}
    files["long.md"] = "# Deployment\n\n" + "\n\n".join(
        f"## Deployment {at}\n\nDeployment of the deployment: {talk(chance, 30)}"
        for at in range(12)
    )
    with library(write(tmp_path / "docs", files)) as lib:
        for least in (0.0, None):
            found = paths(lib.search("deployment", min_confidence=least))
            assert len(set(found)) >= 3
        assert len(paths(lib.search("deployment", min_confidence=0.0))) == 5
