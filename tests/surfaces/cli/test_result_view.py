"""Results on a terminal: excerpts around the match, certainty in words, weak matches folded."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from marklight.answer import Answer, Hit
from marklight.formatting import PLAIN, Style
from marklight.model import Chunk, DocumentId, Kind
from marklight.query import Query
from marklight.surfaces.cli.output import display_width
from marklight.surfaces.cli.result_view import Matcher, answer_view, passage_rows
from tests.making import write

if sys.platform == "win32":
    pytest.skip("there are no pseudo-terminals", allow_module_level=True)

from tests.surfaces.terminal import PROGRAM, Terminal


def hit(
    path: str,
    score: float,
    text: str = "Beans.",
    first: int = 1,
    probability: float = 0.9,
    kind: Kind = Kind.PROSE,
) -> Hit:
    chunk = Chunk(
        f"{path}{first}",
        DocumentId("notes", path),
        *(0, "Title", ("Title", f"Part {first}"), "", (first, first + 1), kind, text, ""),
        *("digest",),
    )
    return Hit(chunk, score, answer_probability=probability, coverage=1.0)


def view(*hits: Hit, query: str = "beans", everything: bool = False, width: int = 100) -> list[str]:
    answer = Answer(Query(query), hits, calibrated=True)
    return answer_view(answer, PLAIN, width, everything=everything).split("\n")


def test_weak_matches_after_an_answer_are_folded_into_one_line() -> None:
    hits = [hit("a.md", 0.8), *(hit(f"b{number}.md", 0.02) for number in range(4))]
    rows = view(*hits)
    assert rows[0] == f"a.md:1-2 § Title > Part 1{'answers 0.80'.rjust(100 - 25)}"
    assert rows[1:] == ["    Beans.", "4 weaker matches, --all shows them"]
    assert sum("mentions 0.02" in row for row in view(*hits, everything=True)) == 4


def test_equally_good_documents_are_a_list_and_not_a_doubt() -> None:
    rows = view(*(hit(f"{number}.md", 0.14) for number in range(5)))
    assert rows[0] == "5 documents about beans"
    assert not any("0.14" in row for row in rows)


def test_a_score_of_zero_is_not_printed() -> None:
    rows = view(hit("a.md", 0.8), hit("b.md", 0.001), everything=True)
    assert rows[3].endswith("  mentions")


def test_a_doubtful_best_result_is_announced() -> None:
    assert view(hit("a.md", 0.2, probability=0.3))[0] == (
        "No passage is likely to answer this (best 0.20). The closest passages:"
    )
    assert view(hit("a.md", 0.4))[0].endswith("mentions 0.40")


def test_passages_of_a_document_are_grouped_under_its_best() -> None:
    rows = view(hit("a.md", 0.9), hit("b.md", 0.8), hit("a.md", 0.7, first=8))
    assert [row.split("  ")[0] or row.split("§")[0] for row in rows if "Part" in row] == [
        "a.md:1-2 § Title > Part 1",
        "  :8-9 ",
        "b.md:1-2 § Title > Part 1",
    ]


def test_a_document_without_text_is_never_first() -> None:
    rows = view(hit("empty.md", 0.99, "# Title"), hit("a.md", 0.2), hit("b.md", 0.1))
    assert [row.split(":")[0] for row in rows if "Part" in row] == ["a.md", "b.md", "empty.md"]
    assert rows[-1] == "    (this document has no text)"


def test_five_long_results_fit_26_lines_and_the_first_has_eight_of_text() -> None:
    text = "A sentence about beans and other things that fill a line. " * 30
    hits = [hit(f"{number}.md", 0.9, text) for number in range(5)]
    rows = view(*hits)
    assert [row.startswith("    ") for row in rows[:12]] == [False, *[True] * 8, False, False, True]
    assert len(rows) == 26
    assert all(display_width(row) <= 100 for row in rows)
    assert all(display_width(row) <= 40 for row in view(*hits, width=40))


def test_an_excerpt_begins_with_the_sentence_of_the_match() -> None:
    text = f"{'Something else. ' * 20}Grind the beans finely. {'And more. ' * 40}"
    rows = passage_rows(hit("a.md", 0.9, text), Matcher(Query("bean grinding")), 60, 2)
    assert "Grind the beans finely." in " ".join(rows)
    assert (rows[0][:2], rows[-1][-1]) == ("… ", "…")
    long = f"{'word ' * 200}beans {'word ' * 200}"  # a sentence longer than the excerpt
    rows = passage_rows(hit("a.md", 0.9, long), Matcher(Query("beans")), 60, 2)
    assert "beans" in " ".join(rows)


def test_the_room_of_folded_results_completes_the_first_passage() -> None:
    steps = "\n".join(f"{number}. Wait for the beans" for number in range(1, 15))
    alone = [hit("a.md", 0.9, steps), *(hit(f"{number}.md", 0.01) for number in range(4))]
    assert "    14. Wait for the beans" in view(*alone)
    others = [hit(f"{number}.md", 0.9, steps) for number in range(5)]
    assert "    14. Wait for the beans" not in view(*others)


def test_the_first_result_has_the_number_of_other_passages_of_its_document() -> None:
    first, second = (replace(hit(path, 0.9), further=("x", "y")) for path in ("a.md", "b.md"))
    rows = view(first, second)
    assert rows[0].endswith("+2 more here  answers 0.90")
    assert "more" not in rows[3]


def test_a_long_path_leaves_room_for_the_score() -> None:
    row = view(hit(f"{'folder/' * 20}a.md", 0.9))[0]
    assert (row[0], row[-12:], len(row)) == ("…", "answers 0.90", 100)


def test_a_part_of_a_table_has_the_header_row() -> None:
    cells = "\n".join(f"| plan {number} | ${number} |" for number in range(40))
    table = f"| Plan | Price |\n|---|---|\n{cells}"
    found = hit("a.md", 0.9, table, kind=Kind.TABLE)
    rows = passage_rows(found, Matcher(Query("37")), 60, 4)
    assert rows[0] == "Plan     Price"
    assert any(row.startswith("plan 37") for row in rows)


def test_matching_words_are_highlighted_in_any_inflection() -> None:
    style = Style(escapes=True)
    shown = Matcher(Query("grind bean")).highlighted("Grinding the beans", style)
    assert shown == "\x1b[1;31mGrinding\x1b[0m the \x1b[1;31mbeans\x1b[0m"
    shown = Matcher(Query("咖啡")).highlighted("喝咖啡吗", style)
    assert shown == "喝\x1b[1;31m咖啡\x1b[0m吗"
    assert Matcher(Query("beans")).highlighted("beans", PLAIN) == "beans"


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    text = "Grind the beans finely. " + "Then wait for a while and drink. " * 60
    write(
        tmp_path / "docs", {"espresso.md": f"# Espresso\n\n{text}\n", "tea.md": "# Tea\n\nHot.\n"}
    )
    return {"MARKLIGHT_MODEL_NAME": "fake", "MARKLIGHT_DATA_DIR": str(tmp_path / "data")}


def shown(tmp_path: Path, environment: dict[str, str], *options: str) -> tuple[str, str]:
    call = ["search", "grind beans", str(tmp_path / "docs"), "--mode", "keyword", *options]
    with Terminal(call, environment, size=(24, 80)) as terminal:
        assert terminal.end() == 0
    return terminal.raw, terminal.shown().replace("\r", "")


def test_a_terminal_gets_excerpts_and_a_pipe_whole_passages(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    raw, text = shown(tmp_path, environment)
    assert "\x1b[1;31mGrind\x1b[0m the \x1b[1;31mbeans\x1b[0m finely." in raw
    assert text.count("Then wait for a while") < 36
    raw, text = shown(tmp_path, environment | {"NO_COLOR": "1"})
    assert "\x1b[1" not in raw
    assert "    Grind the beans finely." in text
    _, text = shown(tmp_path, environment, "--full")
    assert "> Grind the beans finely." in text
    assert text.count("Then wait for a while") > 36
    call = [sys.executable, "-c", PROGRAM, "search", "grind beans", str(tmp_path / "docs")]
    piped = subprocess.run(
        [*call, "--mode", "keyword"],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    assert piped.stdout.startswith("[1] espresso.md:3-3 § Espresso (")
    assert piped.stdout.count("Then wait for a while") > 36


def test_oneline_prints_file_line_and_text(tmp_path: Path, environment: dict[str, str]) -> None:
    _, text = shown(tmp_path, environment, "-1")
    line = text.splitlines()[-1]
    assert ":3:" in line
    assert str(tmp_path) in line
    call = [sys.executable, "-c", PROGRAM, "search", "grind beans", ".", "--oneline"]
    piped = subprocess.run(
        [*call, "--mode", "keyword"],
        cwd=tmp_path / "docs",
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    assert piped.stdout.splitlines()[0].startswith("espresso.md:3:Grind the beans finely. Then")
