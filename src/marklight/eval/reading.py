"""Read datasets: the BEIR layout (corpus.jsonl, queries.jsonl, qrels/test.tsv; Thakur et al., NeurIPS 2021) or TOML."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

from marklight.errors import UsageError
from marklight.eval.dataset import DATASET_FILE, Dataset, JudgedQuery, Judgement, Text, read_toml

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


class Row(NamedTuple):
    """One line of JSON with its id."""

    id: str
    values: Mapping[str, Any]
    where: str


def read_dataset(path: Path) -> Dataset:
    """Read a folder in the BEIR layout, one with `dataset.toml`, or a TOML file; raise UsageError for anything else."""
    try:
        path = path.expanduser()
        is_folder, is_file = path.is_dir(), path.is_file()
    except (OSError, ValueError, RuntimeError):
        is_folder = is_file = False
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


def _read_beir(folder: Path) -> Dataset:
    if not (folder / CORPUS).exists() and not (folder / QUERIES).exists():
        raise UsageError(
            f"Not a dataset: {folder} has neither {CORPUS} nor {DATASET_FILE}",
            "`marklight eval` without an argument shows how to write one",
        )
    texts = tuple(
        Text(row.id, _string(row, CORPUS, "title", ""), _string(row, CORPUS, "text"))
        for row in _rows(folder, CORPUS)
    )
    queries, notices = _read_queries(folder, {text.id for text in texts})
    return Dataset(folder.resolve().name, queries, texts=texts, notices=notices)


def _read_described(file: Path) -> Dataset:
    described = read_toml(file)
    notices: tuple[str, ...] = ()
    queries = described.queries
    if queries is None and not (file.parent / QUERIES).exists():
        raise UsageError(
            f"{file} has no [[questions]], and there is no {QUERIES} beside it",
            "`marklight eval` without an argument shows how to write them",
        )
    if queries is None:
        queries, notices = _read_queries(file.parent, None)
    return Dataset(
        described.name,
        queries,
        folder=described.corpus,
        references=described.queries is not None,
        drop_sources=described.drop_sources,
        off_topic=described.off_topic,
        notices=notices,
    )


def _read_queries(
    folder: Path, documents: Collection[str] | None
) -> tuple[tuple[JudgedQuery, ...], tuple[str, ...]]:
    """Read the queries that have relevant documents, and notices; ids are checked if `documents` is given."""
    rows = {row.id: row for row in _rows(folder, QUERIES)}
    judged = _read_judgements(folder, rows, documents)
    queries = tuple(
        JudgedQuery(
            id=row.id,
            text=_query_text(row),
            answers=judged[row.id],
            sources=_sources(row),
        )
        for row in rows.values()
        if row.id in judged
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
        grade = _integer(cells[2]) if len(cells) == 3 else None
        if grade is None:
            if number == 1 and len(cells) == 3:
                continue  # the header
            raise UsageError(f"{where} is {line[:MAX_QUOTED]!r}", f"Expected {EXPECTED[QRELS]}")
        query, document, _ = cells
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


def _rows(folder: Path, name: str) -> Iterator[Row]:
    seen: dict[str, str] = {}
    for number, line in _lines(folder, name):
        where = f"{folder / name}:{number}"
        try:
            values = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise UsageError(
                f"{where} is not JSON: {error}", f"Expected {EXPECTED[name]}"
            ) from None
        if not isinstance(values, dict):
            raise UsageError(f"{where} is not an object", f"Expected {EXPECTED[name]}")
        id = values.get("_id")
        if isinstance(id, bool) or not isinstance(id, str | int) or id == "":
            raise UsageError(f"{where} has no _id", f"Expected {EXPECTED[name]}")
        if str(id) in seen:
            raise UsageError(
                f"{where} has the same _id as {seen[str(id)]}: {id!r}", "Make each _id unique"
            )
        seen[str(id)] = where
        yield Row(str(id), values, where)
    if not seen:
        raise UsageError(f"{folder / name} is empty", f"Expected {EXPECTED[name]}")


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


def _string(row: Row, name: str, key: str, default: str | None = None) -> str:
    value = row.values.get(key, default)
    if value is None and default is not None:
        value = default
    if not isinstance(value, str):
        raise UsageError(f"{row.where} has no {key} that is a string", f"Expected {EXPECTED[name]}")
    # Lone surrogates, which JSON can express, cannot be encoded.
    return value.encode("utf-8", "replace").decode()


def _query_text(row: Row) -> str:
    text = _string(row, QUERIES, "text")
    if not text.strip():
        raise UsageError(f"{row.where} has an empty text", f"Expected {EXPECTED[QUERIES]}")
    return text


def _sources(row: Row) -> tuple[str, ...]:
    sources = row.values.get("sources", [])
    if not isinstance(sources, list) or not all(isinstance(source, str) for source in sources):
        raise UsageError(
            f"{row.where} has sources that are not a list of strings",
            'Expected the documents that the query was taken from: "sources": ["d1"]',
        )
    return tuple(sources)


def _integer(text: str) -> int | None:
    try:
        return int(text)
    except ValueError:
        return None
