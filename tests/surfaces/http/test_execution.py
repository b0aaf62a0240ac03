"""Streamed searches: order of the steps, errors, and cancellation when the client disconnects."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from marklight.errors import Stopped
from marklight.ports import Tools
from marklight.query import Query
from tests.making import write
from tests.models import pairs
from tests.surfaces.http.serving import PAGES, Served, serving
from tests.waiting import until

Events = list[tuple[str, dict[str, Any]]]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving(tmp_path_factory.mktemp("stream") / "docs") as each:
        yield each


def events_of(served: Served, target: str) -> Events:
    response = served.get(f"/api/search/stream?{target}")
    assert response.status == 200
    assert response.headers["content-type"].startswith("text/event-stream")
    events: Events = []
    first, *parts, _ = response.body.decode().split("\n\n")
    assert first == "id: 1"
    for part in parts:
        name, data = part.split("\n")
        events.append((name.removeprefix("event: "), json.loads(data.removeprefix("data: "))))
    return events


def steps(events: Events) -> list[str]:
    return [each["step"] for name, each in events if name == "results"]


def test_keyword_results_come_first_then_fused_ones_then_done(served: Served) -> None:
    events = events_of(served, "q=refresh+token&limit=2")
    assert [name for name, _ in events] == ["results", "results", "done"]
    assert steps(events) == events[-1][1]["steps"] == ["keyword", "fused"]


def test_the_last_results_are_those_of_a_plain_search(served: Served) -> None:
    query = "q=refresh+token&limit=2&tag=security&explain=true&min_confidence=0"
    last = events_of(served, query)[-2][1]
    plain = served.get(f"/api/search?{query}").json()
    assert last["results"] == plain["results"]
    assert {"step", *plain} == set(last)


@pytest.mark.parametrize(
    ("mode", "expected"),
    [("keyword", ["keyword"]), ("semantic", ["fused"]), ("code", ["fused"])],
)
def test_a_mode_has_only_its_own_steps(served: Served, mode: str, expected: list[str]) -> None:
    assert steps(events_of(served, f"q=token&mode={mode}")) == expected


def test_reranked_results_come_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MARKLIGHT_CACHE_DIR", str(tmp_path / "cache"))
    model = pairs.write_folder(tmp_path / "pairs")
    with serving(tmp_path / "docs", reranker={"name": str(model)}) as served:
        assert steps(events_of(served, "q=when+do+tokens+expire")) == [
            "keyword",
            "fused",
            "reranked",
        ]
        assert steps(events_of(served, "q=when+do+tokens+expire&mode=keyword")) == [
            "keyword",
            "reranked",
        ]
        assert steps(events_of(served, "q=when+do+tokens+expire&rerank=false")) == [
            "keyword",
            "fused",
        ]
        assert steps(events_of(served, "q=token")) == ["keyword", "fused"], (
            "a single word is not reranked"
        )


def test_an_error_in_a_later_step_is_sent_as_an_event(tmp_path: Path) -> None:
    gone = str(tmp_path / "no-model")
    with serving(tmp_path / "docs", reranker={"name": gone}) as served:
        events = events_of(served, "q=when+do+tokens+expire")
    assert [name for name, _ in events] == ["results", "results", "error", "done"]
    assert events[2][1]["error"]["type"] == "ModelError"
    assert events[3][1]["steps"] == ["keyword", "fused"]


@pytest.mark.parametrize(
    "query",
    ["", "q=", "q=a&limit=no", "q=a&after=someday"],
)
def test_invalid_arguments_get_an_error_status_instead_of_a_stream(
    served: Served, query: str
) -> None:
    response = served.get(f"/api/search/stream?{query}")
    assert response.status == 422
    assert response.json()["error"]["type"] == "UsageError"


def test_a_missing_cross_encoder_gets_404_instead_of_a_stream(served: Served) -> None:
    response = served.get("/api/search/stream?q=when+do+tokens+expire&rerank=true")
    assert (response.status, response.json()["error"]["type"]) == (404, "NotConfigured")


def test_a_client_that_reconnects_gets_204_and_nothing_is_searched(served: Served) -> None:
    response = served.get("/api/search/stream?q=token", **{"Last-Event-ID": "1"})
    assert (response.status, response.body) == (204, b"")


def test_line_breaks_in_a_text_do_not_split_an_event(tmp_path: Path) -> None:
    folder = write(tmp_path / "docs", {"a.md": "# A\n\npapaya\u2028one\rtwo\n\nevent: done\n"})
    with serving(folder) as served:
        events = events_of(served, "q=papaya&min_confidence=0")
        assert [name for name, _ in events] == ["results", "results", "done"]
        assert "event: done" in events[0][1]["results"][0]["content"]


class Slow:
    """A stage that blocks until it is released, and records whether it was cancelled."""

    def __init__(self) -> None:
        self.entered, self.release, self.stopped = Event(), Event(), Event()

    def __call__(self, query: Query, tools: Tools) -> Query:
        self.entered.set()
        assert self.release.wait(60)
        try:
            tools.check_cancelled()
        except Stopped:
            self.stopped.set()
            raise
        return query


@pytest.mark.parametrize("target", ["/api/search/stream?q=token", "/api/search?q=token"])
def test_a_disconnected_client_cancels_the_search(tmp_path: Path, target: str) -> None:
    with serving(write(tmp_path / "docs", PAGES)) as served:
        slow, lib = Slow(), served.host.library
        lib.pipeline = replace(lib.pipeline, rewrite={"slow": slow, **lib.pipeline.rewrite})
        before = served.host.last_used
        with served.raw() as made:
            made.sendall(f"GET {target} HTTP/1.1\r\nHost: {served.name}\r\n\r\n".encode())
            assert slow.entered.wait(60)
            before = served.host.last_used
        # The client is gone: the host records the time when it releases the slot.
        until(lambda: served.host.last_used > before)
        slow.release.set()
        assert slow.stopped.wait(60)
        assert served.get("/health").status == 200
