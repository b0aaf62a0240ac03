"""Print an explanation of an answer: stages with timings, features × weights, and every step of each score.

The printed numbers suffice to recompute each score by hand; `tests/surfaces/test_explain.py` does.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING

from marklight.formatting import columns, place_text

if TYPE_CHECKING:
    from marklight.answer import Answer, Hit, Why

WIDTH = 100
"""Columns of a line with a place, which is cut to fit."""
MIN_PLACE = 24
"""Characters of a place that are always shown."""
INDENT = "    "
RETRIEVERS = ("semantic", "keyword", "code")

QUERY_ENTRIES = {"answer": "answer", "relevance_base": "relevance"}
"""Trace entries that are the same for all results, with the name of their curve."""
FOUND_BY = "found by"

LEGEND = {
    "semantic": "cosine similarity of query and passage embeddings",
    "keyword": "BM25 of the query terms",
    "code": "BM25 of the names in code",
    "cosine": "10 × cosine similarity",
    "standard_cosine": "standard score (z-score) of the cosine among the candidates",
    "relative_bm25": "BM25 divided by the best BM25",
    "lexical": "relative BM25 × term coverage to the power of 1.5",
    "exact_phrase": "the passage contains the query as typed",
    "title": "term coverage of the title",
    "path": "share of the query terms in the path",
    "best_cosine": "10 × highest cosine of all candidates",
    "top5_cosine": "10 × mean of the five highest cosines",
    "cosine_range": "10 × (highest cosine - 50th)",
    "best_coverage": "highest term coverage of a passage or its path",
    "first_coverage": "term coverage of the first passage",
    "excess_best_cosine": "best_cosine - its median over fixed queries about other things, in this library",
    "excess_best_coverage": "best_coverage - its median over these queries",
    "excess_first_coverage": "first_coverage - its median over these queries",
    "top3_coverage": "mean term coverage of the three nearest passages",
    "query_length": "log(1 + number of query terms); one term for an exact phrase",
    "corpus_size": "log(1 + number of passages that pass the filters)",
    "many_near": "10 × (tenth highest cosine - 0.75), if above 0",
    "many_near_length": "many_near × query_length",
    "absent_share": "share of the idf of the query that is of words which no document contains",
    "gap": "highest sum of features - lowest, over the 30 best documents",
    "sum": "sum of value × weight, plus the bias",
    "sigmoid": "sigmoid(x) = 1 / (1 + exp(-x))",
    "answer": "answer probability: does the library contain an answer to the query?",
    "log_share": "log of the share in a softmax over the 30 best documents: (sum - best) / temperature - log_total",
    "relevance": "probability that the passage is relevant if there is an answer",
    "learned": "score after fusion: answer × relevance",
    "reciprocal": "score after reciprocal rank fusion",
    "weighted_sum": "score after fusion by weighted sum",
    "score_aware": "score after fusion by weighted sum, with flat lists counting less",
    "probability": "probability in place of the score of the fusion: answer × relevance",
    "shared": "mean probability of neighbours in the ranking whose order contradicts it",
    "calibrate": "score by a fixed curve over the sum of rank fusion",
    "current_collection": "boost of the collection of the current folder",
    "recency": "boost of recent documents",
    "community": "boost of documents linked with the best",
    "exact_name": "has an identifier, host name, path or version of the query",
    "exact_title": "exact titles, headings and keywords first; other high scores make room",
    "diversity": "moved behind a result that adds something new",
    "rerank": "score by the cross-encoder; the rest is scaled below",
    "next_above": "next_above(x): the next number above x",
    "next_below": "next_below(x): the next number below x",
}
"""Descriptions of names in an explanation, in the order of the legend."""

_TERM = re.compile(r"([+-]) ([\d.e-]+) × (\w+)")
_BIAS = re.compile(r"-?[\d.]+(?:e-?\d+)?")
_NAME = re.compile(r"[a-z_][a-z_0-9]*")


def explanation(answer: Answer) -> str:
    """Return stages, query features, passage features, the steps of each score, and a legend."""
    parts = [_stages(answer)]
    if answer.hits:
        parts += [_query_features(answer.hits), _passage_features(answer.hits)]
        parts += [
            "\n\n".join(_result(answer, rank, hit) for rank, hit in enumerate(answer.hits, 1))
        ]
    text = "\n\n".join(part for part in parts if part)
    legend = _legend(answer.hits)
    return f"{text}\n\n{legend}" if legend else text


def _stages(answer: Answer) -> str:
    from marklight.library.configuration import stage_name
    from marklight.search.pipeline import REWRITE

    without_hits = {stage_name(stage) for stage in REWRITE}
    rows = [
        (step.stage, "" if step.stage in without_hits else str(step.count), f"{step.ms:.2f}")
        for step in answer.steps
    ]
    total = ("all", str(len(answer.hits)), f"{answer.took_ms:.2f}")
    return columns([("stage", "hits", "ms"), *rows, total], left=(0,))


def _query_features(hits: Sequence[Hit]) -> str:
    """Return query features with their weights in both curves, and the answer probability."""
    by_stage = {why.stage: why for hit in hits for why in hit.why}
    entries = {stage: by_stage[stage] for stage in QUERY_ENTRIES if stage in by_stage}
    curves = {stage: entry for stage, entry in entries.items() if entry.formula}
    if not curves:
        return ""
    values = dict(chain.from_iterable(entry.inputs.items() for entry in curves.values()))
    weights = {stage: _weights(entry.formula) for stage, entry in curves.items()}
    rows = [("query feature", "value", *(f"weight in {QUERY_ENTRIES[stage]}" for stage in curves))]
    for name, value in values.items():
        own = (weights[stage].get(name) for stage in curves)
        rows.append((name, f"{value:.4f}", *("" if one is None else f"{one:.4f}" for one in own)))
    biases = [float(_BIAS.search(entry.formula)[0]) for entry in curves.values()]  # type: ignore[index]
    rows.append(("bias", "", *(f"{bias:.4f}" for bias in biases)))
    sums = {
        stage: bias + sum(weight * values[name] for name, weight in weights[stage].items())
        for (stage, bias) in zip(curves, biases, strict=True)
    }
    rows.append(("sum", "", *(f"{one:.4f}" for one in sums.values())))
    table = columns(rows, left=(0,))
    if answer := curves.get("answer"):
        return f"{table}\nanswer {answer.value:.4f} = sigmoid({sums['answer']:.4f})"
    return f"{table}\nanswer 1.0000: the query has no other terms than its filters"


def _weights(formula: str) -> dict[str, float]:
    return {
        name: float(weight) * (-1 if sign == "-" else 1)
        for sign, weight, name in _TERM.findall(formula)
    }


def _passage_features(hits: Sequence[Hit]) -> str:
    """Return the passage features, one row per result, with their weights in the first row."""
    features = [
        {why.stage: why.inputs for why in hit.why if "feature" in why.inputs} for hit in hits
    ]
    weights = {name: one["weight"] for row in features for name, one in row.items()}
    names = [name for name in LEGEND if name in weights]
    if not names:
        return ""
    rows = [("passage feature", *names, "sum"), ("weight", *_cells(weights, names), "")]
    for rank, row in enumerate(features, 1):
        values = {name: one["feature"] for name, one in row.items()}
        total = sum(value * weights[name] for name, value in values.items())
        rows.append((f"[{rank}]", *_cells(values, names), f"{total:.4f}" if row else ""))
    return columns(rows, left=(0,))


def _cells(values: Mapping[str, float], names: Iterable[str]) -> Iterable[str]:
    return (f"{values[name]:.4f}" if name in values else "" for name in names)


def _result(answer: Answer, rank: int, hit: Hit) -> str:
    """Return the place of a result, then one line per step: name, value, and the formula with numbers."""
    head = f"[{rank}] {hit.score:.2f}  "
    where = place_text(hit.chunk.document, answer.several_collections, hit.chunk.lines)
    width = max(MIN_PLACE, WIDTH - len(head))
    # The end of a place is kept, where files and lines differ.
    lines = [head + (where if len(where) <= width else f"…{where[1 - width :]}")]
    steps = [
        why
        for why in hit.why
        if why.stage not in (*QUERY_ENTRIES, *RETRIEVERS) and "feature" not in why.inputs
    ]
    width = max(len(FOUND_BY), *(len(why.stage) for why in steps)) if steps else 0
    raw = [f"{why.stage} {_number(why.value)}" for why in hit.why if why.stage in RETRIEVERS]
    if raw:
        lines.append(f"{INDENT}{FOUND_BY:{width}}  {', '.join(raw)}")
    if parts := hit.chunk.boilerplate:
        hidden = sum(end - start for start, end in parts)
        share = f"{hidden:,} of {len(hit.chunk.text):,} characters are shared by many documents"
        lines.append(f"{INDENT}{'boilerplate':{width}}  {share} and not ranked")
    for why in steps:
        formula = f" = {_substituted(why)}" if why.formula else ""
        lines.append(f"{INDENT}{why.stage:{width}}  {why.value:.4f}{formula}")
    return "\n".join(lines)


def _substituted(why: Why) -> str:
    """Return the formula with numbers in place of names."""
    return _NAME.sub(
        lambda match: _number(why.inputs[match[0]]) if match[0] in why.inputs else match[0],
        why.formula,
    )


def _number(value: float) -> str:
    return f"{value:.6g}"


def _legend(hits: Sequence[Hit]) -> str:
    """Return a description of each stage, feature and function in the explanation."""
    entries = [why for hit in hits for why in hit.why]
    names = {why.stage for why in entries} | {name for why in entries for name in why.inputs}
    names |= {name for why in entries for name in _NAME.findall(why.formula)}
    rows = [(name, meaning) for name, meaning in LEGEND.items() if name in names]
    if any("term coverage" in meaning for _, meaning in rows):
        rows.append(("term coverage", "share of the query terms in a text, weighted by idf"))
    return columns(rows, left=(0, 1)) if rows else ""
