"""Questions of the development sets with what speaks for their candidates, by the product's own code."""

from __future__ import annotations

import random
import re
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from benchmarks._diaries import laid_out
from benchmarks._measure import SETS, set_path
from benchmarks.diary import KINDS
from benchmarks.everyday import OFF_TOPIC, VAULTS, Question, folder_of, is_useful, read_questions
from marklight.eval.collection import Collection, open_collection, render
from marklight.eval.dataset import Dataset, off_topic_queries, read_dataset, sample
from marklight.library import Library
from marklight.ports import FIELD_BOOSTS, VOCABULARY_SIZE, Snapshot, Tools
from marklight.query import Filters, Mode, Query
from marklight.search.features import (
    PassageFeatures,
    QueryFeatures,
    passage_features,
    query_features,
    with_missing_cosines,
)
from marklight.search.pipeline import RETRIEVERS_BY_MODE
from marklight.text.analyzer import query_terms

if TYPE_CHECKING:
    from marklight.model import Matrix, Vector

FEATURES = PassageFeatures._fields
CODE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{5,40}")
BEST_COVERAGE = QueryFeatures._fields.index("best_coverage")
RELATED = (
    {"cosqa-dev", "blue-book-anchors", "fastapi-anchors"},
    {"stackfaq", "blue-book-anchors"},
    {"anthropic-docs", "fastapi-anchors"},
)
"""Sets of which one may hold an answer to another's questions: these are not off topic there."""
FOREIGN = 40
"""Queries of each other set that are used as off-topic queries."""
VAGUE = {"kubernetes-anchors", "blue-book-anchors", "fastapi-anchors"}
"""Sets of link texts, which are no off-topic queries: *my other projects* or *encrypted at rest* may have an answer anywhere."""


WORDS, RARE = 60, 300
"""Single-word queries of each set, and how many commoner words are skipped: people type one
word as often as ten, and the sets have hardly any such questions."""


ONE_RIGHT_IN = 7
"""A similar term of the library is a right answer once in this many times, measured with a thesaurus
(`missing_words.py`), where only a passage with the synonym counts. Of its 3,200 words 417 then get results; with 3, 597."""


SMALL, FEW, ASKED_OF_FEW = 2, 25, 10
"""Small libraries made of each set, documents in each and questions that these are to answer: a vault
begins with a handful of notes, and of few passages none is near to something else by chance."""


MOST_CHARACTERS = 20_000
"""Of a document in a small library."""


@dataclass(frozen=True, slots=True)
class Case:
    """A question with its candidates, one row each; the best passages of a document stand for it."""

    rows: Matrix
    """Passage features."""
    documents: Vector
    """By numbers of their own."""
    grades: Vector
    """How relevant their documents are."""
    kept: Vector
    """Not those of a page that holds the question word for word."""
    useful: Vector
    """Which rows contain the answer; none where only documents are judged."""
    passages_judged: bool
    """Whether scores are learned from and compared with the passages that contain the answer, not with their documents."""
    query: Vector
    """Query features."""
    level: dict[str, float]
    """Level of unrelated queries in its library."""
    ideal: tuple[int, ...]
    """The grades of all that answers the question, found or not; empty for a question off topic."""
    judged: bool = True
    """Whether its candidates may be counted: not those of a word, and not those of a small library."""
    word: bool = False
    """Whether it is a single word that the library has, or does not have."""
    unsure: bool = False
    """Whether nobody knows if it has an answer: learned from as having one at times, and not counted."""

    @property
    def right(self) -> Vector:
        """Which rows are right: passages with the answer where they are known, else those of relevant documents."""
        return self.useful if self.passages_judged else (self.grades > 0).astype(np.float32)


MANY_ANSWERS = ("vaswani",)
"""Sets whose questions have many right answers."""
SECTIONS = ("sections-azure-devops", "sections-boolq", "sections-docker")
"""Queries about one section of a document. Those of the other sources, and questions about `keps`, are kept back."""
EVERYDAY = ("paraphrases", "single-words", "tldr", "vault", *SECTIONS, *VAULTS)
"""Everyday questions."""
DIARIES = ("diary", "journal", "minutes")
"""Generated collections whose documents are similar to each other."""
NEAR_TO = {
    "tldr": {name for name in SETS if name not in ("scifact-train", "cranfield")},
    "vault": {"blue-book-anchors"},
    **{
        name: {name for name in SETS if name not in ("scifact-train", "cranfield")}
        for name in (*SECTIONS, *VAULTS)
    },
}
"""Sets whose questions may be answered by a collection of everyday questions."""
CODE_SETS, CODE_QUERIES = ("kubernetes-anchors", "blue-book-anchors", "fastapi-anchors"), 100
"""Sets with code blocks, and how many names of each set's code are asked for."""


MODES = ("hybrid", "semantic", "keyword")
"""Modes whose cases are computed together: they share the lists of the retrievers."""
ByMode = dict[str, Case]


def _by_mode(found: dict[str, list[ByMode]]) -> dict[str, dict[str, list[Case]]]:
    return {
        mode: {name: [one[mode] for one in each if mode in one] for name, each in found.items()}
        for mode in MODES
    }


def all_cases() -> dict[str, dict[str, list[Case]]]:
    """The cases of every set that is learned from, by mode and set."""
    found = {name: cases(name) for name in (*SETS, *MANY_ANSWERS)}
    found |= {name: everyday_cases(name) for name in EVERYDAY}
    found |= {name: diary_cases(name) for name in DIARIES}
    by_mode = _by_mode(found)
    # Keyword search finds one of eighty paraphrases.
    by_mode["keyword"] = {
        name: each for name, each in by_mode["keyword"].items() if name != "paraphrases"
    }
    return by_mode | {"code": {name: code_cases(name) for name in CODE_SETS}}


def everyday_cases(name: str) -> list[ByMode]:
    """Everyday questions, with their own off-topic ones and those of sets about other things."""
    found = []
    for place, questions in read_questions(name).items():
        dataset = Dataset(place, (), folder=folder_of(place).resolve())
        if name in NEAR_TO:
            others = [other for other in SETS if other not in NEAR_TO[name]]
            foreign = (*off_topic_queries(), *_queries_of(others))
            questions = [*questions, *(Question(text, OFF_TOPIC, {}) for text in foreign)]
        with (
            open_collection(dataset, "hybrid") as collection,
            collection.library.engine.snapshot() as snapshot,
        ):
            found += [
                _cases(
                    collection, snapshot, one.text, dict.fromkeys(one.answers, 1), set(), marks=one
                )
                for one in questions
            ]
    return found


def diary_cases(name: str) -> list[ByMode]:
    """Questions about one day of a generated diary or one meeting, and about what never happened."""
    entries, queries = KINDS[name]()
    with tempfile.TemporaryDirectory() as folder:
        texts = dict(laid_out(entries, "day"))
        for path, text in texts.items():
            (Path(folder) / path).write_text(text, "utf-8")
        with Library(Path(folder), {}) as library:
            library.index()
            days = Collection(library, {}, {})
            with library.engine.snapshot() as snapshot:
                requests = [
                    (
                        one.text,
                        {path: 1 for path in texts if one.answer and one.answer in texts[path]},
                    )
                    for one in queries
                ]
                requests += [(text, {}) for text in off_topic_queries()]
                return [_cases(days, snapshot, *each, set()) for each in requests]


def code_cases(name: str) -> list[Case]:
    """Names in the code of a set, each answered by every document with that name in its code; others off topic."""
    chance = random.Random(name)
    with (
        open_collection(read_dataset(set_path(name)), "code") as collection,
        collection.library.engine.snapshot() as snapshot,
    ):
        holders: dict[str, dict[str, int]] = {}
        for id in snapshot.documents.files():
            for chunk in snapshot.documents.chunks_of(id):
                for word in set(CODE_NAME.findall(chunk.code or "")):
                    holders.setdefault(word, {})[collection.ids.get(id.path, id.path)] = 1
        asked = [
            (word, holders[word])
            for word in chance.sample(sorted(holders), min(CODE_QUERIES, len(holders)))
        ]
        two = [word for word in sorted(holders) if len(holders[word]) < 4]
        for word in chance.sample(two, min(CODE_QUERIES, len(two))):
            near = [each for each in two if holders[each].keys() & holders[word].keys()]
            pair = f"{word} {chance.choice(near)}"
            asked.append((pair, holders[word]))
        asked += [(text, {}) for text in off_topic(name)]
        found = [_cases(collection, snapshot, *each, set(), Mode.CODE) for each in asked]
    return [one["code"] for one in found if one]


def cases(name: str) -> list[ByMode]:
    """Every question of a set, and some that nothing in it answers."""
    dataset = read_dataset(set_path(name))
    with open_collection(dataset, "hybrid") as collection:
        library = collection.library
        with library.engine.snapshot() as snapshot:
            requests = [
                (one.text, {id: each.grade for id, each in one.answers.items()}, set(one.sources))
                for one in dataset.queries
            ]
            requests += [(text, {}, set()) for text in off_topic(name)]
            found = [_cases(collection, snapshot, *each) for each in requests]
            found += [
                one
                for own, word in (words(name, snapshot) if name in SETS else ())
                for one in _of_a_word(_cases(collection, snapshot, word, {}, set()), own)
            ]
    if name in SETS:
        found += [case for number in range(SMALL) for case in _of_a_few(dataset, number)]
    return found


def _of_a_word(found: ByMode, own: bool) -> Iterator[ByMode]:
    """Where a word is not there but one that means nearly the same, that is an answer once in so many times."""
    for mode, case in found.items():
        unsure = not own and case.query[BEST_COVERAGE] > 0
        for ideal in ((1,), *[()] * (ONE_RIGHT_IN - 1)) if unsure else ((1,) if own else (),):
            yield {mode: replace(case, word=True, judged=False, unsure=unsure, ideal=ideal)}


def _of_a_few(dataset: Dataset, number: int) -> Iterator[ByMode]:
    """Some questions and their answers, with some other documents, as a library of its own."""
    chance = random.Random(f"{dataset.name} {number}")
    requests = chance.sample(dataset.queries, min(ASKED_OF_FEW, len(dataset.queries)))
    with tempfile.TemporaryDirectory() as folder:
        names = _written(
            dataset, {id for one in requests for id in one.answers}, chance, Path(folder)
        )
        with Library(Path(folder), {}) as library:
            library.index()
            small = Collection(library, names, {})
            foreign = chance.sample(list(off_topic(dataset.name)), 2 * ASKED_OF_FEW)
            with library.engine.snapshot() as snapshot:
                for one in requests:
                    grades = {id: each.grade for id, each in one.answers.items()}
                    yield _unjudged(_cases(small, snapshot, one.text, grades, set(one.sources)))
                for text in foreign:
                    yield _unjudged(_cases(small, snapshot, text, {}, set()))


def _unjudged(found: ByMode) -> ByMode:
    return {mode: replace(case, judged=False) for mode, case in found.items()}


def _written(
    dataset: Dataset, wanted: set[str], chance: random.Random, folder: Path
) -> dict[str, str]:
    """The wanted documents and as many others as it takes; their names by path."""
    if dataset.folder is not None:
        every = [
            str(each.relative_to(dataset.folder)) for each in sorted(dataset.folder.rglob("*.md"))
        ]
        texts = {id: (dataset.folder / id).read_text("utf-8", "replace") for id in every}
    else:
        texts = {each.id: render(each) for each in dataset.texts}
    others = [id for id in texts if id not in wanted]
    chosen = [*sorted(wanted & set(texts)), *chance.sample(others, max(0, FEW - len(wanted)))]
    suffix = "md" if dataset.folder else "txt"
    names = {f"{number}.{suffix}": id for number, id in enumerate(chosen)}
    for path, id in names.items():
        (folder / path).write_text(texts[id][:MOST_CHARACTERS], "utf-8")
    return names


def words(name: str, snapshot: Snapshot) -> Iterator[tuple[bool, str]]:
    """Words of a set's vocabulary, and as many of the others' that stand nowhere in it."""
    chance = random.Random(name)
    own = vocabulary(snapshot)
    yield from ((True, word) for word in chance.sample(own[RARE:], min(WORDS, len(own[RARE:]))))
    for other in SETS:
        if other == name:
            continue
        with (
            open_collection(read_dataset(set_path(other)), "hybrid") as collection,
            collection.library.engine.snapshot() as theirs,
        ):
            foreign = vocabulary(theirs)[RARE:]
        strange = [
            word
            for word in foreign
            if not snapshot.lexical.search(query_terms(word), FIELD_BOOSTS, Filters(), 1)
        ]
        count = min(len(strange), WORDS // (len(SETS) - 1) + 1)
        yield from ((False, word) for word in chance.sample(strange, count))


def vocabulary(snapshot: Snapshot) -> list[str]:
    """All of it, the commonest first: no word has a vector of a model that there is not."""
    return snapshot.vocabulary.terms_without_vector("no model", VOCABULARY_SIZE)


def off_topic(name: str) -> Iterator[str]:
    """The forty that come with the program, and those of sets about other things."""
    yield from off_topic_queries()
    yield from _queries_of(
        other
        for other in SETS
        if other != name and not any({name, other} <= related for related in RELATED)
    )


def _queries_of(sets: Iterable[str]) -> Iterator[str]:
    for name in sets:
        if name in VAGUE:
            continue
        dataset = read_dataset(set_path(name))
        yield from sample([question.text for question in dataset.queries], FOREIGN)


_LEVELS: dict[str, dict[str, float]] = {}


def _level(library: Library, snapshot: Snapshot) -> dict[str, float]:
    """Measure the level of unrelated queries once for each library."""
    key = f"{library.place.folder} {snapshot.generation}"
    if key not in _LEVELS:
        tools = Tools(snapshot, library.models.embedder, explain=False)
        _LEVELS[key] = library.pipeline.unrelated_level(tools)
    return _LEVELS[key]


def _cases(
    collection: Collection,
    snapshot: Snapshot,
    text: str,
    answers: dict[str, int],
    sources: set[str],
    mode: Mode = Mode.HYBRID,
    marks: Question | None = None,
) -> ByMode:
    """Run the retrievers of a mode once, and return the case of that mode and of each of its retrievers alone.

    `marks` has the strings by which useful passages are recognised.
    """
    library = collection.library
    tools = Tools(snapshot, library.models.embedder)
    query = Query(text, mode=mode)
    for rewrite in library.pipeline.rewrite.values():
        query = rewrite(query, tools)
    retrieve = library.pipeline.retrieve
    lists = {
        name: retrieve[name](query, library.pipeline.candidate_count(query), tools)
        for name in RETRIEVERS_BY_MODE[query.mode]
        if name in retrieve
    }
    by_mode = {mode.value: with_missing_cosines(tools.pool(lists), query, tools)}
    if mode is Mode.HYBRID:
        by_mode |= {name: tools.pool({name: lists[name]}) for name in ("semantic", "keyword")}
    found = {}
    for name, pool in by_mode.items():
        if not pool.chunks:
            continue
        asked = replace(query, expanded_with={}) if name == "keyword" else query
        features = passage_features(pool, asked, tools)
        ids = [collection.ids.get(chunk.path, chunk.path) for chunk in pool.chunks]
        numbers = {each: number for number, each in enumerate(dict.fromkeys(ids))}
        found[name] = Case(
            rows=np.array(features).T,
            documents=np.array([numbers[each] for each in ids]),
            grades=np.array([answers.get(each, 0) for each in ids]),
            kept=np.array([each not in sources - set(answers) for each in ids]),
            useful=np.array(
                [marks is not None and is_useful(chunk, marks) for chunk in pool.chunks]
            ),
            passages_judged=marks is not None and bool(marks.pattern),
            query=np.array(query_features(pool, features, asked, tools)),
            level=_level(library, snapshot),
            ideal=tuple(answers.values()),
        )
    return found
