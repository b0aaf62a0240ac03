"""The text of `--explain`, and that every score can be recomputed from it."""

from __future__ import annotations

import json
import os
import re
import shutil
import time
from collections.abc import Iterator
from dataclasses import replace
from math import exp
from pathlib import Path
from typing import Any

import pytest

import marklight
from marklight.answer import Answer, Hit, Step, Why
from marklight.library.configuration import STAGES, stage_name
from marklight.query import Query
from marklight.search.features import PassageFeatures, QueryFeatures
from marklight.surfaces.cli import run
from marklight.surfaces.explain import LEGEND, WIDTH, explanation
from tests.making import chunk, write

ANSWER = Answer(
    Query("who"),
    (
        Hit(
            chunk("a", path="guide/a.md"),
            0.9,
            (
                Why("keyword", 41.277),
                Why("recency", 0.9, "before × factor", {"before": 0.75, "factor": 1.2}),
            ),
        ),
        Hit(chunk("b"), 0.5, (Why("semantic", 0.75), Why("rerank", 0.5))),
    ),
    steps=(
        Step("expand", 0, 0.04),
        Step("semantic", 40, 9.0),
        Step("keyword", 50, 12.5),
        Step("fuse", 63, 0.61),
        Step("recency", 63, 0.02),
    ),
    took_ms=20.0,
)


def test_stages_then_the_steps_of_each_score_then_a_legend() -> None:
    assert explanation(ANSWER) == "\n".join(
        [
            "stage     hits     ms",
            "expand           0.04",
            "semantic    40   9.00",
            "keyword     50  12.50",
            "fuse        63   0.61",
            "recency     63   0.02",
            "all          2  20.00",
            "",
            "[1] 0.90  guide/a.md:1-1",
            "    found by  keyword 41.277",
            "    recency   0.9000 = 0.75 × 1.2",
            "",
            "[2] 0.50  b.md:1-1",
            "    found by  semantic 0.75",
            "    rerank    0.5000",
            "",
            "semantic  cosine similarity of query and passage embeddings",
            "keyword   BM25 of the query terms",
            "recency   boost of recent documents",
            "rerank    score by the cross-encoder; the rest is scaled below",
        ]
    )


def test_long_places_are_cut_so_that_lines_stay_short() -> None:
    hit = replace(ANSWER.hits[0], chunk=chunk("c", path=f"{'deep/' * 50}end.md"))
    lines = explanation(replace(ANSWER, hits=(hit,))).split("\n")
    assert max(map(len, lines)) == WIDTH
    assert any(line.endswith("/end.md:1-1") for line in lines)


def test_nothing_found_has_stages_but_no_hits() -> None:
    assert explanation(replace(ANSWER, hits=())).endswith("all          0  20.00")


def test_the_legend_describes_every_feature_and_every_stage_that_changes_scores() -> None:
    unscored = {"existing_files", "confidence", "per_document", "parents", "context"}
    unscored |= {"exact_duplicates", "near_duplicates", "semantic_duplicates", "linked"}
    rewriting = {"operators", "spelling", "expand"}
    stages = {stage_name(stage) for stage in STAGES} - unscored - rewriting
    assert {*PassageFeatures._fields, *QueryFeatures._fields, *stages} - {"coverage"} <= set(LEGEND)


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
    answer = json.loads(out)
    assert {step["stage"] for step in answer["steps"]} >= {"keyword", "fuse"}
    learned = answer["results"][0]["why"][-1]
    assert learned["formula"] == "answer × relevance"
    assert learned["value"] == pytest.approx(
        learned["inputs"]["answer"] * learned["inputs"]["relevance"], abs=1e-6
    )
    assert "stage " not in err
    assert run(["search", "beans", "--explain"]) == 0
    out, err = capsys.readouterr()
    assert "\nstage " in out


NOTES = Path(__file__).parents[2] / "examples" / "notes"
OLD = {"journal.md": "# Journal\n\nRestored the database from the backup of last night.\n"}


@pytest.fixture(scope="module")
def lib(tmp_path_factory: pytest.TempPathFactory) -> Iterator[marklight.Library]:
    """Two collections with the default model; every second file is a year old, the others are new."""
    folder = tmp_path_factory.mktemp("explained")
    shutil.copytree(NOTES, folder / "notes")
    write(folder / "work", OLD)
    year_ago = time.time() - 365 * 86_400
    for path in sorted(folder.rglob("*.md"))[::2]:
        os.utime(path, (year_ago, year_ago))
    settings = {"collections": {"notes": "notes", "work": "work"}}
    with marklight.open(folder, settings) as library:
        library.index()
        yield library


QUERIES: list[tuple[str, dict[str, Any]]] = [
    ("how long do tokens live", {}),
    ("how long do tokens live", {"mode": "semantic"}),
    ("how long do tokens live", {"mode": "keyword"}),
    ("restore database", {"mode": "code", "min_confidence": 0}),
    ("token", {}),
    ("token", {"mode": "keyword"}),
    ("refresh token", {"limit": 20, "min_confidence": 0}),
    ("Authentication", {}),
    ("backup of the database", {"current": "notes"}),
    ("backup of the database", {"current": "work", "mode": "semantic"}),
    ("incident in february", {"current": "notes", "limit": 10}),
    ("capital of France", {"min_confidence": 0}),
    ("capital of France", {"min_confidence": 0, "mode": "semantic"}),
    ("xylophone", {"min_confidence": 0, "mode": "keyword"}),
    ("token", {"path": "guides/**"}),
    ("tokens expire path:guides/**", {"min_confidence": 0}),
    ("revoke -refresh", {"min_confidence": 0}),
    ('"access token"', {}),
    ("milk", {"settings": {"search": {"recency": {"strength": 3}}}, "min_confidence": 0}),
    ("how do I undo a release", {"parents": True, "limit": 3, "min_confidence": 0}),
    ("tokens", {"settings": {"search": {"fuse": "weighted_sum"}}, "min_confidence": 0}),
    ("tokens", {"settings": {"search": {"fuse": "score_aware"}}, "min_confidence": 0}),
    (
        "tokens",
        {"settings": {"search": {"fuse": "reciprocal", "use": ["calibrate", "diversity"]}}},
    ),
]


@pytest.mark.parametrize(("text", "given"), QUERIES)
def test_scores_can_be_recomputed_from_the_printed_text(
    text: str, given: dict[str, Any], lib: marklight.Library
) -> None:
    given = dict(given)
    if current := given.pop("current", ""):
        given["near"] = lib.place.folder / current
    answer = lib.search(text, explain=True, refresh=False, **given)
    printed = explanation(answer)
    results = Printed(printed).results()
    assert [shown for shown, _ in results] == [round(hit.score, 2) for hit in answer.hits], printed
    for shown, recomputed in results:
        assert recomputed == pytest.approx(shown, abs=0.0055), printed


def test_the_queries_cover_results_boosts_and_both_kinds_of_curves(lib: marklight.Library) -> None:
    stages: set[str] = set()
    for text, given in QUERIES:
        given = dict(given)
        if current := given.pop("current", ""):
            given["near"] = lib.place.folder / current
        answer = lib.search(text, explain=True, refresh=False, **given)
        stages |= {why.stage for hit in answer.hits for why in hit.why}
    boosts = {"recency", "community", "current_collection", "exact_title"}
    assert stages >= {"learned", "weighted_sum", "score_aware", "reciprocal", "calibrate"} | boosts


NUMBER = re.compile(r"(?<![\w.])-?\d+(?:\.\d+)?(?:e-?\d+)?")


def sigmoid(logit: float) -> float:
    return 1 / (1 + exp(-logit))


FUNCTIONS: dict[str, Any] = {
    "sigmoid": sigmoid,
    "next_above": lambda number: number,
    "next_below": lambda number: number,
    "min": min,
    "max": max,
}


def evaluated(formula: str) -> float:
    value: float = eval(formula.replace("×", "*"), {"__builtins__": {}}, FUNCTIONS)
    return value


class Printed:
    """An explanation as a reader has it: nothing but its text."""

    def __init__(self, text: str) -> None:
        self.parts = text.split("\n\n")

    def results(self) -> list[tuple[float, float]]:
        """Each score as shown, and as recomputed from the features, the weights and the formulas."""
        return [
            self._recomputed(part.split("\n"), rank)
            for rank, part in enumerate((one for one in self.parts if one[:1] == "["), 1)
        ]

    def _recomputed(self, lines: list[str], rank: int) -> tuple[float, float]:
        shown = float(lines[0].split()[1])
        score = known = None
        values: dict[str, tuple[float, float]] = {}
        for line in lines[1:]:
            name, _, rest = line.strip().partition("  ")
            if name == "found by":
                continue
            printed, _, formula = rest.strip().partition(" = ")
            # By itself: what is printed is what the formula gives, to the last digit printed.
            assert evaluated(formula) == pytest.approx(float(printed), abs=0.0003), line
            # And on from what was recomputed so far.
            if name == "log_share":
                best, temperature, total = map(float, re.findall(r"[\d.]+", formula)[1:])
                current = (self.feature_sum(rank) - best) / temperature - total
            elif name == "relevance":
                slope = float(re.findall(r"[\d.]+", formula)[1])
                base, log_share = self.query_sums()["relevance"], values["log_share"][1]
                current = sigmoid(base + slope * log_share)
            elif name == "learned" and "relevance" in values:
                current = self.answer() * values["relevance"][1]
            else:
                current = evaluated(_replaced(formula, known, score))
            values[name] = float(printed), current
            known, score = values[name]
        assert score is not None
        return shown, score

    def query_sums(self) -> dict[str, float]:
        """The sums of query features × weights, by curve."""
        rows = self._rows("query feature")
        sums: dict[str, float] = {}
        for curve in (column for column in rows["query feature"] if column.startswith("weight")):
            terms = {name: row for name, row in rows.items() if row.get(curve)}
            total = sum(
                float(row["value"]) * float(row[curve])
                for name, row in terms.items()
                if name not in ("query feature", "bias", "sum")
            )
            total += float(rows["bias"][curve])
            assert total == pytest.approx(float(rows["sum"][curve]), abs=0.002)
            sums[curve.removeprefix("weight in ")] = total
        return sums

    def answer(self) -> float:
        """The answer probability."""
        line = next(one for one in "\n".join(self.parts).split("\n") if one.startswith("answer "))
        printed = float(line.split()[1].rstrip(":"))
        sums = self.query_sums()
        if "answer" in sums:
            assert sigmoid(sums["answer"]) == pytest.approx(printed, abs=0.0006)
            return sigmoid(sums["answer"])
        return printed

    def feature_sum(self, rank: int) -> float:
        """The sum of a passage's features × weights."""
        rows = self._rows("passage feature")
        row, weights = rows[f"[{rank}]"], rows["weight"]
        total = sum(
            float(row[name]) * float(weights[name])
            for name in row
            if name not in ("passage feature", "sum") and row[name]
        )
        assert total == pytest.approx(float(row["sum"]), abs=0.0006)
        return total

    def _rows(self, title: str) -> dict[str, dict[str, str]]:
        """A table by its first column; every other column ends where its heading ends."""
        lines = next(part for part in self.parts if part.startswith(title)).split("\n")
        lines = [line for line in lines if not line.startswith("answer ")]
        ends = [match.end() for match in re.finditer(r"\S+(?: \S+)*", lines[0])][1:]
        starts = [match.start() for match in re.finditer(r"\S+(?: \S+)*", lines[0])]
        heads = [lines[0][start:].split("  ")[0] for start in starts][1:]
        found: dict[str, dict[str, str]] = {}
        for line in lines:
            cells = (line[:end].split()[-1] if line[end - 1 : end].strip() else "" for end in ends)
            found[line.split("  ")[0]] = dict(zip(heads, cells, strict=True))
        return found


def _replaced(formula: str, known: float | None, score: float | None) -> str:
    """The formula with the score so far in place of what was printed for it."""
    if known is None:
        return formula
    return NUMBER.sub(
        lambda match: str(score) if abs(float(match[0]) - known) <= 0.00006 else match[0], formula
    )
