"""Datasets: judged queries on documents, read from the BEIR layout or a TOML file.

BEIR: corpus.jsonl, queries.jsonl, qrels/test.tsv (Thakur et al., NeurIPS 2021).
"""

from __future__ import annotations

import json
import os
import random
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any, NamedTuple, TypeVar

import msgspec
from msgspec import Meta, Struct

from marklight import toml_values
from marklight.errors import UsageError
from marklight.lazy import dataclass

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
QUERIES = "queries.jsonl"
CORPUS = "corpus.jsonl"
QRELS = "qrels/test.tsv"
EXPECTED = {
    QUERIES: 'one query per line: {"_id": "q1", "text": "how do tokens expire"}',
    CORPUS: 'one document per line: {"_id": "d1", "title": "Tokens", "text": "They expire after …"}',
    QRELS: "one judgement per line, tab-separated: query-id, corpus-id, score (an integer, 0 for not relevant)",
}
MAX_QUOTED = 80
"""Characters of a wrong line that an error quotes. Hand-set; not measured."""
_EXAMPLE_HINT = "`marklight eval` without an argument shows how to write one"
_HEADER = re.compile(r"^\s*\[\[\s*questions\s*\]\]")
_Text = Annotated[str, Meta(pattern=r"\S")]

Value = TypeVar("Value")
Row = TypeVar("Row", bound="_Document | _Query")


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
    notices: tuple[str, ...] = ()

    def sampled(self, count: int | None) -> Dataset:
        """Return the dataset with a repeatable sample of its queries, in their order."""
        if count is None or count >= len(self.queries):
            return self
        return replace(self, queries=tuple(sample(self.queries, count)))


def sample(values: Sequence[Value], count: int) -> list[Value]:
    """Return a repeatable random sample, in the order of the values."""
    chosen = random.Random(SEED).sample(range(len(values)), min(count, len(values)))
    return [values[index] for index in sorted(chosen)]


class _Document(Struct):
    """A line of corpus.jsonl."""

    id: str | int = msgspec.field(name="_id")
    text: str
    title: str | None = None


class _Query(Struct):
    """A line of queries.jsonl."""

    id: str | int = msgspec.field(name="_id")
    text: _Text
    sources: list[str] = []


class _Question(Struct, forbid_unknown_fields=True):
    """A `[[questions]]` table."""

    text: _Text
    answers: Annotated[list[_Text], Meta(min_length=1)]


class _Description(Struct, forbid_unknown_fields=True):
    """A TOML file that describes a dataset."""

    corpus: str
    name: str = ""
    drop_sources: bool = False
    off_topic: list[_Text] = []
    questions: list[Any] | None = None
    """None if they are in BEIR files beside it."""


def _convert(values: Any, expected: type[Value], where: str, hint: str) -> Value:
    """Return parsed values as a type; raise UsageError with the place of the first that does not fit."""
    try:
        return msgspec.convert(values, expected)
    except msgspec.ValidationError as error:
        raise UsageError(f"{where}: {error}", hint) from None


def read_dataset(path: Path) -> Dataset:
    """Read a folder in the BEIR layout, one with `dataset.toml`, or a TOML file; raise UsageError for anything else."""
    path = Path(os.path.expanduser(path))
    is_folder, is_file = os.path.isdir(path), os.path.isfile(path)
    if is_folder and (path / DATASET_FILE).is_file():
        return _read_described(path / DATASET_FILE)
    if is_folder:
        return _read_beir(path)
    if is_file and path.suffix.lower() == ".toml":
        return _read_described(path)
    raise UsageError(
        f"Not a dataset: {path}" if is_file else f"No such dataset: {path}",
        "Give a folder or a .toml file; `marklight eval` without one shows how to write it",
    )


@cache
def off_topic_queries() -> tuple[str, ...]:
    """Return queries on forty subjects, few of which any one collection is about."""
    text = files("marklight.eval").joinpath("off_topic.txt").read_text("utf-8")
    return tuple(line for line in text.splitlines() if line and not line.startswith("#"))


def _read_described(file: Path) -> Dataset:
    try:
        text = file.read_text("utf-8-sig")
        values = toml_values.loads(text)
    except OSError as error:
        raise UsageError(f"Cannot read {file}: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{file} is not TOML: {error}", _EXAMPLE_HINT) from None
    described = _convert(values, _Description, str(file), _EXAMPLE_HINT)
    notices: tuple[str, ...] = ()
    if described.questions is not None:
        queries = _questions(file, described.questions, text)
    elif (file.parent / QUERIES).exists():
        queries, notices = _read_queries(file.parent, None)
    else:
        raise UsageError(
            f"{file} has no [[questions]], and there is no {QUERIES} beside it", _EXAMPLE_HINT
        )
    default_name = file.resolve().parent.name if file.name == DATASET_FILE else file.stem
    return Dataset(
        described.name or default_name,
        queries,
        folder=_corpus(file, described.corpus),
        references=described.questions is not None,
        drop_sources=described.drop_sources,
        off_topic=tuple(dict.fromkeys(described.off_topic)),
        notices=notices,
    )


def _corpus(file: Path, corpus: str) -> Path:
    hint = "Give a folder of Markdown, relative to the file"
    try:
        folder = (file.parent / Path(corpus).expanduser()).resolve()
        is_folder = folder.is_dir()
    except (RuntimeError, ValueError, OSError) as error:
        raise UsageError(f"{file}: corpus = {corpus!r} is not a path: {error}", hint) from None
    if not is_folder:
        raise UsageError(f"{file}: corpus = {corpus!r} is not a folder: {folder}", hint)
    return folder


def _questions(file: Path, values: list[Any], text: str) -> tuple[JudgedQuery, ...]:
    expected = 'Expected [[questions]] with text = "…" and answers = ["path.md#heading"]'
    if not values:
        raise UsageError(f"{file} has no questions", expected)
    headers = [number for number, line in enumerate(text.split("\n"), 1) if _HEADER.match(line)]
    queries: dict[str, JudgedQuery] = {}
    for index, value in enumerate(values):
        # An inline list has no headers, so only its questions are numbered.
        where = f"{file}:{headers[index]}" if len(headers) == len(values) else f"{file}"
        where = f"{where}: question {index + 1}"
        question = _convert(value, _Question, where, expected)
        if same := queries.get(question.text):
            raise UsageError(
                f"{where} is the same as question {same.id}: {question.text!r}",
                "Put all answers to a question into one list",
            )
        judged = {answer: Judgement(1, where) for answer in question.answers}
        queries[question.text] = JudgedQuery(str(index + 1), question.text, judged)
    return tuple(queries.values())


def _read_beir(folder: Path) -> Dataset:
    if not (folder / CORPUS).exists() and not (folder / QUERIES).exists():
        raise UsageError(
            f"Not a dataset: {folder} has neither {CORPUS} nor {DATASET_FILE}", _EXAMPLE_HINT
        )
    texts = tuple(
        Text(id, _encodable(row.title or ""), _encodable(row.text))
        for id, row in _rows(folder, CORPUS, _Document).items()
    )
    queries, notices = _read_queries(folder, {text.id for text in texts})
    return Dataset(folder.resolve().name, queries, texts=texts, notices=notices)


def _read_queries(
    folder: Path, documents: Collection[str] | None
) -> tuple[tuple[JudgedQuery, ...], tuple[str, ...]]:
    """Read the queries that have relevant documents, and notices; ids are checked if `documents` is given."""
    rows = _rows(folder, QUERIES, _Query)
    judged = _read_judgements(folder, rows, documents)
    queries = tuple(
        JudgedQuery(id, _encodable(row.text), judged[id], tuple(row.sources))
        for id, row in rows.items()
        if id in judged
    )
    if not queries:
        raise UsageError(
            f"No judgement in {folder / QRELS} is above 0, so no query has an answer",
            f"Expected {EXPECTED[QRELS]}",
        )
    skipped = len(rows) - len(queries)
    notice = f"queries left out because no judgement of them is above 0: {skipped} of {len(rows)}"
    return queries, (notice,) if skipped else ()


def _read_judgements(
    folder: Path, queries: Collection[str], documents: Collection[str] | None
) -> dict[str, dict[str, Judgement]]:
    file = folder / QRELS
    judged: dict[str, dict[str, Judgement]] = {}
    wrong: list[str] = []
    for number, line in _lines(folder, QRELS):
        cells = line.rstrip("\r").split("\t")
        where = f"{file}:{number}"
        try:
            query, document, score = cells
            grade = int(score)
        except ValueError:
            if number == 1 and len(cells) == 3:
                continue  # the header
            raise UsageError(
                f"{where} is {line[:MAX_QUOTED]!r}", f"Expected {EXPECTED[QRELS]}"
            ) from None
        if query not in queries:
            wrong.append(f"{where} judges the query {query!r}, which is not in {QUERIES}")
        elif documents is not None and document not in documents:
            wrong.append(f"{where} judges the document {document!r}, which is not in {CORPUS}")
        before = judged.setdefault(query, {}).get(document)
        if before is not None and before.grade != grade:
            raise UsageError(
                f"{where} gives {document!r} the score {grade}, {before.where} gives it {before.grade}",
                "Remove one of them",
            )
        judged[query][document] = Judgement(grade, where)
    if wrong:
        more = f" (and {len(wrong) - 1} more lines like it)" if len(wrong) > 1 else ""
        raise UsageError(f"{wrong[0]}{more}", "Use the ids of that file")
    relevant = {
        query: {id: judgement for id, judgement in judgements.items() if judgement.grade > 0}
        for query, judgements in judged.items()
    }
    return {query: judgements for query, judgements in relevant.items() if judgements}


def _rows(folder: Path, name: str, expected: type[Row]) -> dict[str, Row]:
    """Return the lines of a file of JSON objects by their ids."""
    hint = f"Expected {EXPECTED[name]}"
    rows: dict[str, Row] = {}
    for number, line in _lines(folder, name):
        where = f"{folder / name}:{number}"
        try:
            values = json.loads(line)  # accepts lone surrogates, which msgspec does not
        except (ValueError, RecursionError) as error:
            raise UsageError(f"{where} is not JSON: {error}", hint) from None
        row = _convert(values, expected, where, hint)
        id = str(row.id)
        if not id or id in rows:
            raise UsageError(f"{where}: the _id {id!r} is empty or not unique", hint)
        rows[id] = row
    if not rows:
        raise UsageError(f"{folder / name} is empty", hint)
    return rows


def _lines(folder: Path, name: str) -> Iterator[tuple[int, str]]:
    """Yield the lines that are not blank, numbered from 1; only `\\n` ends a line."""
    file = folder / name
    try:
        data = file.read_bytes()
    except OSError as error:
        message = f"There is no {name} in {folder}"
        if not isinstance(error, FileNotFoundError | NotADirectoryError):
            message = f"Cannot read {file}: {error.strerror}"
        raise UsageError(message, f"Expected {EXPECTED[name]}") from None
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise UsageError(f"{file}:{line} is not UTF-8", f"Expected {EXPECTED[name]}") from None
    return (
        (number, line) for number, line in enumerate(text.split("\n"), 1) if line.strip(" \t\r")
    )


def _encodable(text: str) -> str:
    """Replace lone surrogates, which JSON can express but UTF-8 cannot."""
    return text.encode("utf-8", "replace").decode()
