"""Test collections: judged queries, documents, and datasets written in TOML."""

from __future__ import annotations

import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from marklight import toml_values
from marklight.errors import UsageError

SEED = 4
"""Seed of samples and significance tests, fixed so that they can be repeated; any number will do."""
DATASET_FILE = "dataset.toml"
"""A folder with this file is a dataset with the folder's name."""
EXAMPLE = """\
corpus = "docs"                            # a folder of Markdown, relative to this file
off_topic = ["how do I prune roses"]       # queries without an answer in it; default: 40 built-in queries

[[questions]]
text = "how long are backups kept"
answers = ["guides/database.md#backups"]   # path, path#heading or path:10-40, as for `marklight get`

[[questions]]                              # as many as you like
text = "who may deploy"
answers = ["guides/deployment.md", "team.md"]
"""
HELP = f"""\
`marklight eval` runs queries with known answers and measures how often the answers are found and how
high they rank. Write queries that you really use to a file such as questions.toml. Thirty are a good
start.

{EXAMPLE}
then run: marklight eval questions.toml

Datasets in the BEIR layout work as well: corpus.jsonl with _id, title and text, queries.jsonl with _id
and text, and qrels/test.tsv with query-id, corpus-id and score. A dataset.toml with corpus = "folder"
replaces corpus.jsonl; ids are then paths in that folder.
"""

_KEYS = ("name", "corpus", "drop_sources", "off_topic", "questions")
_HEADER = re.compile(r"^\s*\[\[\s*questions\s*\]\]")

Value = TypeVar("Value")


class Judgement(NamedTuple):
    """A relevance grade, 1 or more, and the line of the file that states it."""

    grade: int
    where: str


class Text(NamedTuple):
    """A document that is part of a dataset."""

    id: str
    title: str
    text: str


@dataclass(frozen=True, slots=True)
class JudgedQuery:
    """A query with its relevance judgements by document id or reference."""

    id: str
    text: str
    answers: Mapping[str, Judgement]
    sources: tuple[str, ...] = ()
    """Documents that contain the query verbatim, where it was taken from them."""


@dataclass(frozen=True, slots=True)
class Dataset:
    """Judged queries on documents, which are either texts or a folder."""

    name: str
    queries: tuple[JudgedQuery, ...]
    texts: tuple[Text, ...] = ()
    folder: Path | None = None
    references: bool = False
    """True if answers are references as for `marklight get`, false if they are ids of documents."""
    drop_sources: bool = False
    off_topic: tuple[str, ...] = ()
    """Queries that no document answers."""
    notices: tuple[str, ...] = field(default=())

    def sampled(self, count: int | None) -> Dataset:
        """Return the dataset with a repeatable sample of its queries, in their order."""
        if count is None or count >= len(self.queries):
            return self
        return replace(self, queries=tuple(sample(self.queries, count)))


def sample(values: Sequence[Value], count: int) -> list[Value]:
    """Return a repeatable random sample, in the order of the values."""
    chosen = random.Random(SEED).sample(range(len(values)), min(count, len(values)))
    return [values[index] for index in sorted(chosen)]


@dataclass(frozen=True, slots=True)
class TomlDataset:
    """Contents of a TOML file that describes a dataset."""

    name: str
    corpus: Path
    drop_sources: bool = False
    off_topic: tuple[str, ...] = ()
    queries: tuple[JudgedQuery, ...] | None = field(default=None)
    """None if the file has none and they are in BEIR files beside it."""


def read_toml(file: Path) -> TomlDataset:
    """Parse and check a TOML dataset; errors name the line."""
    try:
        text = file.read_text("utf-8-sig")
        values = toml_values.loads(text)
    except OSError as error:
        raise UsageError(f"Cannot read {file}: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise UsageError(
            f"{file} is not TOML: {error}", "`marklight eval` prints an example"
        ) from None
    if unknown := sorted(set(values) - set(_KEYS)):
        raise UsageError(f"{file} has the unknown key {unknown[0]!r}", f"Known: {', '.join(_KEYS)}")
    default_name = file.resolve().parent.name if file.name == DATASET_FILE else file.stem
    return TomlDataset(
        name=_value(file, values, "name", str, default_name),
        corpus=_corpus(file, values),
        drop_sources=_value(file, values, "drop_sources", bool, False),
        off_topic=_strings(values.get("off_topic", []), f"{file}: off_topic"),
        queries=_queries(file, values["questions"], text) if "questions" in values else None,
    )


def _corpus(file: Path, values: dict[str, Any]) -> Path:
    corpus = _value(file, values, "corpus", str, None)
    if not corpus:
        raise UsageError(
            f"{file} has no corpus",
            'Add corpus = "docs", a folder of Markdown relative to the file',
        )
    try:
        folder = (file.parent / Path(corpus).expanduser()).resolve()
        is_folder = folder.is_dir()
    except (RuntimeError, ValueError, OSError) as error:
        raise UsageError(f"{file}: corpus = {corpus!r} is not a path: {error}") from None
    if not is_folder:
        raise UsageError(
            f"{file}: corpus = {corpus!r} is not a folder: {folder}",
            "Give a folder of Markdown, relative to the file",
        )
    return folder


def _queries(file: Path, values: Any, text: str) -> tuple[JudgedQuery, ...]:
    expected = 'Expected [[questions]] with text = "…" and answers = ["path.md#heading"]'
    if not isinstance(values, list) or not values:
        raise UsageError(f"{file} has no questions", expected)
    headers = [number for number, line in enumerate(text.split("\n"), 1) if _HEADER.match(line)]
    queries: list[JudgedQuery] = []
    for index, value in enumerate(values):
        # An inline list has no headers, so only its questions are numbered.
        where = f"{file}:{headers[index]}" if len(headers) == len(values) else f"{file}"
        where = f"{where}: question {index + 1}"
        if not isinstance(value, dict):
            raise UsageError(f"{where} is not a table", expected)
        if unknown := sorted(set(value) - {"text", "answers"}):
            raise UsageError(f"{where} has the unknown key {unknown[0]!r}", expected)
        query = value.get("text")
        if not isinstance(query, str) or not query.strip():
            raise UsageError(f"{where} has no text", expected)
        answers = _strings(value.get("answers"), f"{where}: answers")
        if not answers:
            raise UsageError(f"{where} has no answers", expected)
        same = next((other for other in queries if other.text == query), None)
        if same is not None:
            raise UsageError(
                f"{where} is the same as question {same.id}: {query!r}",
                "Put all answers to a question into one list",
            )
        judged = {answer: Judgement(1, where) for answer in answers}
        queries.append(JudgedQuery(str(index + 1), query, judged))
    return tuple(queries)


def _strings(value: Any, where: str) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(
        isinstance(item, str) and item.strip() for item in value
    ):
        raise UsageError(f"{where} must be a list of strings", 'Expected ["…", "…"]')
    return tuple(dict.fromkeys(value))


def _value(file: Path, values: dict[str, Any], key: str, kind: type, default: Any) -> Any:
    value = values.get(key, default)
    if value is not default and not isinstance(value, kind):
        expected = "true or false" if kind is bool else "a string"
        raise UsageError(f"{file}: {key} must be {expected}, not {value!r}")
    return value
