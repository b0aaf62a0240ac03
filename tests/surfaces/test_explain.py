"""The tables of `--explain`."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from marklight.answer import Answer, Hit, Query, Step, Why
from marklight.surfaces.cli.app import run
from marklight.surfaces.explain import WIDTH, explanation
from tests.making import chunk, write

ANSWER = Answer(
    Query("who"),
    (
        Hit(chunk("a", path="guide/a.md"), 0.9, (Why("keyword", 41.277), Why("recency", 0.9))),
        Hit(chunk("b"), 0.5, (Why("semantic", 0.75), Why("recency", 0.5))),
    ),
    steps=(
        Step("classify", 0, 0.04),
        Step("semantic", 40, 9.0),
        Step("keyword", 50, 12.5),
        Step("fuse", 63, 0.61),
        Step("recency", 63, 0.02),
    ),
    took_ms=20.0,
)


def test_stages_and_hits_stand_in_columns() -> None:
    assert explanation(ANSWER) == "\n".join(
        [
            "stage     hits     ms",
            "classify         0.04",
            "semantic    40   9.00",
            "keyword     50  12.50",
            "fuse        63   0.61",
            "recency     63   0.02",
            "all          2  20.00",
            "",
            "            found by           score after",
            "     score  semantic  keyword      recency  place",
            "[1]   0.90              41.28       0.9000  guide/a.md:1-1",
            "[2]   0.50    0.7500                0.5000  b.md:1-1",
        ]
    )


def test_evidence_stands_in_one_order_whoever_has_it_first() -> None:
    said = (
        (Why("semantic", 0.7), Why("meaning", 7.0), Why("answer", 0.98), Why("learned", 0.5)),
        (Why("meaning", 6.0), Why("title", 1.2), Why("links", 0.3333), Why("learned", 0.25)),
    )
    hits = tuple(Hit(chunk(id), why[-1].value, why) for id, why in zip("ab", said, strict=True))
    assert explanation(replace(ANSWER, hits=hits)).split("\n")[-4:] == [
        "            found by  evidence               any     score after",
        "     score  semantic  meaning  title  links  answer      learned  place",
        "[1]   0.50    0.7000     7.00                  0.98       0.5000  a.md:1-1",
        "[2]   0.25               6.00   1.20   0.33               0.2500  b.md:1-1",
    ]


def test_long_places_are_cut_so_that_lines_stay_short() -> None:
    hit = replace(ANSWER.hits[0], chunk=chunk("c", path=f"{'deep/' * 50}end.md"))
    lines = explanation(replace(ANSWER, hits=(hit,))).split("\n")
    assert max(map(len, lines)) == WIDTH
    assert lines[-1].endswith("/end.md:1-1")


def test_nothing_found_has_stages_but_no_hits() -> None:
    assert explanation(replace(ANSWER, hits=())).endswith("all          0  20.00")


def test_formats_for_programs_stay_clean(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MARKLIGHT_MODEL_NAME", "fake")
    monkeypatch.chdir(write(tmp_path, {"a.md": "# A\n\nGrind the beans.\n"}))
    for format in ("files", "md", "jsonl"):
        assert run(["search", "beans", "--explain", "--format", format]) == 0
        out, err = capsys.readouterr()
        assert "stage " not in out
        assert "\nstage " in err
    assert run(["search", "beans", "--explain", "--json"]) == 0
    out, err = capsys.readouterr()
    assert {step["stage"] for step in json.loads(out)["steps"]} >= {"keyword", "fuse"}
    assert "stage " not in err
    assert run(["search", "beans", "--explain"]) == 0
    out, err = capsys.readouterr()
    assert "\nstage " in out
