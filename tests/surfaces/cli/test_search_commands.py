"""The commands search, get and outline."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.making import write
from tests.surfaces.command_line import run_cli, run_json

DAY = "Walked to the office along the river, wrote the report and cooked pasta for supper,"
DIARY = "# Diary\n\n" + "".join(
    f"## Day {day}\n\n{DAY} {run_cli}. {f'{run_cli} ' * 60}\n\n"
    for day, run_cli in enumerate(("one", "two", "three", "four"))
)


def test_search_prints_place_headings_score_and_passage(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = run_cli(capsys, "search", "when do tokens expire", "-n", "1")
    assert code == 0
    first, *rest = out.splitlines()
    assert first.startswith("[1] guide/auth.md:5-5 § Auth > Token refresh (0.")
    assert rest == ["> Tokens expire after an hour; refresh them with the refresh call."]
    assert "Reading text" in err


def test_dropped_results_are_noted_if_fewer_than_the_limit_are_shown(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(folder, {"diary.md": DIARY})
    arguments = ("search", "pasta supper", "--mode", "keyword", "--set")
    apart = "search.near_duplicates.overlap=1"
    code, out, err = run_cli(capsys, *arguments, apart)
    assert (code, out.count("\n[")) == (0, 1)
    expected = "note: Not shown: 2 more passages of this document. Use --set search.skip=per_document to see them."
    assert err.splitlines()[-1] == expected
    assert out.splitlines()[-1] == "2 more passages of this page match"
    code, out, err = run_cli(capsys, *arguments, apart, "--set", "search.skip=per_document")
    assert (out.count("\n["), "note:" in err) == (3, False)
    # No note if the limit is reached, nor in formats for programs.
    assert "note:" not in run_cli(capsys, *arguments, apart, "-n", "2")[2]
    assert "note:" not in run_cli(capsys, *arguments, apart, "--format", "files")[2]


def test_a_document_without_text_is_found_by_its_title(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pages = {"Boat trip.md": "", "sea.md": "---\ntags: [x]\n---\n# Sea voyage\n"}
    write(folder, pages)
    for name in ("boat trip", "sea voyage"):
        code, out, _ = run_cli(capsys, "search", name, "-n", "1")
        assert (code, out.splitlines()[1:]) == (0, ["(this document has no text)"])


def test_search_json_has_the_documented_keys(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    answer = run_json(capsys, "search", "roll back", "--json", "--explain")
    assert set(answer) == {
        "query", "results", "calibrated", "abstained", "doubt", "nearest", "advice",
        "stats", "steps", "index", "notices", "took_ms",
    }  # fmt: skip
    assert set(answer["query"]) == {"text", "kind", "expanded_with", "filters"}
    result = answer["results"][0]
    assert set(result) == {
        "rank", "score", "verdict", "chunk_id", "path", "collection", "ref", "title", "headings", "anchor", "lines",
        "kind", "content", "snippet", "highlight", "continues", "modified", "dated", "levels", "similar", "linked", "more", "boilerplate",
        "why",
    }  # fmt: skip
    assert result["path"] == "guide/deploy.md"
    assert result["modified"].endswith("Z")
    assert {"keyword", "semantic"} <= {why["stage"] for why in result["why"]}
    assert set(answer["stats"]) == {
        "original_count", "after_threshold", "after_same_text", "after_near_text",
        "after_same_meaning", "after_doc_limit", "clusters_merged",
    }  # fmt: skip
    assert set(answer["index"]) == {"documents", "chunks", "embedded", "pending", "generation"}
    assert answer["steps"]


def test_without_explain_why_and_steps_are_empty(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    answer = run_json(capsys, "search", "roll back", "--json")
    assert answer["steps"] == []
    assert answer["results"][0]["why"] == []


def test_formats_for_programs(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run_cli(capsys, "search", "roll back", "--format", "files")
    assert out.splitlines()[0] == "guide/deploy.md"
    _, out, _ = run_cli(capsys, "search", "roll back", "--format", "jsonl")
    assert json.loads(out.splitlines()[0])["rank"] == 1
    _, out, _ = run_cli(capsys, "search", "roll back", "--format", "md")
    assert out.startswith("### [guide/deploy.md:")


def test_every_mode_finds_results(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for mode in ("hybrid", "semantic", "keyword"):
        answer = run_json(capsys, "search", "grind the beans", "--mode", mode, "--json")
        assert answer["results"][0]["path"] == "espresso.md", mode
    answer = run_json(capsys, "search", "get_user_by_id", "--mode", "code", "--json")
    assert answer["results"][0]["path"] == "guide/deploy.md"


def test_no_result_is_exit_code_1_with_a_reason(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = run_cli(capsys, "search", "zzzzqqqq", "--mode", "keyword")
    assert (code, out) == (1, "")
    assert "No passage matches" in err
    code, out, _ = run_cli(capsys, "search", "zzzzqqqq", "--mode", "keyword", "--json")
    assert code == 1
    assert json.loads(out)["abstained"] == "No passage matches the query"
    assert json.loads(out)["advice"] is None


def test_the_advice_names_the_option_of_its_surface(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ("search", "espresso beans", "--set", "search.confidence.threshold=1")
    _, _, err = run_cli(capsys, *arguments, "--format", "files")
    assert "). Use --min-confidence 0 to see the closest passages.\n" in err
    _, out, _ = run_cli(capsys, *arguments, "--json")
    assert "closest" not in json.loads(out)["abstained"]
    assert json.loads(out)["advice"] == "Use min_confidence 0 to see the closest passages"


def test_where_none_is_likely_to_answer_the_closest_passages_are_shown_apart_from_results(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ("search", "espresso beans", "--set", "search.confidence.threshold=1")
    code, out, err = run_cli(capsys, *arguments)
    assert (code, out) == (1, "")
    lines = err.splitlines()
    at = next(number for number, line in enumerate(lines) if line.endswith("The closest passages:"))
    assert lines[at].startswith("note: No passage is likely to answer this (best 0.")
    assert lines[at + 1].startswith("[1] espresso.md:6-6 § Espresso (0.")
    assert lines[at + 2] == "> Grind the beans finely."
    code, out, _ = run_cli(capsys, *arguments, "--json")
    found = json.loads(out)
    assert (code, found["results"]) == (1, [])
    assert found["nearest"][0]["path"] == "espresso.md"
    _, out, err = run_cli(capsys, *arguments, "--color", "always")
    assert (out, "\x1b[1m[1] " in err) == ("", True)
    _, out, err = run_cli(capsys, *arguments, "--format", "md")
    assert (out, "### [espresso.md:6-6 § Espresso](espresso.md#espresso)" in err) == ("", True)


def test_get_and_outline(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run_cli(capsys, "index")
    extract = run_json(capsys, "get", "guide/auth.md#token-refresh", "--json")
    assert extract["content"].startswith("## Token refresh")
    assert extract["headings"] == ["Auth", "Token refresh"]
    code, out, _ = run_cli(capsys, "get", "guide/auth.md:5-5")
    assert code == 0
    assert "Tokens expire" in out
    found = run_json(capsys, "outline", "guide/auth.md", "--json")
    assert [row["anchor"] for row in found["outline"]] == ["auth", "token-refresh"]
    _, out, _ = run_cli(capsys, "outline", "guide/auth.md")
    assert out.splitlines()[1] == ":3-5    Token refresh  #token-refresh"


def test_a_path_relative_to_the_current_folder_works(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run_cli(capsys, "index")
    monkeypatch.chdir(folder / "guide")
    assert run_json(capsys, "get", "auth.md", "--json")["path"] == "guide/auth.md"
    assert run_json(capsys, "get", "auth.md#auth", "--json")["path"] == "guide/auth.md"
    assert run_json(capsys, "get", "auth.md:1-2", "--json")["lines"] == [1, 2]


def test_a_printed_path_is_accepted_by_other_commands(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder.parent)
    path = run_cli(capsys, "search", "beans", "docs", "--format", "files", "-n", "1")[1].strip()
    assert path == "docs/espresso.md"
    for named in (path, f"{path}#espresso", f"{path}:5", f"{path}:4-6", str(Path(path).resolve())):
        assert run_json(capsys, "get", named, "--json")["path"] == "espresso.md", named
    assert run_json(capsys, "outline", path, "--json")["outline"][0]["anchor"] == "espresso"
    assert run_json(capsys, "links", path, "--json")["path"] == "espresso.md"
    # From another library, the path is relative to that one.
    monkeypatch.chdir(write(folder.parent / "other", {"a.md": "# A\n"}))
    run_cli(capsys, "index")
    assert run_cli(capsys, "get", "../docs/espresso.md")[0] == 1
    assert run_cli(capsys, "get", "nothing/of/the/kind.md")[0] == 1


def test_a_place_includes_the_collection_if_there_are_several(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(folder, {"marklight.toml": "[collections]\nguide = 'guide'\nall = '.'\n"})
    _, out, _ = run_cli(capsys, "search", "when do tokens expire", "-n", "1")
    assert out.startswith("[1] guide/auth.md:5-5 § ")
    _, out, _ = run_cli(capsys, "get", "guide/auth.md:5", "--in", str(folder))
    assert "Tokens expire" in out
    _, out, _ = run_cli(capsys, "search", "grind the beans", "-n", "1")
    assert out.startswith("[1] all/espresso.md:")


def test_the_reason_for_abstaining_lists_the_filters(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    unlikely = ("--mode", "keyword", "--set", "search.confidence.threshold=1")
    code, _, err = run_cli(capsys, "search", "tag:kitchen beans", *unlikely)
    assert code == 1
    assert (
        "with these filters: tag:kitchen. The closest passages:\n[1] espresso.md:6-6 § Esp" in err
    )


def test_repeated_dates_must_all_match(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for day in ("2025", "2026"):
        write(folder, {f"{day}.md": f"---\ndate: {day}-06-01\n---\n# Quokka\n\nSeen in {day}.\n"})

    def found(*days: str) -> list[str]:
        _, out, _ = run_cli(
            capsys, "search", "quokka", "--mode", "keyword", "--format", "files", *days
        )
        return out.split()

    assert found("--after", "2026-01", "--after", "2025") == ["2026.md"]
    assert found("--before", "2025-12", "--before", "2026") == ["2025.md"]
    assert found("--after", "2026", "--before", "2025") == []


def test_two_values_of_one_key_are_both_required(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(folder, {"both.md": "---\nseen: [spring, autumn]\n---\nA quokka.\n"})
    arguments = ("search", "quokka", "--mode", "keyword", "--json")
    found = run_json(capsys, *arguments, "--where", "seen=spring", "--where", "seen=autumn")
    assert [each["path"] for each in found["results"]] == ["both.md"]
    assert found["query"]["filters"] == {"where": {"seen": ["spring", "autumn"]}}
    code, _, _ = run_cli(capsys, *arguments, "--where", "seen=winter", "--where", "seen=autumn")
    assert code == 1
