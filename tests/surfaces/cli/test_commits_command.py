"""Searching commits on the command line, over HTTP and over MCP."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client

from marklight.report import Report
from marklight.surfaces.host import result_schema
from marklight.surfaces.render import report_text
from marklight.text.tokens import fits
from tests.making import index_of, write
from tests.repository import Repository, needs_git
from tests.surfaces.command_line import run_cli
from tests.surfaces.http.serving import serving
from tests.surfaces.mcp.serving import connected, indexed, text_of

pytestmark = needs_git


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Repository:
    monkeypatch.setenv("MARKLIGHT_MODEL_NAME", "fake")
    monkeypatch.setenv("MARKLIGHT_DATA_DIR", str(tmp_path / "data"))
    made = Repository(tmp_path / "docs")
    made.commit("Start with an espresso page", {"espresso.md": "# Espresso\n\nGrind finely.\n"})
    made.commit(
        "Retry when the network times out\n\nThe upstream proxy drops idle connections.",
        {"src/client.py": "def fetch_with_backoff(url):\n    return url\n"},
        author="Grace Hopper <grace@navy.example>",
    )
    monkeypatch.chdir(made.folder)
    return made


def test_a_commit_shows_hash_date_author_subject_and_passage(
    repository: Repository, capsys: pytest.CaptureFixture[str]
) -> None:
    short = repository.git("rev-parse", "HEAD")[:7]
    code, out, err = run_cli(capsys, "commits", "network times out", "-n", "1")
    assert code == 0
    first, *rest = out.splitlines()
    head = f"[1] {short} 2026-01-02 Grace Hopper: Retry when the network times out (main) (0."
    assert first.startswith(head)
    assert rest == ["> The upstream proxy drops idle connections."]
    assert "Reading commits" in err


def test_a_passage_of_a_diff_is_shown_under_its_file(
    repository: Repository, capsys: pytest.CaptureFixture[str]
) -> None:
    _, out, _ = run_cli(capsys, "commits", "fetch_with_backoff", "--mode", "code", "-n", "1")
    assert out.splitlines()[1:] == [
        "files: src/client.py",
        *("> @@ -0,0 +1,2 @@", "> +def fetch_with_backoff(url):", "> +    return url"),
    ]
    _, out, _ = run_cli(capsys, "commits", "fetch_with_backoff", "--mode", "code", "--format", "md")
    assert out.startswith("### ")
    assert "\n\nfiles: src/client.py\n\n> ```diff\n> @@ -0,0 +1,2 @@\n" in out


def test_filters_json_and_json_lines(
    repository: Repository, capsys: pytest.CaptureFixture[str]
) -> None:
    filters = (
        "--files",
        "src/**",
        "--author",
        "grace",
        "--after",
        "2026-01-02",
        "--before",
        "2026",
    )
    code, out, _ = run_cli(capsys, "commits", "network", *filters, "--json")
    response = json.loads(out)
    assert code == 0
    assert response["query"]["filters"] == {
        "files": ["src/**"],
        "authors": ["grace"],
        "after": "2026-01-02",
        "before": "2026",
    }
    assert [each["subject"] for each in response["results"]] == ["Retry when the network times out"]
    assert set(response["results"][0]) == set(
        result_schema("commits")["properties"]["results"]["items"]["properties"]
    )
    _, out, _ = run_cli(capsys, "commits", "network", *filters, "--format", "jsonl")
    assert json.loads(out) == response["results"][0]


def test_no_match_and_no_repository_have_their_own_exit_codes(
    repository: Repository, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    code, out, err = run_cli(capsys, "commits", "zzzzqqqq", "--mode", "keyword")
    assert (code, out) == (1, "")
    assert "No commit matches the query" in err
    plain = write(tmp_path / "plain", {"a.md": "text"})
    code, out, err = run_cli(capsys, "commits", "x", str(plain))
    assert (code, out) == (1, "")
    assert err.startswith("marklight: There is no git repository around ")
    assert run_cli(capsys, "commits", "x", "-n", "0")[0] == 2


def test_an_explanation_contains_short_hashes(
    repository: Repository, capsys: pytest.CaptureFixture[str]
) -> None:
    _, out, _ = run_cli(capsys, "commits", "network times out", "--explain")
    short = repository.git("rev-parse", "HEAD")[:7]
    assert any(line.endswith(f"{short}:1-3") for line in out.splitlines())


def test_terminal_control_characters_are_escaped(
    repository: Repository, capsys: pytest.CaptureFixture[str]
) -> None:
    repository.commit(
        "Evil \x1b[2Jmessage\n\nbody \x1b]0;title\x07", {"ev\x1bil.txt": "zebra \x1b[31m\n"}
    )
    for more in ((), ("--format", "md"), ("--mode", "code")):
        _, out, err = run_cli(
            capsys, "commits", "zebra evil message", "--min-confidence", "0", *more
        )
        assert "\x1b" not in out + err
        assert "\x07" not in out + err


def test_documents_and_commits_are_listed_separately(
    repository: Repository, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, _ = run_cli(capsys, "search", "espresso", "--with-history")
    documents, _, commits = out.partition("\nCommits\n")
    assert code == 0
    assert documents.startswith("[1] espresso.md:")
    assert "Start with an espresso page" in commits
    _, out, _ = run_cli(capsys, "search", "espresso", "--with-history", "--json")
    response = json.loads(out)
    assert response["results"][0]["path"] == "espresso.md"
    assert response["commits"]["results"][0]["subject"] == "Start with an espresso page"


def test_index_and_status_report_commits_once_they_are_indexed(
    repository: Repository, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "commits" not in run_cli(capsys, "index")[1]
    assert "Commits" not in run_cli(capsys, "status")[1]
    assert "2 commits (2 added, 0 removed" in run_cli(capsys, "index", "--history")[1]
    assert re.search(r"Commits    2; \d+ passages, all embedded; ", run_cli(capsys, "status")[1])
    response = json.loads(run_cli(capsys, "index", "--json")[1])
    assert (response["history"]["documents"], response["history"]["added"]) == (2, [])
    assert "history" not in json.loads(run_cli(capsys, "index", "--no-history", "--json")[1])


def test_a_report_counts_documents_and_commits_separately(
    repository: Repository, capsys: pytest.CaptureFixture[str]
) -> None:
    run_cli(capsys, "index")
    _, out, err = run_cli(capsys, "index", "--history")
    changed, documents, commits = out.splitlines()
    assert changed == "no document changed"
    assert re.fullmatch(r"1 document, 1 passage, all embedded \(\d+\.\d s\) in /.*", documents)
    pattern = (
        r"2 commits \(2 added, 0 removed, (\d+) passages embedded\), \1 passages, all embedded"
    )
    assert re.fullmatch(pattern + r" \(\d+\.\d s\)", commits)
    assert "Embedding passages of commits …" in err.splitlines()
    assert "Embedding passages …" not in err.splitlines()
    found = json.loads(run_cli(capsys, "index", "--json")[1])
    assert 0 < found["history"]["took_ms"] < found["took_ms"]


def test_the_time_for_commits_is_not_counted_for_documents() -> None:
    both = Report(history=Report(took_ms=2000), took_ms=2500)
    assert [line[-7:] for line in report_text(both).splitlines()[1:]] == ["(0.5 s)", "(2.0 s)"]


def timeless(found: dict[str, Any]) -> dict[str, Any]:
    return {**found, "took_ms": 0, "steps": []}


def test_http_returns_the_json_of_the_command_line(
    repository: Repository, capsys: pytest.CaptureFixture[str]
) -> None:
    with serving(repository.folder) as served:
        request = {"query": "network times out", "files": ["src/**"], "limit": 2}
        response = served.post("/api/commits", request)
        assert response.status == 200
        _, out, _ = run_cli(
            capsys, "commits", "network times out", "--files", "src/**", "-n", "2", "--json"
        )
        assert timeless(response.json()) == timeless(json.loads(out))
        assert served.post("/api/commits", {"query": "x", "file": "a"}).status == 422
        assert served.get("/api/commits").status == 405
        repository.commit("Zebra crossing", {"zebra.md": "stripes\n"})
        new = served.post("/api/commits", {"query": "zebra crossing"}).json()
        assert new["results"][0]["subject"] == "Zebra crossing"


def test_http_reports_a_missing_repository(tmp_path: Path) -> None:
    with serving(tmp_path / "plain") as served:
        response = served.post("/api/commits", {"query": "x"})
        assert response.status == 404
        assert "no git repository" in response.json()["error"]["message"]


def test_mcp_searches_commits(repository: Repository, tmp_path: Path) -> None:
    short = repository.git("rev-parse", "HEAD")[:7]

    async def ask(client: Client) -> None:
        await indexed(client)
        given = {"query": "network times out", "file_pattern": "src/**", "author": "grace"}
        found = await client.call_tool("search_git_history", given)
        head, *rest = text_of(found).splitlines()
        assert head.startswith(
            f"[1] {short} 2026-01-02 Grace Hopper: Retry when the network times out (main) (0."
        )
        assert rest == ["files: src/client.py", "> The upstream proxy drops idle connections."]
        few = await client.call_tool("search_git_history", {"query": "network", "max_tokens": 30})
        assert fits(text_of(few), 30)
        none = await client.call_tool(
            "search_git_history", {"query": "network", "before": "2020", "top_n": 1}
        )
        assert text_of(none).startswith("No ")
        wrong = await client.call_tool("search_git_history", {"query": "x", "file": "a"})
        assert wrong.is_error
        assert "Did you mean 'files'?" in text_of(wrong)

    async def main() -> None:
        async with connected(repository.folder, tmp_path, "http", "auto") as client:
            await ask(client)

    anyio.run(main)


def test_mcp_reports_a_missing_repository(tmp_path: Path) -> None:
    folder = write(tmp_path / "plain", {"a.md": "# A\n\ntext\n"})

    async def main() -> None:
        async with connected(folder, tmp_path, "http", "auto") as client:
            found = await client.call_tool("search_git_history", {"query": "x"})
            assert found.is_error
            assert "There is no git repository" in text_of(found)

    anyio.run(main)


def test_the_command_line_rejects_a_folder_that_points_to_another_repository(
    repository: Repository,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    git = repository.folder / ".git"
    folder = write(tmp_path / "x", {".git": f"gitdir: {git}\n", "a.md": "# Espresso\n"})
    monkeypatch.chdir(folder)
    refused = (
        f"The repository at {folder} is not indexed: its git directory leads out of the folder, to {git}."
        f" If you trust it: git config --global --add safe.directory {folder}"
    )
    code, out, err = run_cli(capsys, "commits", "espresso")
    assert (code, out) == (3, "")
    assert refused in err
    for verb in (["index", "--history"], ["search", "espresso", "--with-history"]):
        _, out, err = run_cli(capsys, *verb)
        assert refused in " ".join((out + err).split())
        assert "Start with an espresso page" not in out + err


def test_mcp_returns_nothing_from_another_repository(
    repository: Repository, tmp_path: Path
) -> None:
    git = repository.folder / ".git"
    folder = write(tmp_path / "x", {".git": f"gitdir: {git}\n", "a.md": "# Espresso\n"})

    async def request() -> None:
        async with connected(folder, tmp_path, "http", "auto") as client:
            await indexed(client)
            found = await client.call_tool("search_git_history", {"query": "espresso"})
            assert "leads out of the folder" in text_of(found)
            assert "Start with" not in text_of(found)

    anyio.run(request)


def test_a_history_index_is_found_from_folders_below(
    repository: Repository, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run_cli(capsys, "commits", "espresso")[0] == 0
    below = repository.folder / "below"
    below.mkdir()
    monkeypatch.chdir(below)
    assert run_cli(capsys, "commits", "espresso")[0] == 0
    assert not index_of(below).exists()
