"""What each stage is worth: one change of the pipeline after the other, each against the whole."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from marklight.answer import Mode
from marklight.eval.quality import Quality
from marklight.eval.significance import p_value
from marklight.library.compose import stage_name
from marklight.search import pipeline
from marklight.search.pipeline import Pipeline
from marklight.settings import Settings


class Change(NamedTuple):
    """A change in words, and the setting that makes it."""

    name: str
    assignment: str


@dataclass(frozen=True, slots=True)
class Comparison:
    """What became of every measure by a change, and how likely chance alone does as much."""

    name: str
    assignments: tuple[str, ...]
    metrics: dict[str, float]
    difference: dict[str, float]
    p: dict[str, float]
    """Only for measures that each question has."""


def changes(whole: Pipeline, settings: Settings, mode: str) -> Iterator[Change]:
    """Every stage in force left out, every other one taken in, every other fusion in place of ours."""
    asked = [name for name in whole.retrieve if name in pipeline.ASKED[Mode(mode)]]
    # Without its only retriever a search finds nothing, which needs no measuring.
    legs = asked if len(asked) > 1 else []
    for name in (*whole.rewrite, *legs, *whole.refine):
        skipped = ",".join((*settings["search.skip"], name))
        yield Change(f"without {name}", f"search.skip={skipped}")
    for name in pipeline.OFF:
        if name not in (*settings["search.use"], *settings["search.skip"]):
            used = ",".join((*settings["search.use"], name))
            yield Change(f"with {name}", f"search.use={used}")
    if len(asked) > 1:
        for fusion in map(stage_name, pipeline.FUSE):
            if fusion != settings["search.fuse"]:
                yield Change(f"fuse by {fusion}", f"search.fuse={fusion}")


def compare(name: str, assignments: tuple[str, ...], first: Quality, second: Quality) -> Comparison:
    """The second against the first, over the same questions."""
    before, after = first.metrics, second.metrics
    return Comparison(
        name,
        assignments,
        metrics=after,
        difference={measure: after[measure] - before[measure] for measure in after},
        p={
            **{
                measure: p_value(values, second.by_question[measure])
                for measure, values in first.by_question.items()
            },
            "false_answers": p_value(first.false_answers, second.false_answers),
        },
    )


def ablate(
    whole: Quality,
    stages: Pipeline,
    settings: Settings,
    mode: str,
    measured: Callable[[Change], Quality],
) -> list[Comparison]:
    """Every change against the whole."""
    return [
        compare(change.name, (change.assignment,), whole, measured(change))
        for change in changes(stages, settings, mode)
    ]
