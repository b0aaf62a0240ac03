"""Datasets in BEIR's layout: corpus.jsonl, queries.jsonl and qrels/test.tsv (Thakur et al., NeurIPS 2021)."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from marklight.errors import UsageError
from marklight.eval.dataset import Judgement, Question, Text

QUERIES = "queries.jsonl"
CORPUS = "corpus.jsonl"
QRELS = "qrels/test.tsv"

EXPECTED = {
    QUERIES: 'one question a line: {"_id": "q1", "text": "how do tokens expire"}',
    CORPUS: 'one document a line: {"_id": "d1", "title": "Tokens", "text": "They expire after …"}',
    QRELS: "one judgement a line, with tabs between: query-id, corpus-id, score (a whole number, 0 for not relevant)",
}


class Row(NamedTuple):
    """One line of JSON with its id."""

    id: str
    values: Mapping[str, Any]
    where: str


def read_texts(folder: Path) -> tuple[Text, ...]:
    """The documents of `corpus.jsonl`."""
    return tuple(
        Text(row.id, _text(row, CORPUS, "title", ""), _text(row, CORPUS, "text"))
        for row in _rows(folder, CORPUS)
    )


def read_questions(
    folder: Path, known: Collection[str] | None
) -> tuple[tuple[Question, ...], tuple[str, ...]]:
    """The questions that have an answer, and what was left out; `known` are the documents, if they are."""
    rows = {row.id: row for row in _rows(folder, QUERIES)}
    judged = _judgements(folder, rows, known)
    questions = tuple(
        Question(
            id=row.id,
            text=_asked(row),
            answers=judged[row.id],
            sources=_sources(row),
        )
        for row in rows.values()
        if row.id in judged
    )
    if not questions:
        raise UsageError(
            f"no judgement in {folder / QRELS} is above 0, so nothing answers any question",
            f"Expected {EXPECTED[QRELS]}",
        )
    left_out = len(rows) - len(questions)
    said = f"questions left out, as no judgement of them is above 0: {left_out} of {len(rows)}"
    return questions, (said,) if left_out else ()


def _judgements(
    folder: Path, questions: Collection[str], known: Collection[str] | None
) -> dict[str, dict[str, Judgement]]:
    file = folder / QRELS
    found: dict[str, dict[str, Judgement]] = {}
    wrong: list[str] = []
    for number, line in _lines(folder, QRELS):
        cells = line.rstrip("\r").split("\t")
        where = f"{file}:{number}"
        grade = _whole(cells[2]) if len(cells) == 3 else None
        if grade is None:
            if number == 1 and len(cells) == 3:
                continue  # its heading
            raise UsageError(f"{where} is {line[:80]!r}", f"Expected {EXPECTED[QRELS]}")
        question, document, _ = cells
        if question not in questions:
            wrong.append(f"{where} judges the question {question!r}, which {QUERIES} does not have")
        elif known is not None and document not in known:
            wrong.append(f"{where} judges the document {document!r}, which {CORPUS} does not have")
        before = found.setdefault(question, {}).get(document)
        if before is not None and before.grade != grade:
            raise UsageError(
                f"{where} gives {document!r} the score {grade}, {before.where} gives it {before.grade}",
                "Leave one of them out",
            )
        found[question][document] = Judgement(grade, where)
    if wrong:
        more = f" (and {len(wrong) - 1} lines more like it)" if len(wrong) > 1 else ""
        raise UsageError(f"{wrong[0]}{more}", "Expected ids as they stand in that file")
    relevant = {
        question: {id: one for id, one in judged.items() if one.grade > 0}
        for question, judged in found.items()
    }
    return {question: judged for question, judged in relevant.items() if judged}


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
            raise UsageError(f"{where} is no object", f"Expected {EXPECTED[name]}")
        id = values.get("_id")
        if isinstance(id, bool) or not isinstance(id, str | int) or id == "":
            raise UsageError(f"{where} has no _id", f"Expected {EXPECTED[name]}")
        if str(id) in seen:
            raise UsageError(
                f"{where} has the _id {id!r}, as {seen[str(id)]} has", "Each must be there once"
            )
        seen[str(id)] = where
        yield Row(str(id), values, where)
    if not seen:
        raise UsageError(f"{folder / name} is empty", f"Expected {EXPECTED[name]}")


def _lines(folder: Path, name: str) -> Iterator[tuple[int, str]]:
    """Lines that hold something, counted from 1; only `\\n` ends one, whatever else a text holds."""
    file = folder / name
    try:
        data = file.read_bytes()
    except OSError as error:
        what = f"there is no {name} in {folder}"
        if not isinstance(error, FileNotFoundError | NotADirectoryError):
            what = f"{file} cannot be read: {error.strerror}"
        raise UsageError(what, f"Expected {EXPECTED[name]}") from None
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise UsageError(f"{file}:{line} is not UTF-8", f"Expected {EXPECTED[name]}") from None
    return (
        (number, line) for number, line in enumerate(text.split("\n"), 1) if line.strip(" \t\r")
    )


def _text(row: Row, name: str, key: str, default: str | None = None) -> str:
    value = row.values.get(key, default)
    if value is None and default is not None:
        value = default
    if not isinstance(value, str):
        raise UsageError(f"{row.where} has no {key} that is a text", f"Expected {EXPECTED[name]}")
    # Half a character that JSON can write and nothing else can hold.
    return value.encode("utf-8", "replace").decode()


def _asked(row: Row) -> str:
    text = _text(row, QUERIES, "text")
    if not text.strip():
        raise UsageError(f"{row.where} has an empty text", f"Expected {EXPECTED[QUERIES]}")
    return text


def _sources(row: Row) -> tuple[str, ...]:
    sources = row.values.get("sources", [])
    if not isinstance(sources, list) or not all(isinstance(one, str) for one in sources):
        raise UsageError(
            f"{row.where} has sources that are no list of texts",
            'Expected the documents that the question was taken from: "sources": ["d1"]',
        )
    return tuple(sources)


def _whole(text: str) -> int | None:
    try:
        return int(text)
    except ValueError:
        return None
