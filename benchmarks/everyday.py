"""Measure everyday questions: is the first passage useful, what is refused wrongly, what off-topic query is answered.

    python -m benchmarks.everyday [NAME …] [--label LABEL]

A name is a file of `benchmarks/questions` without its ending; without names, all are measured. Questions are run through
`library.search` with default settings and ten results. Indexes are kept in the user's cache, or in MARKLIGHT_CACHE_DIR.
Results of other labels stay in `benchmarks/results/everyday.json`, so that two versions can be compared.
"""

from __future__ import annotations

import argparse
import json
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks._measure import corpus, eval_root, result_path
from benchmarks._sections import PREFIX, SOURCES, sections, sections_folder
from benchmarks._vault_questions import VaultWithQuestions
from marklight.answer import Answer
from marklight.eval.collection import open_collection
from marklight.eval.dataset import Dataset, off_topic_queries
from marklight.library import Library
from marklight.model import Chunk
from marklight.private_files import cache_folder

QUESTIONS = Path(__file__).parent / "questions"
RESULTS = 10
"""Results of each search: the right document in ten, ten documents of a broad query."""
CONFIDENT = 0.5
"""An off-topic query that is answered with this score or more misleads a person."""
OFF_TOPIC, BROAD = "off-topic", "broad"
VAULT = "vault"
"""The set and the collection that are generated: 400 notes from six templates."""
VAULTS = ("ghdocs", "govuk", "recipes", "sourcegraph")
"""Vaults with everyday questions, whose answers are patterns in the text."""
GLOSSARY, GLOSSARY_FOLDER = "glossary", "reference/glossary"
"""The set of questions for the terms of Kubernetes' glossary, and its folder in the corpus."""
ASKED = {"term": "{}", "what is": "what is {}", "meaning": "what does {} mean"}
"""Kinds of these questions: they are answered equally well if question words are no content."""
SEED = 20240501
"""Seed of the vault; any number gives another one of the same kind."""
_MARKUP = re.compile(r"^#+\s+|[`*_]|\s+")


@dataclass(frozen=True, slots=True)
class Question:
    """A query as typed, and for each right document the strings that mark its useful passages; none: any passage."""

    text: str
    kind: str
    answers: Mapping[str, Sequence[str]]
    pattern: str = ""
    """Regular expression that a useful passage of a right document matches; empty: `answers` has strings."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """Record the results of a search for one question."""

    question: Question
    documents: tuple[str, ...]
    """Paths of the results, best first; a document with two passages occurs twice."""
    useful: bool
    score: float

    @property
    def right(self) -> int:
        """Return the number of different right documents among the results."""
        return len(set(self.documents) & set(self.question.answers))

    @property
    def first_right(self) -> bool:
        return bool(self.documents) and self.documents[0] in self.question.answers

    @property
    def failure(self) -> str:
        """Return what is wrong with the results; empty if nothing is."""
        if self.question.kind == OFF_TOPIC:
            return "answered" if self.documents else ""
        if not self.documents:
            return "refused"
        if self.question.kind == BROAD:
            return "" if len(set(self.documents)) == RESULTS else "several passages of one document"
        if self.useful:
            return ""
        if self.first_right:
            return "other passage of the right document"
        return "right document below" if self.right else "right document missing"

    def to_dict(self) -> dict[str, Any]:
        first = (
            {"first": self.documents[0], "score": round(self.score, 3)} if self.documents else {}
        )
        return {
            "text": self.question.text,
            "kind": self.question.kind,
            "failure": self.failure,
        } | first


def read_questions(name: str) -> dict[str, list[Question]]:
    """Return the questions of a file, or of the vault, by collection."""
    if name == VAULT:
        asked = written_vault().questions()
        return {VAULT: [Question(text, kind, dict(answers)) for kind, text, answers in asked]}
    if name == GLOSSARY:
        terms = sorted(_glossary().items())
        return {
            "kubernetes": [
                Question(form.format(term), kind, {path: ()})
                for kind, form in ASKED.items()
                for path, term in terms
            ]
        }
    if name in VAULTS:
        file = folder_of(name).parent / "questions.toml"
        values = tomllib.loads(file.read_text("utf-8"))["question"]
        return {name: [_of_a_vault(value) for value in values]}
    if name.startswith(PREFIX):
        found = sections(name.removeprefix(PREFIX))
        questions = [Question(text, kind, {path: marks}) for kind, text, path, marks in found]
        return {name: [*questions, *(Question(one, OFF_TOPIC, {}) for one in off_topic_queries())]}
    values = tomllib.loads((QUESTIONS / f"{name}.toml").read_text("utf-8"))
    by_collection: dict[str, list[Question]] = {}
    for value in values["question"]:
        answers = {answer["path"]: answer["contains"] for answer in value["answers"]}
        for collection in [value["collection"]] if "collection" in value else values["collections"]:
            question = Question(value["text"], value["kind"], answers)
            by_collection.setdefault(collection, []).append(question)
    return by_collection


def _glossary() -> dict[str, str]:
    """Return the terms of the glossary by path."""
    root = corpus("kubernetes")
    texts = {path: path.read_text("utf-8") for path in (root / GLOSSARY_FOLDER).glob("*.md")}
    titles = {path: re.search(r"^title: *(.+)$", text, re.M) for path, text in texts.items()}
    return {
        path.relative_to(root).as_posix(): match[1].strip("\"' ")
        for path, match in titles.items()
        if match and not path.name.startswith("_")
    }


def _of_a_vault(value: Mapping[str, Any]) -> Question:
    right = dict.fromkeys(value.get("files", ()), ())
    kind = value["kind"] if right else OFF_TOPIC
    return Question(value["query"], kind, right, value.get("answer", ""))


def names() -> list[str]:
    made = [VAULT, GLOSSARY, *VAULTS, *(f"{PREFIX}{source}" for source in SOURCES)]
    return sorted([*made, *(path.stem for path in QUESTIONS.glob("*.toml"))])


def vault_folder() -> Path:
    return cache_folder() / "eval" / "vault-notes" / VAULT


def written_vault() -> VaultWithQuestions:
    """Generate the vault, and write the notes that are missing or differ."""
    vault = VaultWithQuestions(SEED)
    vault.build()
    for path, note in vault.notes.items():
        file, text = vault_folder() / path, note["text"] + "\n"
        if not file.exists() or file.read_text("utf-8") != text:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, "utf-8")
    return vault


def folder_of(collection: str) -> Path:
    """Return the documents of a collection, those of a generated one from the cache."""
    if collection == VAULT:
        return vault_folder()
    if collection in VAULTS:
        return eval_root() / "vaults" / collection / "docs"
    source = collection.removeprefix(PREFIX)
    return corpus(collection) if source == collection else sections_folder(source)


@contextmanager
def opened(collection: str) -> Iterator[Library]:
    folder = folder_of(collection)
    dataset = Dataset(collection, (), folder=folder.resolve())
    with open_collection(dataset, "hybrid") as opened:
        yield opened.library


def outcome(question: Question, answer: Answer) -> Outcome:
    hits = answer.hits
    return Outcome(
        question,
        tuple(hit.chunk.path for hit in hits),
        bool(hits) and is_useful(hits[0].chunk, question),
        hits[0].score if hits else 0.0,
    )


def is_useful(chunk: Chunk, question: Question) -> bool:
    """Return true for a passage of a right document that contains one of its strings, in text or headings."""
    wanted = question.answers.get(chunk.path)
    if wanted is None:
        return False
    passage = plain("\n".join((*chunk.headings, chunk.text)))
    if question.pattern:
        return any(re.search(question.pattern, text) for text in (chunk.text, passage))
    return not wanted or any(plain(each) in passage for each in wanted)


def plain(text: str) -> str:
    """Return text without emphasis, backticks and heading marks, with single spaces."""
    lines = (
        _MARKUP.sub(lambda match: " " if match[0].isspace() else "", line)
        for line in text.split("\n")
    )
    return " ".join(" ".join(lines).split())


def figures(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """Return counts over the questions that have an answer, those that have none, and broad ones."""
    answerable = [each for each in outcomes if each.question.kind not in (OFF_TOPIC, BROAD)]
    off_topic = [each for each in outcomes if each.question.kind == OFF_TOPIC]
    broad = [each for each in outcomes if each.question.kind == BROAD]
    counts: dict[str, Any] = {}
    if answerable:
        counts |= {
            "answerable": len(answerable),
            "first passage useful": sum(each.useful for each in answerable),
            "right document first": sum(each.first_right for each in answerable),
            "right document in ten": sum(each.right > 0 for each in answerable),
            "refused wrongly": sum(not each.documents for each in answerable),
        }
    if off_topic:
        counts |= {
            "off topic": len(off_topic),
            "off topic, answered": sum(bool(each.documents) for each in off_topic),
            "off topic, answered with .5": sum(each.score >= CONFIDENT for each in off_topic),
        }
    if broad:
        counts |= {
            "broad": len(broad),
            "documents in ten": [len(set(each.documents)) for each in broad],
            "right documents in ten": [each.right for each in broad],
            "right documents": [len(each.question.answers) for each in broad],
        }
    return counts


def report(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    kinds = dict.fromkeys(each.question.kind for each in outcomes)
    by_kind = {
        kind: figures([each for each in outcomes if each.question.kind == kind]) for kind in kinds
    }
    failures = [each.to_dict() for each in outcomes if each.failure]
    return {**figures(outcomes), "kinds": by_kind, "failures": failures}


def measure(name: str) -> dict[str, Any]:
    """Run the questions of a file; several collections are reported together and one by one."""
    every: list[Outcome] = []
    parts: dict[str, Any] = {}
    for collection, questions in read_questions(name).items():
        with opened(collection) as library:
            outcomes = [
                outcome(each, library.search(each.text, limit=RESULTS, refresh=False))
                for each in questions
            ]
        every += outcomes
        parts[collection] = figures(outcomes)
    return {**report(every), **({"collections": parts} if len(parts) > 1 else {})}


def show(name: str, result: Mapping[str, Any]) -> None:
    print(f"== {name}")
    for key, value in result.items():
        if key in ("kinds", "collections"):
            for part, counts in value.items():
                print(f"   {part}: {', '.join(f'{key} {count}' for key, count in counts.items())}")
        elif key != "failures":
            print(f"   {key}: {value}")
    for each in result["failures"]:
        first = f"   {each['first']} ({each['score']})" if "first" in each else ""
        print(f"   - {each['failure']}: {each['text']} [{each['kind']}]{first}")


def keep(label: str, name: str, result: Mapping[str, Any]) -> None:
    """Write the result of a file of questions beside those of other files and labels."""
    path = result_path("everyday")
    kept = json.loads(path.read_text("utf-8")) if path.exists() else {}
    kept.setdefault(label, {})[name] = result
    path.write_text(json.dumps(kept, indent=1, ensure_ascii=False) + "\n", "utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(names()))
    parser.add_argument("--label", default="now", help="key of the results (default: now)")
    given = parser.parse_args()
    if unknown := sorted(set(given.names) - set(names())):
        parser.error(f"unknown: {', '.join(unknown)}; known: {', '.join(names())}")
    for name in given.names or names():
        result = measure(name)
        show(name, result)
        keep(given.label, name, result)


if __name__ == "__main__":
    main()
