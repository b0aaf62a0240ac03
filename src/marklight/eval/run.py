"""Run the queries of a dataset with one configuration and aggregate the metrics; compare two runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from statistics import fmean

from marklight.answer import Answer, Hits
from marklight.errors import UsageError
from marklight.eval import metrics
from marklight.eval.collection import Collection, Place
from marklight.eval.dataset import Dataset, JudgedQuery
from marklight.lazy import dataclass
from marklight.operations import ModeName
from marklight.ports import Progress, no_progress
from marklight.query import Query
from marklight.search.compose import compose
from marklight.search.probability import TAIL

DEPTH = 100
"""Passages in a ranking: the maximum of a search."""
TOP = 10
"""Results that a user is assumed to look at, as nDCG@10 has it."""
BUDGETS = (500, 1_000, 2_000)
"""Token budgets of an assistant for which recall is measured. Hand-set; not measured."""
WARM_UP = "a question"
"""Query run before the others, so that none of them waits for the model to load."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """Result of one query."""

    query: JudgedQuery
    ranking: tuple[tuple[str, float], ...]
    """Ids with the score of their best passage, best first, each once."""
    within: Mapping[int, frozenset[str]]
    """Ids of the passages within each token budget."""
    answered: bool
    ms: float

    @property
    def ids(self) -> list[str]:
        """Return the ranking without scores."""
        return [id for id, _ in self.ranking]

    @property
    def grades(self) -> dict[str, int]:
        """Return the grades of the relevant ids."""
        return {id: judgement.grade for id, judgement in self.query.answers.items()}

    @property
    def best(self) -> float:
        """Return the highest score of a relevant result in the top 10; 0 without any."""
        top = self.ranking[:TOP]
        return max((score for id, score in top if id in self.grades), default=0.0)

    @property
    def missed(self) -> bool:
        """Return true if no relevant result is in the top 10."""
        return not metrics.success(self.ids, self.grades, TOP)


@dataclass(frozen=True)
class Run:
    """Outcomes of all queries with one configuration, and their metrics."""

    outcomes: Sequence[Outcome]
    false_answers: Sequence[bool]
    """For each off-topic query, whether it got an answer."""
    min_score: float
    """Lower scores are not shown."""
    notices: tuple[str, ...] = ()

    @cached_property
    def per_query(self) -> Mapping[str, Sequence[float]]:
        """Return the values of each metric in the order of the queries, for significance tests."""
        values = {
            name: [metric(outcome.ids, outcome.grades) for outcome in self.outcomes]
            for name, metric in metrics.PER_QUERY.items()
        }
        for budget in BUDGETS:
            values[f"recall@{budget}_tokens"] = [
                metrics.recall(tuple(outcome.within[budget]), outcome.grades)
                for outcome in self.outcomes
            ]
        values["answered"] = [float(outcome.answered) for outcome in self.outcomes]
        return values

    @property
    def results(self) -> list[tuple[float, bool]]:
        """Return the scores of the top 10 of all queries, each with its relevance."""
        return [
            (score, id in outcome.grades)
            for outcome in self.outcomes
            for id, score in outcome.ranking[:TOP]
        ]

    @property
    def lost(self) -> float:
        """Return the share of false abstentions among queries with a relevant result in the top 10."""
        answerable = sum(not outcome.missed for outcome in self.outcomes)
        return len(self.false_abstentions) / answerable if answerable else 0.0

    @property
    def false_abstentions(self) -> list[Outcome]:
        """Return the queries with a relevant result in the top 10 that is not shown."""
        return [
            outcome
            for outcome in self.outcomes
            if not outcome.missed and (not outcome.answered or outcome.best < self.min_score)
        ]

    @property
    def metrics(self) -> dict[str, float]:
        """Return all metrics by name."""
        means = {name: fmean(values) for name, values in self.per_query.items()}
        return {
            **means,
            "ece": metrics.calibration_error(self.results),
            "abstained": 1 - means["answered"],
            "false_answers": fmean(self.false_answers) if self.false_answers else 0.0,
            "lost": self.lost,
        }

    @property
    def latency_ms(self) -> dict[str, float]:
        """Return percentiles of the search time with model and index loaded."""
        times = [
            outcome.ms for outcome in self.outcomes if outcome.ms
        ]  # 0 if the query was rejected
        return {f"p{share}": metrics.percentile(times, share / 100) for share in (50, 95)}


@dataclass(frozen=True, slots=True)
class Comparison:
    """Differences of all metrics between two runs, with p values of the randomisation test."""

    name: str
    assignments: tuple[str, ...]
    metrics: dict[str, float]
    difference: dict[str, float]
    p: dict[str, float]
    """Only for metrics that have a value per query."""


def compare(name: str, assignments: tuple[str, ...], first: Run, second: Run) -> Comparison:
    """Compare the second run with the first, over the same queries."""
    before, after = first.metrics, second.metrics
    return Comparison(
        name,
        assignments,
        metrics=after,
        difference={metric: after[metric] - before[metric] for metric in after},
        p={
            **{
                metric: metrics.p_value(values, second.per_query[metric])
                for metric, values in first.per_query.items()
            },
            "false_answers": metrics.p_value(first.false_answers, second.false_answers),
        },
    )


def run_queries(
    collection: Collection,
    dataset: Dataset,
    places: Sequence[Mapping[str, Place]],
    off_topic: Sequence[str],
    mode: ModeName,
    progress: Progress = no_progress,
    phase: str = "Running queries",
) -> Run:
    """Search for every query twice: with default options, and to the measured depth without abstention.

    A query that is rejected has no results, and a notice reports it.
    """
    settings = collection.library.settings
    total = len(dataset.queries) + len(off_topic)
    rejected: list[str] = []
    outcomes = []
    # Raises if no query at all can be run.
    collection.library.search(WARM_UP, mode=mode, refresh=False)
    for done, (query, wanted) in enumerate(zip(dataset.queries, places, strict=True)):
        progress(phase, done, total)
        answer = _search(collection, query.text, mode, rejected)
        deep = _search(collection, query.text, mode, [], limit=DEPTH, min_confidence=0.0)
        if (
            dataset.drop_sources
        ):  # finding the document that contains the query verbatim proves nothing
            sources = set(query.sources) - set(query.answers)
            kept = tuple(hit for hit in deep.hits if collection.id_of(hit) not in sources)
            deep = replace(deep, hits=kept)
        outcomes.append(
            Outcome(
                query,
                ranking=_ranking(collection, deep.hits, wanted),
                within={
                    budget: frozenset(dict(_ranking(collection, _within(deep, budget), wanted)))
                    for budget in BUDGETS
                },
                answered=bool(answer.hits),
                ms=answer.took_ms,
            )
        )
    false_answers = []
    for done, text in enumerate(off_topic, len(dataset.queries)):
        progress(phase, done, total)
        false_answers.append(bool(_search(collection, text, mode, rejected).hits))
    progress(phase, total, total)
    notices: tuple[str, ...] = ()
    if rejected:
        notices = (f"queries that were rejected: {len(rejected)}, such as {rejected[0]}",)
    skipped = "confidence" in settings["search.skip"]
    min_score = 0.0 if skipped else TAIL
    return Run(outcomes, false_answers, min_score, notices)


def _search(
    collection: Collection,
    text: str,
    mode: ModeName,
    rejected: list[str],
    limit: int = TOP,
    min_confidence: float | None = None,
) -> Answer:
    try:
        return collection.library.search(
            text, limit=limit, mode=mode, min_confidence=min_confidence, refresh=False
        )
    except UsageError as error:
        rejected.append(f"{text!r}: {error}")
        return Answer(Query(text), ())


def _within(answer: Answer, tokens: int) -> Hits:
    """Return the passages that a token budget has room for."""
    return compose(answer.hits, replace(answer.query, max_tokens=tokens), False).shown


def _ranking(
    collection: Collection, hits: Hits, wanted: Mapping[str, Place]
) -> tuple[tuple[str, float], ...]:
    """Return the answers that passages are part of, else the ids of their documents, each with its best score."""
    scores: dict[str, float] = {}
    for hit in hits:
        document = collection.id_of(hit)
        answers = [id for id, place in wanted.items() if place.overlaps(hit, document)]
        for id in answers or [document]:
            scores[id] = max(hit.score, scores.get(id, 0.0))
    return tuple(scores.items())
