"""The OpenAPI description is complete and correct: schemathesis finds no deviation of the running server."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.routing import Route

from marklight.surfaces.http.openapi import Description
from marklight.surfaces.http.server import make_app
from tests.surfaces.http.serving import Served, serving

TOKEN = "correct-horse"
ELSEWHERE = ("/", "/page/{name}", "/api/events", "/api/around/{path}", "/api/names", "/mcp")
"""Routes without an OpenAPI description: those of the web page alone, and MCP."""


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving(tmp_path_factory.mktemp("openapi") / "docs") as each:
        yield each


def test_every_route_is_described_with_its_methods(tmp_path_factory: Any) -> None:
    apps: list[Starlette] = []

    def make(*given: Any) -> Starlette:
        apps.append(make_app(*given))
        return apps[0]

    with serving(tmp_path_factory.mktemp("all") / "docs", make=make) as served:
        response = served.get("/openapi.json").json()
    described = {(path, method) for path, each in response["paths"].items() for method in each}
    routed = {
        (each.path.replace(":path}", "}"), method.lower())
        for each in apps[0].routes
        if isinstance(each, Route) and each.path.replace(":path}", "}") not in ELSEWHERE
        for method in (each.methods or set()) - {"HEAD"}  # answered as GET
    }
    assert described == routed


def test_bearer_authentication_is_described_if_a_token_is_set() -> None:
    with_one = Description(["docs"], token=True).document()
    assert with_one["security"] == [{"token": []}]
    assert with_one["paths"]["/health"]["get"]["security"] == []
    assert "401" in with_one["paths"]["/api/status"]["get"]["responses"]
    without = Description(["docs"], token=False).document()
    assert "security" not in without
    assert "401" not in without["paths"]["/api/status"]["get"]["responses"]


def test_the_collections_of_the_library_are_described() -> None:
    schemas = Description(["docs", "notes"], token=False).document()["components"]["schemas"]
    several, one, nothing = schemas["SearchRequest"]["properties"]["collection"]["anyOf"]
    assert several["items"] == one == {"$ref": "#/components/schemas/Collection"}
    assert nothing == {"type": "null"}
    assert schemas["Collection"] == {"type": "string", "enum": ["docs", "notes"]}


PROGRAM = """
from client import Client
from client.api.default import matching_documents, read_a_document, search_by_body, status
from client.models import ModeName, SearchRequest, SortName

client = Client({url!r}, raise_on_unexpected_status=True)
request = SearchRequest("refresh token", limit=1, mode=ModeName.KEYWORD, tag=["security"])
found = search_by_body.sync(client=client, body=request)
print(found.results[0].path, found.results[0].lines, found.abstained)
print(matching_documents.sync(client=client, limit=1, page=2, sort=SortName.PATH).documents[0].path)
print(read_a_document.sync("auth.md", client=client, heading="refresh").lines)
print(status.sync(client=client).documents)
missing = search_by_body.sync(client=client, body=SearchRequest("refresh token", rerank=True))
print(missing.error.type_)
"""


def test_a_generated_python_client_searches_lists_and_reads(served: Served, tmp_path: Path) -> None:
    pytest.importorskip("openapi_python_client")
    url = f"http://{served.name}"
    description = tmp_path / "openapi.json"
    description.write_bytes(served.get("/openapi.json").body)
    (tmp_path / "no-hooks.yml").write_text("post_hooks: []\n")
    generator = "from openapi_python_client.cli import app; app()"
    options = ["--path", str(description), "--meta", "none", "--output-path", "client"]
    words = ["generate", *options, "--config", "no-hooks.yml", "--fail-on-warning"]
    for program in ([generator, *words], [PROGRAM.format(url=url)]):
        done = subprocess.run(
            [sys.executable, "-c", *program],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines() == [
        "auth.md [7, 11] None",
        "deploy/rollback.md",
        "[9, 11]",
        "4",
        "NotConfigured",
    ]


def run_schemathesis(served: Served, folder: Path, *options: str) -> str:
    """Run schemathesis against the server; return its output, which must report no failure."""
    url = f"http://{served.name}/openapi.json"
    program = "from schemathesis.cli import schemathesis; schemathesis()"
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            program,
            "run",
            url,
            "--seed",
            "7",
            "--no-color",
            "--warnings",
            "off",
            *options,
        ],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-10_000:] + done.stderr[-2000:]
    return done.stdout


def test_schemathesis_fuzzing_finds_no_issues(served: Served, tmp_path: Path) -> None:
    output = run_schemathesis(served, tmp_path, "--phases", "fuzzing", "--max-examples", "6")
    assert "No issues found" in output, output[-3000:]


@pytest.mark.slow
def test_schemathesis_boundary_values_find_no_issues(served: Served, tmp_path: Path) -> None:
    output = run_schemathesis(served, tmp_path, "--phases", "coverage", "--max-examples", "1")
    assert "No issues found" in output, output[-3000:]
