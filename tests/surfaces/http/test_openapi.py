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

from marklight.surfaces.http.app import make_app
from marklight.surfaces.http.openapi import Description
from tests.surfaces.http.serving import Served, serving

TOKEN = "correct-horse"
ELSEWHERE = ("/", "/page/{name}", "/mcp")
"""Routes without an OpenAPI description: the web page and MCP."""


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
        if isinstance(each, Route) and each.path not in ELSEWHERE
        for method in (each.methods or set()) - {"HEAD"}  # answered as GET
    }
    assert described == routed


def test_bearer_authentication_is_described_if_a_token_is_set() -> None:
    with_one = Description(["docs"], token=True, reranks=False).document()
    assert with_one["security"] == [{"token": []}]
    assert with_one["paths"]["/health"]["get"]["security"] == []
    assert "401" in with_one["paths"]["/api/status"]["get"]["responses"]
    without = Description(["docs"], token=False, reranks=False).document()
    assert "security" not in without
    assert "401" not in without["paths"]["/api/status"]["get"]["responses"]


def test_collections_and_cross_encoder_of_the_library_are_described() -> None:
    def property_of(name: str, **known: Any) -> Any:
        found = Description(["docs", "notes"], token=False, **known).document()
        body = found["paths"]["/api/search"]["post"]["requestBody"]
        return body["content"]["application/json"]["schema"]["properties"][name]

    several, one, nothing = property_of("collection", reranks=False)["anyOf"]
    assert several["items"] == one == {"type": "string", "enum": ["docs", "notes"]}
    assert nothing == {"type": "null"}
    assert property_of("rerank", reranks=False)["enum"] == [False, None]
    assert "enum" not in property_of("rerank", reranks=True)


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
