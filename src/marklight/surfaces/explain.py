"""Why an answer is as it is: two tables, of its stages and of its hits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from marklight.formatting import place

if TYPE_CHECKING:
    from marklight.answer import Answer

WIDTH = 100
"""Columns that a table keeps to where its places can be cut short."""
LEAST_PLACE = 24
"""Of a place that much is always shown."""
FOUND, EVIDENCE, ANY, AFTER = "found by", "evidence", "any", "score after"
"""Groups of columns; the third has one, and reads "any answer"."""


def explanation(answer: Answer) -> str:
    """Stages with what they left and how long they took; hits with what speaks for them and their scores."""
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
    from marklight.search.evidence import Evidence

    if not answer.hits:
        return ""
    order = {step.stage: at for at, step in enumerate(answer.steps)}

    def column(stage: str) -> tuple[int, int, int]:
        # A fusion is called by its own name here, and `fuse` among the stages; so it is with its parts.
        at, group = order.get(stage, order.get("fuse", 0)), _group(stage)
        part = Evidence._fields.index(stage) if group == EVIDENCE else 0
        return at, (FOUND, EVIDENCE, ANY, AFTER).index(group), part

    stages = sorted({why.stage for hit in answer.hits for why in hit.why}, key=column)
    groups = [_group(stage) for stage in stages]
    heads = (
        stage.rjust(len(group)) if groups.count(group) == 1 else stage
        for stage, group in zip(stages, groups, strict=True)
    )
    rows: list[tuple[str, ...]] = [("", "score", *heads, "place")]
    for rank, hit in enumerate(answer.hits, 1):
        said = {why.stage: _number(why.value, _group(why.stage)) for why in hit.why}
        where = place(hit.chunk, answer.several_collections)
        scores = (said.get(stage, "") for stage in stages)
        rows.append((f"[{rank}]", f"{hit.score:.2f}", *scores, where))
    widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]) - 1)]
    room = max(LEAST_PLACE, WIDTH - sum(widths) - 2 * len(widths))
    table = _table([(*row[:-1], _cut(row[-1], room)) for row in rows], left=(len(rows[0]) - 1,))
    return f"{_above(('', '', *groups), widths)}\n{table}"


def _group(stage: str) -> str:
    """What stands above the columns: who found a hit, what speaks for it, how its score came about."""
    from marklight.search.evidence import Evidence
    from marklight.search.shares import RETRIEVERS

    if stage in RETRIEVERS:
        return FOUND
    if stage in Evidence._fields:
        return EVIDENCE
    return ANY if stage == "answer" else AFTER


def _above(groups: Sequence[str], widths: Sequence[int]) -> str:
    """Each group over the first of its columns."""
    line = ""
    for at, group in enumerate(groups):
        if group not in groups[:at]:
            line = line.ljust(sum(widths[:at]) + 2 * at) + group
    return line


def _number(value: float, group: str) -> str:
    """As exact as there is room for: BM25 may be far above 1."""
    return f"{value:.2f}" if group in (EVIDENCE, ANY) or abs(value) >= 10 else f"{value:.4f}"


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
