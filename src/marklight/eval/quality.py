"""How good one configuration is: every question asked twice, as a user would and to the depth that is measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean

from marklight.answer import Answer, Hit, Hits, Query
from marklight.errors import UsageError
from marklight.eval import metrics
from marklight.eval.collection import Collection, Place
from marklight.eval.dataset import Dataset, Question
from marklight.ports import Progress, silent
from marklight.search.present import within_budget

DEPTH = 100
"""Passages in a ranking: the most that a search returns."""
SHOWN = 10
"""Results that a user is taken to look at."""
BUDGETS = (500, 1_000, 2_000)
"""Tokens that an assistant may spare for what was found."""
WARM_UP = "a question"
"""Asked before the others, so that none of them waits for the model to be loaded."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of one question."""

    question: Question
    ranking: tuple[tuple[str, float], ...]
    """What was found, best first, each once with its best passage's score."""
    within: Mapping[int, frozenset[str]]
    """What passages within a token budget are from."""
    answered: bool
    ms: float

    @property
    def names(self) -> list[str]:
        """The ranking without scores."""
        return [name for name, _ in self.ranking]

    @property
    def grades(self) -> dict[str, int]:
        """What should be found."""
        return {name: one.grade for name, one in self.question.answers.items()}

    @property
    def best(self) -> float:
        """The score of the likeliest answer that a user would have looked at; 0 without any."""
        seen = self.ranking[:SHOWN]
        return max((score for name, score in seen if name in self.grades), default=0.0)

    @property
    def missed(self) -> bool:
        """Whether a user would have looked in vain."""
        return not metrics.success(self.names, self.grades, SHOWN)


@dataclass(frozen=True)
class Quality:
    """One configuration's outcomes, question by question and all together."""

    outcomes: Sequence[Outcome]
    false_answers: Sequence[bool]
    """For each question that nothing answers, whether something was said nevertheless."""
    least: float
    """Lower scores are not shown."""
    notices: tuple[str, ...] = ()
    by_question: Mapping[str, Sequence[float]] = field(init=False)
    """Each measure's values, in the order of the questions; what significance is reckoned from."""

    def __post_init__(self) -> None:
        counted = {
            name: [measure(one.names, one.grades) for one in self.outcomes]
            for name, measure in metrics.BY_QUESTION.items()
        }
        for budget in BUDGETS:
            counted[f"recall@{budget}_tokens"] = [
                metrics.recall(tuple(one.within[budget]), one.grades) for one in self.outcomes
            ]
        counted["answered"] = [float(one.answered) for one in self.outcomes]
        object.__setattr__(self, "by_question", counted)

    @property
    def results(self) -> list[tuple[float, bool]]:
        """Scores of what a user looks at, and whether it was relevant."""
        return [
            (score, name in one.grades)
            for one in self.outcomes
            for name, score in one.ranking[:SHOWN]
        ]

    @property
    def lost(self) -> float:
        """Share of questions with an answer among the first that is held back as unlikely."""
        found = sum(not one.missed for one in self.outcomes)
        return len(self.held_back) / found if found else 0.0

    @property
    def held_back(self) -> list[Outcome]:
        """Those with an answer among the first that nobody is shown."""
        return [
            one
            for one in self.outcomes
            if not one.missed and (not one.answered or one.best < self.least)
        ]

    @property
    def metrics(self) -> dict[str, float]:
        """Every measure by its name."""
        means = {name: fmean(values) for name, values in self.by_question.items()}
        return {
            **means,
            "ece": metrics.calibration_error(self.results),
            "abstained": 1 - means["answered"],
            "false_answers": fmean(self.false_answers) if self.false_answers else 0.0,
            "lost": self.lost,
        }

    @property
    def latency_ms(self) -> dict[str, float]:
        """Of a search as a user asks it, the model and the index at hand."""
        times = [one.ms for one in self.outcomes if one.ms]  # one that was refused took none
        return {f"p{share}": metrics.percentile(times, share / 100) for share in (50, 95)}


def measure(
    collection: Collection,
    dataset: Dataset,
    places: Sequence[Mapping[str, Place]],
    off_topic: Sequence[str],
    mode: str,
    progress: Progress = silent,
    phase: str = "Asking",
) -> Quality:
    """Ask everything; a question that cannot be asked has found nothing, and is told."""
    settings = collection.library.settings
    total = len(dataset.questions) + len(off_topic)
    refused: list[str] = []
    outcomes = []
    # Fails where no question at all could be asked.
    collection.library.search(WARM_UP, mode=mode, refresh=False)
    for done, (question, wanted) in enumerate(zip(dataset.questions, places, strict=True)):
        progress(phase, done, total)
        answer = _ask(collection, question.text, mode, refused)
        deep = _ask(collection, question.text, mode, [], limit=DEPTH, min_confidence=0.0)
        if dataset.drop_sources:
            deep = replace(deep, hits=_without_sources(collection, deep.hits, question))
        outcomes.append(
            Outcome(
                question,
                ranking=_ranking(collection, deep.hits, wanted),
                within={budget: _within(collection, deep, wanted, budget) for budget in BUDGETS},
                answered=bool(answer.hits),
                ms=answer.took_ms,
            )
        )
    said = []
    for done, text in enumerate(off_topic, len(dataset.questions)):
        progress(phase, done, total)
        said.append(bool(_ask(collection, text, mode, refused).hits))
    progress(phase, total, total)
    skipped = "confidence" in settings["search.skip"]
    notices: tuple[str, ...] = ()
    if refused:
        notices = (f"questions that could not be asked: {len(refused)}, such as {refused[0]}",)
    return Quality(outcomes, said, 0.0 if skipped else settings["search.confidence.tail"], notices)


def _ask(
    collection: Collection,
    text: str,
    mode: str,
    refused: list[str],
    limit: int = SHOWN,
    min_confidence: float | None = None,
) -> Answer:
    try:
        return collection.library.search(
            text, limit=limit, mode=mode, min_confidence=min_confidence, refresh=False
        )
    except UsageError as error:
        refused.append(f"{text!r}: {error}")
        return Answer(Query(text), ())


def _without_sources(collection: Collection, hits: Hits, question: Question) -> Hits:
    """A page that holds the question word for word is found by that, which says nothing."""
    sources = set(question.sources) - set(question.answers)
    return tuple(hit for hit in hits if collection.called(hit) not in sources)


def _ranking(
    collection: Collection, hits: Hits, wanted: Mapping[str, Place]
) -> tuple[tuple[str, float], ...]:
    found: dict[str, float] = {}
    for hit in hits:
        for name in _names(collection.called(hit), hit, wanted):
            found[name] = max(hit.score, found.get(name, 0.0))
    return tuple(found.items())


def _names(document: str, hit: Hit, wanted: Mapping[str, Place]) -> list[str]:
    """The answers that a passage gives; one that gives none stands for its document."""
    given = [name for name, place in wanted.items() if place.holds(hit, document)]
    return given or [document]


def _within(
    collection: Collection, answer: Answer, wanted: Mapping[str, Place], budget: int
) -> frozenset[str]:
    """Of what `--max-tokens` would leave; a passage that is cut counts, for it is shown."""
    cut = within_budget(replace(answer, query=replace(answer.query, max_tokens=budget)))
    return frozenset(name for name, _ in _ranking(collection, cut.hits, wanted))
