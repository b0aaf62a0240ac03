"""Why an answer is as it is: two tables, of its stages and of its hits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from marklight.shown import place

if TYPE_CHECKING:
    from marklight.answer import Answer

WIDTH = 100
"""Columns that a table keeps to where its places can be cut short."""
LEAST_PLACE = 24
"""Of a place that much is always shown."""


def explanation(answer: Answer) -> str:
    """Stages with what they left and how long they took; hits with their score after each stage."""
    return f"{_stages(answer)}\n\n{_hits(answer)}".rstrip()


def _stages(answer: Answer) -> str:
    from marklight.library.compose import stage_name
    from marklight.search.pipeline import REWRITE

    # A stage that looks at the question has no hits to count.
    before = {stage_name(stage) for stage in REWRITE}
    rows = [
        (step.stage, "" if step.stage in before else str(step.count), f"{step.ms:.2f}")
        for step in answer.steps
    ]
    whole = ("all", str(len(answer.hits)), f"{answer.took_ms:.2f}")
    return _table([("stage", "hits", "ms"), *rows, whole], left=(0,))


def _hits(answer: Answer) -> str:
    if not answer.hits:
        return ""
    order = {step.stage: at for at, step in enumerate(answer.steps)}
    stages = sorted(
        dict.fromkeys(why.stage for hit in answer.hits for why in hit.why),
        # A fusion is called by its own name here, and `fuse` among the stages.
        key=lambda stage: order.get(stage, order.get("fuse", 0)),
    )
    rows: list[tuple[str, ...]] = [("", "score", *stages, "place")]
    for rank, hit in enumerate(answer.hits, 1):
        said = {why.stage: _number(why.value) for why in hit.why}
        where = place(hit.chunk, answer.several_collections)
        scores = (said.get(stage, "") for stage in stages)
        rows.append((f"[{rank}]", f"{hit.score:.2f}", *scores, where))
    taken = sum(max(len(row[at]) for row in rows) + 2 for at in range(len(rows[0]) - 1))
    room = max(LEAST_PLACE, WIDTH - taken)
    return _table([(*row[:-1], _cut(row[-1], room)) for row in rows], left=(len(rows[0]) - 1,))


def _number(value: float) -> str:
    """As exact as there is room for: BM25 may be far above 1."""
    return f"{value:.4f}" if abs(value) < 10 else f"{value:.2f}"


def _cut(text: str, room: int) -> str:
    """The end of it, where files and lines are told apart."""
    return text if len(text) <= room else f"…{text[1 - room :]}"


def _table(rows: Sequence[Sequence[str]], left: Sequence[int]) -> str:
    """Columns side by side; numbers end below each other, the columns in `left` begin so."""
    widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))]
    return "\n".join(
        "  ".join(
            cell.ljust(widths[at]) if at in left else cell.rjust(widths[at])
            for at, cell in enumerate(row)
        ).rstrip()
        for row in rows
    )
