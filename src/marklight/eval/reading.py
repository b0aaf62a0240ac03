"""A path to the dataset that stands there, whichever of the layouts it has."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from pathlib import Path

from marklight.errors import UsageError
from marklight.eval import beir, own
from marklight.eval.dataset import Dataset
from marklight.eval.own import DATASET


def read_dataset(path: Path) -> Dataset:
    """A folder in BEIR's layout, one with `dataset.toml`, or a TOML file; else an error that says how."""
    try:
        path = path.expanduser()
        folder, file = path.is_dir(), path.is_file()
    except (OSError, ValueError, RuntimeError):
        folder = file = False
    if folder and (path / DATASET).is_file():
        return _described(path / DATASET)
    if folder:
        return _beir(path)
    if file and path.suffix.lower() == ".toml":
        return _described(path)
    what = f"{path} is no dataset" if file else f"there is no dataset {path}"
    raise UsageError(
        what, "Name a folder or a .toml file; `marklight eval` without one shows how to write it"
    )


@cache
def foreign_questions() -> tuple[str, ...]:
    """Questions on forty subjects, few of which any one collection is about."""
    text = files("marklight.eval").joinpath("off_topic.txt").read_text("utf-8")
    return tuple(line for line in text.splitlines() if line and not line.startswith("#"))


def _beir(folder: Path) -> Dataset:
    if not (folder / beir.CORPUS).exists() and not (folder / beir.QUERIES).exists():
        raise UsageError(
            f"{folder} is no dataset: it has neither {beir.CORPUS} nor {DATASET}",
            "`marklight eval` without an argument shows how to write one",
        )
    texts = beir.read_texts(folder)
    questions, notices = beir.read_questions(folder, {text.id for text in texts})
    return Dataset(folder.resolve().name, questions, texts=texts, notices=notices)


def _described(file: Path) -> Dataset:
    written = own.read_toml(file)
    notices: tuple[str, ...] = ()
    questions = written.questions
    if questions is None and not (file.parent / beir.QUERIES).exists():
        raise UsageError(
            f"{file} has no [[questions]], and there is no {beir.QUERIES} beside it",
            "`marklight eval` without an argument shows how to write them",
        )
    if questions is None:
        questions, notices = beir.read_questions(file.parent, None)
    return Dataset(
        written.name,
        questions,
        folder=written.corpus,
        references=written.questions is not None,
        drop_sources=written.drop_sources,
        off_topic=written.off_topic,
        notices=notices,
    )
