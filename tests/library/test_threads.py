"""Many threads on one library: each resource is opened once, answers are the same, nobody deadlocks."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import marklight
import marklight.library as library_package
from marklight import engines, models
from marklight.errors import MarklightError, UsageError
from marklight.ports import Engine
from tests.making import library, write

TOPICS = "orchard harbour furnace lantern meadow quarry saddle thicket violin walnut".split()
NUMBERS = "first second third fourth".split()
PAGES = {
    f"{topic}/{number}.md": f"---\ntags: [{topic}]\n---\n\n# {number} {topic}\n\n"
    + f"The {topic} has a {number} keeper. " * 3
    + f"\n\n## Rules\n\nNobody enters the {topic} before the {number} bell, says [[{topic}/first]].\n"
    for topic in TOPICS
    for number in NUMBERS
}
QUESTIONS: list[tuple[str, dict[str, Any]]] = [
    *((f"who keeps the {number} {topic}", {}) for topic in TOPICS for number in NUMBERS),
    *((f"{topic} bell", {"path": f"{topic}/*.md", "limit": 20}) for topic in TOPICS),
    *((f"{topic} keeper", {"exclude": "*/second.md", "mode": "keyword"}) for topic in TOPICS),
    *((f"enter the {topic}", {"tag": topic, "mode": "semantic"}) for topic in TOPICS),
]


@pytest.fixture
def pages(tmp_path: Path) -> Path:
    return write(tmp_path / "pages", PAGES)


def found(lib: marklight.Library, text: str, options: dict[str, Any]) -> list[tuple[str, float]]:
    answer = lib.search(text, min_confidence=0.0, refresh=False, **options)
    return [(hit.chunk.id, round(hit.score, 6)) for hit in answer.hits]


def test_eight_threads_find_the_same_as_one(pages: Path, engine: str) -> None:
    with library(pages, engine=engine) as alone:
        alone.index()
        expected = [found(alone, *question) for question in QUESTIONS]
        with library(pages, engine=engine) as fresh, ThreadPoolExecutor(8) as threads:
            answers = list(threads.map(lambda one: found(fresh, *one), QUESTIONS))
    assert answers == expected
    assert all(expected)


def test_threads_find_existing_documents_while_another_writes(pages: Path, engine: str) -> None:
    with library(pages, engine=engine) as lib:
        lib.index()
        done = threading.Event()

        def first(topic: str) -> set[str]:
            seen = set()
            while not done.is_set():
                answer = lib.search(f"first {topic}", path=f"{topic}/*.md", min_confidence=0.0)
                seen.add(answer.hits[0].chunk.path)
            return seen

        with ThreadPoolExecutor(8) as threads:
            asking = [threads.submit(first, topic) for topic in TOPICS[:8]]
            try:
                for turn in range(6):
                    write(pages, {"changing.md": f"# Changing\n\nTurn {turn} is zebra{turn}.\n"})
                    lib.index()
                    assert lib.search(f"zebra{turn}", mode="keyword").hits
            finally:
                done.set()
    assert [each.result() for each in asking] == [{f"{topic}/first.md"} for topic in TOPICS[:8]]


def test_concurrent_first_searches_open_each_resource_once(
    pages: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []
    for module, name in ((library_package, "open_engine"), (models, "load")):
        made = getattr(module, name)

        def open_slowly(*given: Any, made: Any = made, **more: Any) -> Any:
            opened.append(made.__module__)
            time.sleep(0.05)
            return made(*given, **more)

        monkeypatch.setattr(module, name, open_slowly)
    with library(pages, engine=f"file:{tmp_path / 'index'}") as lib:
        lib.index()
    opened.clear()
    with (
        library(pages, engine=f"file:{tmp_path / 'index'}") as lib,
        ThreadPoolExecutor(8) as threads,
    ):
        list(threads.map(lambda topic: found(lib, topic, {}), TOPICS))
    assert sorted(opened) == ["marklight.engines", "marklight.models"]


def test_an_earlier_model_is_loaded_once_by_many_threads(
    pages: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded: list[str] = []
    load = models.load

    def load_slowly(name: str, **more: Any) -> Any:
        loaded.append(name)
        time.sleep(0.05)
        return load(name, **more)

    monkeypatch.setattr(models, "load", load_slowly)
    with library(pages) as lib, ThreadPoolExecutor(8) as threads:
        made = list(threads.map(lib.models.embedder_named, ["fake"] * 8))
    assert loaded == ["fake"]
    assert len({*map(id, made)}) == 1


def test_a_closed_library_raises_an_error(pages: Path, engine: str) -> None:
    lib = library(pages, engine=engine)
    lib.index()
    lib.close()
    lib.close()
    for ask in (
        lambda: lib.search("orchard"),
        lambda: lib.search("orchard", refresh=False),
        lambda: lib.index(),
        lambda: lib.get("orchard/first.md"),
        lambda: lib.status(),
    ):
        with pytest.raises(UsageError, match="This library is closed"):
            ask()


def test_closing_while_the_index_is_being_opened_leaves_nothing_open(
    pages: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = f"file:{pages.parent / 'index'}"
    with library(pages, engine=address) as made:
        made.index()
    lib = library(pages, engine=address)
    opening, closed, opened = threading.Event(), threading.Event(), list[Engine]()

    def slowly(*arguments: Any) -> Engine:
        opening.set()
        opened.append(engines_open(*arguments))
        closed.wait(0.2)  # who closes meanwhile waits for this
        return opened[0]

    engines_open = engines.open
    monkeypatch.setattr("marklight.library.open_engine", slowly)
    with ThreadPoolExecutor(1) as threads:
        asking = threads.submit(lib.search, "orchard", refresh=False)
        assert opening.wait(60)
        lib.close()
        closed.set()
        with pytest.raises(MarklightError, match="closed"):
            asking.result()
    with pytest.raises(MarklightError, match="has been closed"), opened[0].snapshot():
        raise AssertionError("there is nothing to see")


def test_closing_during_searches_ends_them_with_an_error(pages: Path, engine: str) -> None:
    lib = library(pages, engine=engine)
    lib.index()
    begun = threading.Barrier(5)

    def ask(topic: str) -> str:
        begun.wait()
        try:
            for _ in range(500):
                assert found(lib, topic, {})
        except MarklightError as error:
            return str(error)
        return "not closed"

    with ThreadPoolExecutor(4) as threads:
        asking = [threads.submit(ask, topic) for topic in TOPICS[:4]]
        begun.wait()
        time.sleep(0.05)
        lib.close()
        assert all("closed" in each.result() for each in asking)
