"""Every address of the API over a real socket, and that it says what the command line says."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from marklight import __version__
from marklight.surfaces.cli.app import run
from tests.surfaces.http.serving import Served, serving


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving(tmp_path_factory.mktemp("http") / "docs") as each:
        yield each


def timeless(found: dict[str, Any]) -> dict[str, Any]:
    return {**found, "took_ms": 0, "steps": [{**each, "ms": 0} for each in found.get("steps", [])]}


def test_health_tells_that_we_live_and_nothing_about_the_documents(served: Served) -> None:
    told = served.get("/health")
    assert told.status == 200
    assert told.json() == {"ok": True, "version": __version__, "indexing": None}


def test_a_question_in_a_body_and_in_an_address_has_one_answer(served: Served) -> None:
    posted = served.post(
        "/api/search",
        {"query": "token", "limit": 1, "where": {"status": "draft"}, "tag": ["security"]},
    )
    got = served.get("/api/search?q=token&limit=1&where=status=draft&tag=security")
    assert posted.status == got.status == 200
    assert posted.json()["results"][0]["path"] == "auth.md"
    assert posted.json()["query"]["filters"] == {
        "tags": ["security"],
        "where": {"status": "draft"},
    }
    assert timeless(posted.json()) == timeless(got.json())


@pytest.mark.parametrize(
    "given",
    [
        {"tag": "security", "where": "status=draft"},
        {"tag": ["security"], "where": ["status=draft"]},
        {"path": "auth.md", "exclude": "deploy/**", "collection": "default"},
    ],
)
def test_one_text_stands_where_several_may_and_pairs_are_written_as_flags_have_them(
    served: Served, given: dict[str, Any]
) -> None:
    told = served.post("/api/search", {"query": "token", **given})
    assert told.status == 200, told.json()
    assert {each["path"] for each in told.json()["results"]} == {"auth.md"}


def test_every_pair_of_an_address_counts(served: Served) -> None:
    told = served.get("/api/search?q=token&where=status=done&where=status=draft").json()
    assert told["results"] == []
    assert told["query"]["filters"] == {"where": {"status": ["done", "draft"]}}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"where": "status"}, "KEY=VALUE"),
        ({"where": ["status=draft", 5]}, "must be a string"),
        ({"where": ["a=b"] * 501}, "500"),
        ({"tag": [["security"]]}, "must be a string"),
        ({"settings": "search.fuse=reciprocal"}, "must be an object"),
    ],
)
def test_nothing_else_is_taken_for_a_list_or_a_table(
    served: Served, given: dict[str, Any], said: str
) -> None:
    told = served.post("/api/search", {"query": "token", **given})
    assert told.status == 422
    assert said in told.json()["error"]["message"]


@pytest.mark.parametrize(
    ("arguments", "target"),
    [
        (["search", "refresh token", "-n", "2"], "/api/search?q=refresh+token&limit=2"),
        (["search", "no such thing at all"], "/api/search?q=no%20such%20thing%20at%20all"),
        (["search", "token", "--mode", "keyword"], "/api/search?q=token&mode=keyword"),
        (["search", "load", "--path", "deploy/**"], "/api/search?q=load&path=deploy/**"),
        (["search", "load", "--explain"], "/api/search?q=load&explain=true"),
        (["get", "auth.md"], "/api/documents/auth.md"),
        (["get", "auth.md#refresh"], "/api/documents/auth.md?heading=refresh"),
        (["get", "deploy/scale.md:1-2"], "/api/documents/deploy/scale.md?lines=1-2"),
        (["get", "deploy/scale.md:1-2"], "/api/documents/deploy%2Fscale.md:1-2"),
        (
            ["get", "auth.md#refresh", "--level", "document"],
            "/api/documents/auth.md?heading=refresh&level=document",
        ),
        (["get", "auth.md:11-11"], "/api/documents/auth.md?heading=refresh&lines=11-40"),
        (["outline", "auth.md"], "/api/outline/auth.md"),
        (["related", "auth.md"], "/api/related/auth.md"),
        (["links", "deploy/scale.md"], "/api/links/deploy/scale.md"),
        (["links"], "/api/links"),
        (["status"], "/api/status"),
    ],
)
def test_the_command_line_and_http_say_the_same_to_the_byte(
    served: Served,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    target: str,
) -> None:
    monkeypatch.setenv("MARKLIGHT_MODEL_NAME", "fake")
    monkeypatch.chdir(served.host.library.place.folder)
    run([*arguments, "--json"])
    printed = capsys.readouterr().out
    told = served.get(target)
    assert told.status == 200
    assert told.headers["content-type"] == "application/json"
    ours, theirs = told.json(), json.loads(printed)
    if ours.pop("following", None):
        assert ours == theirs
    elif "took_ms" in ours:
        assert timeless(ours) == timeless(theirs)
    else:
        assert told.body.decode() == printed


def test_who_serves_tells_how_far_a_run_is_and_what_is_in_its_way(served: Served) -> None:
    following = served.get("/api/status").json()["following"]
    assert following == {"indexing": None, "watching": True, "problem": ""}
    served.host.following.problem = "the folder is away"
    assert served.get("/api/status").json()["following"]["problem"] == "the folder is away"
    served.host.following.problem = ""


def test_documents_and_tags_are_listed(served: Served) -> None:
    told = served.get("/api/documents?limit=2&like=deploy").json()
    assert [each["path"] for each in told["documents"]] == ["deploy/rollback.md", "deploy/scale.md"]
    assert served.get("/api/tags").json() == {"tags": {"security": 1}}


def test_a_picture_of_links_is_told(served: Served) -> None:
    told = served.get("/api/graph?path=deploy/scale.md&depth=2&limit=2").json()
    assert told["nodes"][0]["path"] == "deploy/scale.md"
    assert len(told["nodes"]) == 2
    assert told["more"] == {"nodes": 1}
    assert len(served.get("/api/graph").json()["nodes"]) == 3


def test_a_passage_is_got_by_its_id(served: Served) -> None:
    first = served.get("/api/search?q=espresso").json()["results"][0]
    told = served.get(f"/api/documents/{first['chunk_id']}").json()
    assert told["path"] == "notes.txt"
    assert told["chunk_id"] == first["chunk_id"]


@pytest.mark.parametrize(
    ("target", "status", "said"),
    [
        ("/api/search", 422, "Missing parameter: 'q'"),
        ("/api/search?q=", 422, "empty"),
        ("/api/search?q=a&limit=ten", 422, "'limit' must be an integer"),
        ("/api/search?q=a&limit=101", 422, "between 1 and 100"),
        ("/api/search?q=a&limit=3&limit=4", 422, "given twice"),
        ("/api/search?q=a&tags=b", 422, "Did you mean 'tag'?"),
        ("/api/search?q=a&explain=perhaps", 422, "true or false"),
        ("/api/search?q=a&where=status", 422, "KEY=VALUE"),
        ("/api/search?q=a&collection=nowhere", 422, "No such collection"),
        ("/api/search?q=%ff", 400, "UTF-8"),
        ("/api/documents/auth.md?lines=x", 422, "10-40"),
        ("/api/documents/auth.md?lines=1-2&heading=refresh", 404, "no lines"),
        ("/api/documents/auth.md?lines=4-2", 404, "no lines"),
        ("/api/search?q=a&rerank=true", 422, "models pull"),
        ("/api/documents/auth.md?heading=nothing", 404, "no heading"),
        ("/api/documents/nothing.md", 404, "no document is called"),
        ("/api/documents/", 404, "nothing at this address"),
        ("/api/commits", 405, "does not take that method"),
        ("/nowhere", 404, "nothing at this address"),
        ("/health/", 404, "nothing at this address"),
        ("/health?secrets=all", 422, "No such parameter"),
    ],
)
def test_what_is_wrong_is_told_in_json_with_its_status(
    served: Served, target: str, status: int, said: str
) -> None:
    told = served.get(target)
    assert told.status == status
    error = told.json()["error"]
    assert set(error) == {"type", "message", "hint"}
    assert said in f"{error['message']} {error['hint']}"


@pytest.mark.parametrize("method", ["HEAD", "OPTIONS", "TRACE", "PUT", "DELETE", "PATCH", "BREW"])
def test_a_method_that_an_address_does_not_take_is_told_which_it_does(
    served: Served, method: str
) -> None:
    told = served.ask(method, "/api/search")
    assert told.status == 405
    assert set(told.headers["allow"].split(", ")) == {"GET", "POST"}
    if method != "HEAD":
        assert told.json()["error"]["type"] == "MethodNotAllowed"


def test_every_response_has_the_headers_that_keep_others_out(served: Served) -> None:
    for target in ("/health", "/api/status", "/nowhere", "/api/search"):
        headers = served.get(target).headers
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"
        assert headers["cross-origin-resource-policy"] == "same-origin"
        assert headers["x-frame-options"] == "DENY"
        assert headers["content-security-policy"].startswith("default-src 'none'")
        assert headers["cache-control"] == "no-store"
        assert "server" not in headers
        assert not any(name.startswith("access-control") for name in headers)


def test_a_fault_of_ours_is_told_without_our_insides(tmp_path: Path) -> None:
    with serving(tmp_path / "docs") as served:
        served.host.library.status = lambda: 1 / 0  # type: ignore[method-assign,assignment,return-value]
        told = served.get("/api/status")
        assert told.status == 500
        assert "Traceback" not in told.body.decode()
        assert "zero" not in told.body.decode()
        assert served.get("/health").status == 200
