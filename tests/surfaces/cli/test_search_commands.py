"""Search, get and outline on the command line, as a person and as a script meet them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.making import write
from tests.surfaces.saying import said, told

DAY = "Walked to the office along the river, wrote the report and cooked pasta for supper,"
DIARY = "# Diary\n\n" + "".join(
    f"## Day {day}\n\n{DAY} {said}. {f'{said} ' * 60}\n\n"
    for day, said in enumerate(("one", "two", "three", "four"))
)


def test_search_prints_place_trail_score_and_passage(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = said(capsys, "search", "when do tokens expire", "-n", "1")
    assert code == 0
    first, *rest = out.splitlines()
    assert first.startswith("[1] guide/auth.md:5-5 § Auth > Token refresh (0.")
    assert rest == ["> Tokens expire after an hour; refresh them with the refresh call."]
    assert "Reading text" in err


def test_what_is_left_out_is_told_where_fewer_are_shown_than_asked_for(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(folder, {"diary.md": DIARY})
    asked = ("search", "pasta supper", "--mode", "keyword", "--set")
    apart, alike = "search.near_duplicates.overlap=1", "search.near_duplicates.overlap=0.2"
    code, out, err = said(capsys, *asked, apart)
    assert (code, out.count("\n[")) == (0, 1)
    told = "note: Not shown: 2 more passages of this document. Use --set search.skip=per_document to see them."
    assert err.splitlines()[-1] == told
    assert said(capsys, *asked, alike)[2].splitlines()[-1] == (
        "note: Not shown: 3 near duplicates. Use --set search.skip=near_duplicates to see them."
    )
    code, out, err = said(capsys, *asked, apart, "--set", "search.skip=per_document")
    assert (out.count("\n["), "note:" in err) == (3, False)
    # Who asked for no more has all that was asked for, and other formats are for programs.
    assert "note:" not in said(capsys, *asked, apart, "-n", "2")[2]
    assert "note:" not in said(capsys, *asked, apart, "--format", "files")[2]


def test_a_document_without_text_is_found_by_its_name_and_says_that_there_is_no_more(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pages = {"Boat trip.md": "", "sea.md": "---\ntags: [x]\n---\n# Sea voyage\n"}
    write(folder, pages)
    for name in ("boat trip", "sea voyage"):
        code, out, _ = said(capsys, "search", name, "-n", "1")
        assert (code, out.splitlines()[1:]) == (0, ["(title only)"])


def test_search_as_json_has_the_contracts_keys(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    answer = told(capsys, "search", "roll back", "--json", "--explain")
    assert set(answer) == {
        "query", "results", "abstained", "advice", "stats", "steps", "index", "notices", "took_ms",
    }  # fmt: skip
    assert set(answer["query"]) == {"text", "kind", "expanded_with", "filters"}
    result = answer["results"][0]
    assert set(result) == {
        "rank", "score", "chunk_id", "path", "collection", "title", "headings", "anchor", "lines",
        "kind", "content", "modified", "dated", "levels", "why",
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
    answer = told(capsys, "search", "roll back", "--json")
    assert answer["steps"] == []
    assert answer["results"][0]["why"] == []


def test_formats_for_programs(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = said(capsys, "search", "roll back", "--format", "files")
    assert out.splitlines()[0] == "guide/deploy.md"
    _, out, _ = said(capsys, "search", "roll back", "--format", "jsonl")
    assert json.loads(out.splitlines()[0])["rank"] == 1
    _, out, _ = said(capsys, "search", "roll back", "--format", "md")
    assert out.startswith("### [guide/deploy.md:")


def test_modes_answer(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for mode in ("hybrid", "semantic", "keyword"):
        answer = told(capsys, "search", "grind the beans", "--mode", mode, "--json")
        assert answer["results"][0]["path"] == "espresso.md", mode
    answer = told(capsys, "search", "get_user_by_id", "--mode", "code", "--json")
    assert answer["results"][0]["path"] == "guide/deploy.md"


def test_nothing_found_is_exit_code_1_and_says_why(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = said(capsys, "search", "zzzzqqqq", "--mode", "keyword")
    assert (code, out) == (1, "")
    assert "No passage matches" in err
    code, out, _ = said(capsys, "search", "zzzzqqqq", "--mode", "keyword", "--json")
    assert code == 1
    assert json.loads(out)["abstained"] == "No passage matches the query"
    assert json.loads(out)["advice"] is None


def test_what_shows_the_nearest_is_called_as_it_is_where_the_advice_is_read(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ("search", "espresso beans", "--set", "search.confidence.threshold=1")
    _, _, err = said(capsys, *asked)
    assert "). Use --min-confidence 0 to see the closest passages.\n" in err
    _, out, _ = said(capsys, *asked, "--json")
    assert "closest" not in json.loads(out)["abstained"]
    assert json.loads(out)["advice"] == "Use min_confidence 0 to see the closest passages"


def test_get_and_outline(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said(capsys, "index")
    extract = told(capsys, "get", "guide/auth.md#token-refresh", "--json")
    assert extract["content"].startswith("## Token refresh")
    assert extract["headings"] == ["Auth", "Token refresh"]
    code, out, _ = said(capsys, "get", "guide/auth.md:5-5")
    assert code == 0
    assert "Tokens expire" in out
    found = told(capsys, "outline", "guide/auth.md", "--json")
    assert [row["anchor"] for row in found["outline"]] == ["auth", "token-refresh"]
    _, out, _ = said(capsys, "outline", "guide/auth.md")
    assert out.splitlines()[1] == ":3-5    Token refresh  #token-refresh"


def test_a_path_from_the_current_folder_works_too(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    said(capsys, "index")
    monkeypatch.chdir(folder / "guide")
    assert told(capsys, "get", "auth.md", "--json")["path"] == "guide/auth.md"
    assert told(capsys, "get", "auth.md#auth", "--json")["path"] == "guide/auth.md"
    assert told(capsys, "get", "auth.md:1-2", "--json")["lines"] == [1, 2]


def test_a_path_that_a_search_printed_leads_to_its_library(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder.parent)
    path = said(capsys, "search", "beans", "docs", "--format", "files", "-n", "1")[1].strip()
    assert path == "docs/espresso.md"
    for named in (path, f"{path}#espresso", f"{path}:5", f"{path}:4-6", str(Path(path).resolve())):
        assert told(capsys, "get", named, "--json")["path"] == "espresso.md", named
    assert told(capsys, "outline", path, "--json")["outline"][0]["anchor"] == "espresso"
    assert told(capsys, "links", path, "--json")["path"] == "espresso.md"
    # From another library it is a name in that one.
    monkeypatch.chdir(write(folder.parent / "other", {"a.md": "# A\n"}))
    said(capsys, "index")
    assert said(capsys, "get", "../docs/espresso.md")[0] == 1
    assert said(capsys, "get", "nothing/of/the/kind.md")[0] == 1


def test_a_place_names_its_collection_where_there_are_several(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(folder, {"marklight.toml": "[collections]\nguide = 'guide'\nall = '.'\n"})
    _, out, _ = said(capsys, "search", "when do tokens expire", "-n", "1")
    assert out.startswith("[1] guide/auth.md:5-5 § ")
    _, out, _ = said(capsys, "get", "guide/auth.md:5", "--in", str(folder))
    assert "Tokens expire" in out
    _, out, _ = said(capsys, "search", "grind the beans", "-n", "1")
    assert out.startswith("[1] all/espresso.md:")


def test_filters_are_named_where_an_answer_among_what_passes_is_unlikely(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    unlikely = ("--mode", "keyword", "--set", "search.confidence.threshold=1")
    code, _, err = said(capsys, "search", "tag:kitchen beans", *unlikely)
    assert code == 1
    assert "tag kitchen" in err
    assert "Use --min-confidence 0 to see the closest passages." in err


def test_a_day_that_is_given_again_must_hold_too(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for day in ("2025", "2026"):
        write(folder, {f"{day}.md": f"---\ndate: {day}-06-01\n---\n# Quokka\n\nSeen in {day}.\n"})

    def found(*days: str) -> list[str]:
        _, out, _ = said(
            capsys, "search", "quokka", "--mode", "keyword", "--format", "files", *days
        )
        return out.split()

    assert found("--after", "2026-01", "--after", "2025") == ["2026.md"]
    assert found("--before", "2025-12", "--before", "2026") == ["2025.md"]
    assert found("--after", "2026", "--before", "2025") == []


def test_two_values_of_one_key_are_both_asked_for_and_both_told(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(folder, {"both.md": "---\nseen: [spring, autumn]\n---\nA quokka.\n"})
    asked = ("search", "quokka", "--mode", "keyword", "--json")
    found = told(capsys, *asked, "--where", "seen=spring", "--where", "seen=autumn")
    assert [each["path"] for each in found["results"]] == ["both.md"]
    assert found["query"]["filters"] == {"where": {"seen": ["spring", "autumn"]}}
    code, _, _ = said(capsys, *asked, "--where", "seen=winter", "--where", "seen=autumn")
    assert code == 1
