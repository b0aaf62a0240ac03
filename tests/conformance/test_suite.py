"""The MCP conformance suite, the MCP Inspector and a generated TypeScript client against our server.

They need Node and npm packages, so they run on request only: `scripts/bench conformance`.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from marklight.formatting import quoted
from marklight.text.tokens import count_tokens
from tests.making import write
from tests.surfaces.http.serving import serving
from tests.surfaces.mcp.serving import PAGES, PROGRAM, http

from .fixtures import make_fixture_server
from .node import CONFORMANCE, INSPECTOR, OPENAPI, TOKENIZER, installed, node, program, run

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not os.environ.get("RUN_CONFORMANCE"),
        reason="downloads npm packages; `scripts/bench conformance` runs it",
    ),
]

OWN = {
    "server-initialize",
    "logging-set-level",
    "ping",
    "completion-complete",
    "tools-list",
    "server-sse-multiple-streams",
    "resources-list",
    "prompts-list",
    "dns-rebinding-protection",
}
"""Scenarios that need no tools or resources made for the suite."""
PENDING = ("json-schema-2020-12",)
"""Scenarios that the suite marks as unfinished and that apply to us."""
CALLS: dict[str, dict[str, Any]] = {
    "query_documents": {"query": "how long does a refresh token live"},
    "list_documents": {"query": "refresh token"},
    "search_with_hypothesis": {"hypothesis": "A refresh token lives for some days."},
    "search_git_history": {"query": "why were the pages written"},
    "get_document": {"ref": "guide/auth.md"},
    "outline": {"path": "guide/auth.md"},
    "related_documents": {"path": "guide/auth.md"},
    "index_status": {},
}


def summary(output: str) -> dict[str, tuple[int, int]]:
    """Return the numbers of passed and failed checks by scenario."""
    found = re.findall(r"^[✓✗] ([\w-]+): (\d+) passed, (\d+) failed", output, re.MULTILINE)
    return {name: (int(passed), int(failed)) for name, passed, failed in found}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MARKLIGHT_MODEL_NAME", "fake")
    monkeypatch.setenv("MARKLIGHT_DATA_DIR", str(tmp_path / "data"))
    folder = write(tmp_path / "docs", PAGES)
    author = ["-c", "user.name=Ada", "-c", "user.email=ada@example.org"]
    for words in (["init", "-q"], ["add", "."], [*author, "commit", "-qm", "Write the pages"]):
        subprocess.run(["git", "-C", str(folder), *words], check=True)
    return folder


def test_every_scenario_without_fixtures_passes_on_our_own_server(folder: Path) -> None:
    suite = program(CONFORMANCE, "conformance")
    with http(folder) as address:
        found = summary(run([*suite, "server", "--url", address]).stdout)
    print("\n".join(f"{name}: {found[name][0]} passed" for name in sorted(OWN)))
    assert set(found) >= OWN
    assert {name: found[name] for name in OWN if found[name][1] or not found[name][0]} == {}


def test_every_scenario_passes_with_the_fixtures(folder: Path) -> None:
    suite = program(CONFORMANCE, "conformance")
    with http(folder, make_fixture_server) as address:
        done = run([*suite, "server", "--url", address])
        found = summary(done.stdout)
        for scenario in PENDING:
            more = run([*suite, "server", "--url", address, "--scenario", scenario])
            assert more.returncode == 0, more.stdout
    print("\n".join(f"{name}: {passed} passed" for name, (passed, _) in found.items()))
    assert len(found) >= 30
    assert {name: checks for name, checks in found.items() if checks[1]} == {}, done.stdout


@pytest.mark.parametrize("transport", ["stdio", "http"])
def test_the_inspector_lists_and_calls_every_tool(folder: Path, transport: str) -> None:
    inspector = [*program(INSPECTOR, "mcp-inspector"), "--cli"]

    def call(target: list[str], *more: str) -> Any:
        done = run([*inspector, *target, "--method", *more])
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def check(target: list[str]) -> None:
        listed = call(target, "tools/list")["tools"]
        assert [tool["name"] for tool in listed] == list(CALLS)
        for tool, given in CALLS.items():
            arguments = [f"{name}={value}" for name, value in given.items()]
            more = [word for argument in arguments for word in ("--tool-arg", argument)]
            answer = call(target, "tools/call", "--tool-name", tool, *more)
            assert not answer.get("isError"), answer
            assert answer["content"][0]["text"]

    if transport == "stdio":
        starting = folder.parent / "serve.py"
        starting.write_text(f"import sys\nsys.argv[1:] = ['mcp', {str(folder)!r}]\n{PROGRAM}\n")
        check([sys.executable, str(starting)])
    else:
        with http(folder) as address:
            check([address, "--transport", "http"])


CLIENT = """
import createClient from "openapi-fetch";
import type { components, paths } from "./api";

declare const process: { argv: string[] };

const client = createClient<paths>({ baseUrl: process.argv[2]! });
const body: components["schemas"]["SearchRequest"] = { query: "refresh token", mode: "keyword", limit: 1 };
const { data, error } = await client.POST("/api/search", { body });
if (error) throw new Error(error.error.message);
const path: string = data.results[0]!.path;
const listed = await client.GET("/api/list", { params: { query: { limit: 1, sort: "path" } } });
const missing = await client.GET("/api/documents/{path}", { params: { path: { path: "gone.md" } } });
console.log(path, listed.data?.pages, missing.error?.error.type);
"""


def test_a_generated_typescript_client_searches_and_lists(tmp_path: Path) -> None:
    generator = program(OPENAPI, "openapi-typescript")
    compiler = program(OPENAPI, "tsc")
    (tmp_path / "node_modules").symlink_to(Path(compiler[1]).parents[1])
    (tmp_path / "package.json").write_text('{"type": "module"}')
    (tmp_path / "client.ts").write_text(CLIENT)
    options = ["--strict", "--target", "es2022", "--module", "esnext", "--skipLibCheck"]
    options += ["--lib", "es2022,dom", "--moduleResolution", "bundler"]
    with serving(tmp_path / "docs") as served:
        url = f"http://{served.name}"
        for words in (
            [*generator, f"{url}/openapi.json", "-o", str(tmp_path / "api.d.ts")],
            [*compiler, *options, str(tmp_path / "client.ts")],
            [compiler[0], str(tmp_path / "client.js"), url],
        ):
            done = run(words)
            assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.split() == ["auth.md", "4", "NotFound"]


def test_the_token_estimate_is_within_five_percent_of_a_tokenizer(tmp_path: Path) -> None:
    folder = installed(TOKENIZER)
    docs = Path(__file__).parents[2] / "docs"
    text = "\n\n".join(quoted(page.read_text()) for page in sorted(docs.glob("*.md")))
    (tmp_path / "text").write_text(text)
    (tmp_path / "count.cjs").write_text(
        f"const tokenizer = require({str(folder / 'node_modules/@anthropic-ai/tokenizer')!r});\n"
        f"console.log(tokenizer.countTokens(require('fs').readFileSync('{tmp_path}/text', 'utf8')));\n"
    )
    done = run([str(node()), str(tmp_path / "count.cjs")])
    print(f"{count_tokens(text):,} tokens estimated, {int(done.stdout):,} counted")
    assert count_tokens(text) == pytest.approx(int(done.stdout), rel=0.05)
