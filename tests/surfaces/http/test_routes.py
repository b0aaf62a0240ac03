"""Every route of the API over a real socket; the JSON equals that of the command line."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from marklight import __version__
from marklight.surfaces.cli import run
from marklight.surfaces.render import json_body, to_json
from tests.surfaces.http.serving import Served, serving


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving(tmp_path_factory.mktemp("http") / "docs") as each:
        yield each


def timeless(found: dict[str, Any]) -> dict[str, Any]:
    return {**found, "took_ms": 0, "steps": [{**each, "ms": 0} for each in found.get("steps", [])]}


def test_health_returns_the_version_and_nothing_about_documents(served: Served) -> None:
    response = served.get("/health")
    assert response.status == 200
    assert response.json() == {"ok": True, "version": __version__, "indexing": None}


def test_get_and_post_return_the_same_answer(served: Served) -> None:
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
def test_a_single_string_is_accepted_for_a_list_and_key_value_strings_for_an_object(
    served: Served, given: dict[str, Any]
) -> None:
    response = served.post("/api/search", {"query": "token", **given})
    assert response.status == 200, response.json()
    assert {each["path"] for each in response.json()["results"]} == {"auth.md"}


def test_repeated_where_parameters_are_combined(served: Served) -> None:
    response = served.get("/api/search?q=token&where=status=done&where=status=draft").json()
    assert response["results"] == []
    assert response["query"]["filters"] == {"where": {"status": ["done", "draft"]}}


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"where": "status"}, "KEY=VALUE"),
        ({"where": ["status=draft", 5]}, "must be a string"),
        ({"where": ["a=b"] * 501}, "500"),
        ({"tag": [["security"]]}, "must be a string"),
        ({"settings": "search.fuse=reciprocal"}, "must be an object"),
    ],
)
def test_other_types_are_rejected_for_lists_and_objects(
    served: Served, given: dict[str, Any], text: str
) -> None:
    response = served.post("/api/search", {"query": "token", **given})
    assert response.status == 422
    assert text in response.json()["error"]["message"]


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
def test_the_command_line_and_http_return_the_same_bytes(
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
    response = served.get(target)
    assert response.status == 200
    assert response.headers["content-type"] == "application/json"
    ours, theirs = response.json(), json.loads(printed)
    if ours.pop("following", None):
        assert ours == theirs
    elif "took_ms" in ours:
        assert timeless(ours) == timeless(theirs)
    else:
        assert response.body.decode() == printed


def test_status_reports_indexing_progress_and_problems(served: Served) -> None:
    following = served.get("/api/status").json()["following"]
    assert following == {"indexing": None, "watching": True, "problem": ""}
    served.host.watcher.problem = "the folder is away"
    assert served.get("/api/status").json()["following"]["problem"] == "the folder is away"
    served.host.watcher.problem = ""


def test_tags_are_listed(served: Served) -> None:
    assert served.get("/api/tags").json() == {"tags": {"security": 1}}


def test_the_link_graph_is_returned(served: Served) -> None:
    response = served.get("/api/graph?path=deploy/scale.md&depth=2&limit=2").json()
    assert response["nodes"][0]["path"] == "deploy/scale.md"
    assert len(response["nodes"]) == 2
    assert response["more"] == {"nodes": 1}
    assert len(served.get("/api/graph").json()["nodes"]) == 3


def test_a_passage_is_read_by_its_id(served: Served) -> None:
    first = served.get("/api/search?q=espresso").json()["results"][0]
    response = served.get(f"/api/documents/{first['chunk_id']}").json()
    assert response["path"] == "notes.txt"
    assert response["chunk_id"] == first["chunk_id"]


@pytest.mark.parametrize(
    ("target", "status", "text"),
    [
        ("/api/search", 422, "Missing parameter: 'q'"),
        ("/api/search?q=", 422, "empty"),
        ("/api/search?q=a&limit=ten", 422, "'limit' must be an integer"),
        ("/api/search?q=a&limit=101", 422, "1 to 100"),
        ("/api/search?q=a&limit=3&limit=4", 422, "given twice"),
        ("/api/search?q=a&tags=b", 422, "Did you mean 'tag'?"),
        ("/api/search?q=a&explain=perhaps", 422, "true or false"),
        ("/api/search?q=a&where=status", 422, "KEY=VALUE"),
        ("/api/search?q=a&collection=nowhere", 422, "No such collection"),
        ("/api/search?q=%ff", 400, "UTF-8"),
        ("/api/documents/auth.md?lines=x", 422, "10-40"),
        ("/api/documents/auth.md?lines=1-2&heading=refresh", 404, "No such lines"),
        ("/api/documents/auth.md?lines=4-2", 404, "No such lines"),
        ("/api/search?q=a&rerank=true", 404, "models pull"),
        ("/api/documents/auth.md?heading=nothing", 404, "no heading"),
        ("/api/documents/nothing.md", 404, "No document is called"),
        ("/api/documents/", 404, "No such URL"),
        ("/api/commits", 405, "Method not allowed"),
        ("/nowhere", 404, "No such URL"),
        ("/health/", 404, "No such URL"),
        ("/health?secrets=all", 422, "No such parameter"),
    ],
)
def test_errors_are_json_with_a_matching_status(
    served: Served, target: str, status: int, text: str
) -> None:
    response = served.get(target)
    assert response.status == status
    error = response.json()["error"]
    assert set(error) == {"type", "message", "hint"}
    assert text in f"{error['message']} {error['hint']}"


@pytest.mark.parametrize("method", ["OPTIONS", "TRACE", "PUT", "DELETE", "PATCH", "BREW"])
def test_an_unsupported_method_gets_405_with_the_allowed_methods(
    served: Served, method: str
) -> None:
    response = served.request(method, "/api/search")
    assert response.status == 405
    assert set(response.headers["allow"].split(", ")) == {"GET", "HEAD", "POST"}
    assert response.json()["error"]["type"] == "MethodNotAllowed"


@pytest.mark.parametrize(
    "target",
    [
        *("/", "/health", "/openapi.json", "/api/search?q=token", "/api/search/stream?q=token"),
        *("/api/documents/auth.md", "/api/documents/nothing.md", "/api/status", "/api/search?q="),
    ],
)
def test_head_is_answered_as_get_without_a_body(served: Served, target: str) -> None:
    got, head = served.get(target), served.request("HEAD", target)
    assert head.status == got.status
    assert not head.body
    varying = ("date", "content-length") if "/api/s" in target else ("date",)
    assert {name: value for name, value in head.headers.items() if name not in varying} == {
        name: value for name, value in got.headers.items() if name not in varying
    }
    if "content-length" in got.headers:
        assert int(head.headers["content-length"]) > 0


def test_every_response_has_the_security_headers(served: Served) -> None:
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


def test_an_unexpected_error_reveals_no_details(tmp_path: Path) -> None:
    with serving(tmp_path / "docs") as served:
        served.host.library.execute = lambda *_: 1 / 0  # type: ignore[method-assign]
        response = served.get("/api/status")
        assert response.status == 500
        assert "Traceback" not in response.body.decode()
        assert "zero" not in response.body.decode()
        assert served.get("/health").status == 200


def test_matching_documents_are_listed_with_their_number(served: Served) -> None:
    posted = served.post("/api/list", {"query": "token", "limit": 1, "sort": "path"})
    got = served.get("/api/list?q=token&limit=1&sort=path")
    assert posted.status == got.status == 200, posted.json()
    assert timeless(posted.json()) == timeless(got.json())
    assert (len(got.json()["documents"]), got.json()["page"]) == (1, 1)
    assert got.json()["total"] == got.json()["pages"] >= 1
    everything = served.get("/api/list").json()
    assert everything["total"] == served.get("/api/status").json()["documents"]
    assert served.get("/api/list?sort=size").status == 422


def test_a_response_has_the_bytes_that_the_command_line_prints_for_any_text() -> None:
    value = {
        "empty": [{}, [], ""],
        "text": 'a "quote"\n\\ \x1b[31m \u202e \ud800 é 日本 \u2028 { [ : ,',
        "numbers": [1, -2.5, 1e-7, 1e22, True, None],
    }
    assert json_body(value) == f"{to_json(value)}\n".encode("utf-8", "replace")
