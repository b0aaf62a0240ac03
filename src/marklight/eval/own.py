"""Datasets in TOML: questions that a person writes, or where the documents of others are."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from marklight import bounded_toml
from marklight.errors import UsageError
from marklight.eval.dataset import Judgement, Question

EXAMPLE = """\
corpus = "docs"                            # a folder of Markdown, from where this file is
off_topic = ["how do I prune roses"]       # what nothing in it answers; without any, forty of ours

[[questions]]
text = "how long are backups kept"
answers = ["guides/database.md#backups"]   # path, path#heading or path:10-40, as for `marklight get`

[[questions]]                              # as many as you like
text = "who may deploy"
answers = ["guides/deployment.md", "team.md"]
"""

HOW = f"""\
`marklight eval` asks questions whose answers are known and counts how often they are found.
Write some that you really ask, thirty are a good start, into a file such as questions.toml:

{EXAMPLE}
then run: marklight eval questions.toml

A folder in BEIR's layout can be measured as well: corpus.jsonl with _id, title and text, queries.jsonl
with _id and text, and qrels/test.tsv with query-id, corpus-id and score. A dataset.toml with
corpus = "folder" takes the place of corpus.jsonl; ids are then paths below that folder.
"""

DATASET = "dataset.toml"
"""A folder with this file is a dataset, called as the folder is."""
_KEYS = ("name", "corpus", "drop_sources", "off_topic", "questions")
_HEADER = re.compile(r"^\s*\[\[\s*questions\s*\]\]")


@dataclass(frozen=True, slots=True)
class Written:
    """What a TOML file says of a dataset."""

    name: str
    corpus: Path
    drop_sources: bool = False
    off_topic: tuple[str, ...] = ()
    questions: tuple[Question, ...] | None = field(default=None)
    """None where the file has none, and they stand in files beside it."""


def read_toml(file: Path) -> Written:
    """All of it, checked; an error names the line."""
    try:
        text = file.read_text("utf-8-sig")
        values = bounded_toml.loads(text)
    except OSError as error:
        raise UsageError(f"{file} cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise UsageError(
            f"{file} is not TOML: {error}", "`marklight eval` shows an example"
        ) from None
    if unknown := sorted(set(values) - set(_KEYS)):
        raise UsageError(f"{file} has the unknown key {unknown[0]!r}", f"Known: {', '.join(_KEYS)}")
    usual = file.resolve().parent.name if file.name == DATASET else file.stem
    return Written(
        name=_value(file, values, "name", str, usual),
        corpus=_folder(file, values),
        drop_sources=_value(file, values, "drop_sources", bool, False),
        off_topic=_texts(values.get("off_topic", []), f"{file}: off_topic"),
        questions=_questions(file, values["questions"], text) if "questions" in values else None,
    )


def _folder(file: Path, values: dict[str, Any]) -> Path:
    corpus = _value(file, values, "corpus", str, None)
    if not corpus:
        raise UsageError(
            f"{file} does not say where the documents are",
            'Expected corpus = "docs", a folder of Markdown, from where the file is',
        )
    try:
        folder = (file.parent / Path(corpus).expanduser()).resolve()
        found = folder.is_dir()
    except (RuntimeError, ValueError, OSError) as error:
        raise UsageError(f"{file}: corpus = {corpus!r} is no path: {error}") from None
    if not found:
        raise UsageError(
            f"{file}: corpus = {corpus!r} is no folder: {folder}",
            "Expected a folder of Markdown, from where the file is",
        )
    return folder


def _questions(file: Path, values: Any, text: str) -> tuple[Question, ...]:
    expected = 'Expected [[questions]] with text = "…" and answers = ["path.md#heading"]'
    if not isinstance(values, list) or not values:
        raise UsageError(f"{file} holds no questions", expected)
    headers = [number for number, line in enumerate(text.split("\n"), 1) if _HEADER.match(line)]
    found: list[Question] = []
    for index, value in enumerate(values):
        # A list in one line has no headings; its questions are counted.
        where = f"{file}:{headers[index]}" if len(headers) == len(values) else f"{file}"
        where = f"{where}: question {index + 1}"
        if not isinstance(value, dict):
            raise UsageError(f"{where} is no table", expected)
        if unknown := sorted(set(value) - {"text", "answers"}):
            raise UsageError(f"{where} has the unknown key {unknown[0]!r}", expected)
        asked = value.get("text")
        if not isinstance(asked, str) or not asked.strip():
            raise UsageError(f"{where} has no text", expected)
        answers = _texts(value.get("answers"), f"{where}: answers")
        if not answers:
            raise UsageError(f"{where} has no answers", expected)
        same = next((one for one in found if one.text == asked), None)
        if same is not None:
            raise UsageError(
                f"{where} is the same as question {same.id}: {asked!r}",
                "Put all answers to a question into one list",
            )
        judged = {answer: Judgement(1, where) for answer in answers}
        found.append(Question(str(index + 1), asked, judged))
    return tuple(found)


def _texts(value: Any, where: str) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(
        isinstance(one, str) and one.strip() for one in value
    ):
        raise UsageError(f"{where} must be a list of texts", 'Expected ["…", "…"]')
    return tuple(dict.fromkeys(value))


def _value(file: Path, values: dict[str, Any], key: str, kind: type, default: Any) -> Any:
    value = values.get(key, default)
    if value is not default and not isinstance(value, kind):
        word = "true or false" if kind is bool else "a text"
        raise UsageError(f"{file}: {key} must be {word}, not {value!r}")
    return value
