"""Metrics of a run and their report as text and JSON."""

from __future__ import annotations

from marklight.eval import Evaluation
from marklight.eval.dataset import JudgedQuery, Judgement
from marklight.eval.run import BUDGETS, Outcome, Run, compare
from marklight.library.configuration import SCHEMA
from marklight.settings import combine


def outcome(right: bool, number: int) -> Outcome:
    """Return the outcome of a query whose answer is first or missing."""
    result = "right.md" if right else "wrong.md"
    query = JudgedQuery(f"q{number}", f"question {number}", {"right.md": Judgement(1, "")})
    return Outcome(
        query,
        ranking=((result, 0.75),),
        within={budget: frozenset([result]) for budget in BUDGETS},
        answered=True,
        ms=10.0 * number,
    )


def run(*right: bool, false_answers: tuple[bool, ...] = (True, False)) -> Run:
    outcomes = [outcome(is_right, number) for number, is_right in enumerate(right, 1)]
    return Run(outcomes, false_answers, min_score=0.3)


def evaluation(whole: Run, *others: Run) -> Evaluation:
    changes = [
        compare(f"without stage{number}", (f"search.skip=stage{number}",), whole, other)
        for number, other in enumerate(others)
    ]
    return Evaluation("set", 2, 3, "hybrid", whole, combine([], SCHEMA), ablation=changes)


def test_metrics_are_means_over_queries() -> None:
    metrics = run(True, True, True, False).metrics
    assert metrics["ndcg@10"] == metrics["success@1"] == metrics["recall@500_tokens"] == 3 / 4
    # Three of four results that say 0.75 are right.
    assert metrics["ece"] == 0
    assert metrics["false_answers"] == 1 / 2
    assert metrics["lost"] == 0


def test_answers_below_the_minimum_score_are_lost() -> None:
    outcomes = [outcome(True, 1), outcome(False, 2)]
    # Only queries with an answer in the top ten can lose it.
    assert Run(outcomes, [], min_score=0.8).metrics["lost"] == 1


def test_latency_percentiles_are_over_queries() -> None:
    assert run(*[True] * 20).latency_ms == {"p50": 100.0, "p95": 190.0}


def test_changes_without_a_difference_are_listed_together() -> None:
    whole = run(*[True] * 12, *[False] * 4)
    worse = run(*[True] * 4, *[False] * 12)
    lines = evaluation(whole, worse, whole, whole).to_text().splitlines()
    assert "no difference: without stage1, without stage2" in lines
    [row] = [line for line in lines if line.startswith("without stage0")]
    # Eight coins that all fall the same way: 2 of 2⁸ ways, 0.008.
    assert row.split() == [
        *["without", "stage0", "-0.500", "-0.500", "+0.000", "+0.000", "+0.500"],
        *["0.008", "*"],
    ]


def test_columns_are_aligned() -> None:
    whole = run(True, False)
    heading, first, second = [
        line
        for line in evaluation(whole, run(False, False)).to_text().splitlines()
        if line.startswith((" " * 10, "baseline ", "without "))
    ]
    end = heading.index("nDCG@10") + len("nDCG@10")
    assert first[:end].endswith("  0.500")
    assert second[:end].endswith(" -0.500")


def test_json_has_missed_queries_and_differences() -> None:
    result = evaluation(run(True, False), run(True, True)).to_dict()
    assert result["queries"] == 2
    assert result["missed"] == [
        {"id": "q2", "text": "question 2", "expected": ["right.md"], "first": "wrong.md"}
    ]
    assert result["ablation"][0]["difference"]["ndcg@10"] == 0.5
    assert [row["count"] for row in result["reliability"]] == [0] * 7 + [2] + [0] * 2


def test_a_false_abstention_is_listed_with_its_score() -> None:
    result = evaluation(Run([outcome(True, 1), outcome(False, 2)], [], min_score=0.8))
    assert result.to_dict()["held_back"] == [
        {"id": "q1", "text": "question 1", "expected": ["right.md"], "score": 0.75}
    ]
    *_, title, row = result.to_text().splitlines()
    assert title == "Answer found but not shown for low confidence: 1 of 2 queries:"
    assert row == "  'question 1': right.md (score 0.75)"


def test_text_lists_ten_failed_queries_and_json_all() -> None:
    result = evaluation(run(*[False] * 12))
    title, *rows = result.to_text().split("\n\n")[-1].splitlines()
    assert title == "No answer in the top 10 for 12 of 12 queries, such as"
    assert len(rows) == 10
    assert len(result.to_dict()["missed"]) == 12
