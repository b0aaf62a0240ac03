"""A dataset's documents as files: its own folder, or texts written into the user's cache."""

from __future__ import annotations

import json
import os
import re
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

from marklight.errors import StoreError
from marklight.eval.dataset import Dataset, Text
from marklight.models.converted import cache_folder
from marklight.place import PROJECT_FILE
from marklight.text import digest

RENDERING = "2"
"""Changes whenever documents are written differently."""
UNTITLED = "…"
"""Title of a document without one: else it were its file's name, a number that means nothing.

By raw cosines on 200 questions of CoSQA, MRR@10 is .811 without any title, .803 with a number and .810
with this sign, which the search by words does not see either.
"""
WRITTEN_AT = 946_684_800
"""Time of every file, the first second of 2000: no document of a set is newer than another, on any day."""
A_FOLDER = 1_000
"""Files in one folder: some file systems are slow with more."""
LOCK_SECONDS = 600
"""Writing takes seconds; a holder that needs longer is stuck."""


def home_of(dataset: Dataset) -> tuple[Path, Path]:
    """Where the documents are, and where in the cache what is made of them goes."""
    if dataset.folder is not None:  # whichever questions are asked of it
        return dataset.folder, _cached(dataset.folder.name, str(dataset.folder))
    home = _cached(dataset.name, RENDERING, *(part for text in dataset.texts for part in text))
    folder = home / "documents"
    try:
        if not _whole(dataset.texts, folder):
            _write(dataset.texts, folder)
    except OSError as error:
        raise StoreError(
            f"the documents of {dataset.name} cannot be written to {home}: {error.strerror or error}",
            "MARKLIGHT_CACHE_DIR names another folder for what can be made again",
        ) from None
    return folder, home


def _cached(name: str, *contents: str) -> Path:
    called = re.sub(r"[^\w.-]+", "-", name)[:40].strip(".-") or "dataset"
    return cache_folder() / "eval" / f"{called}-{digest(*contents, size=8)}"


def _whole(texts: Sequence[Text], folder: Path) -> bool:
    """Whether all files are still there: caches are swept, also in part."""
    return sum(1 for _ in folder.glob("*/*.txt")) == len(texts)


def _write(texts: Sequence[Text], folder: Path) -> None:
    """All of them or none: a folder is filled beside the place and then renamed into it."""
    from filelock import FileLock

    folder.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{folder}.lock", timeout=LOCK_SECONDS):
        if _whole(texts, folder):  # by another process meanwhile
            return
        shutil.rmtree(folder, ignore_errors=True)
        draft = Path(tempfile.mkdtemp(prefix="draft-", dir=folder.parent))
        try:
            # A library of its own, whatever settings stand in a folder above the cache.
            (draft / PROJECT_FILE).touch()
            for index, text in enumerate(texts):
                file = draft / file_name(index)
                file.parent.mkdir(exist_ok=True)
                file.write_bytes(rendered(text).encode("utf-8", "replace"))
                os.utime(file, (WRITTEN_AT, WRITTEN_AT))
            draft.rename(folder)
        except BaseException:
            shutil.rmtree(draft, ignore_errors=True)
            raise


def file_name(index: int) -> str:
    """The path of a dataset's text of this number."""
    return f"{index // A_FOLDER:03}/{index:06}.txt"


def rendered(text: Text) -> str:
    """A document as a file: plain text, as only its author knows whether it is Markdown, its title above it.

    As Markdown a comment in Python is a heading, two indented lines are a block of code, and
    `__init__` is bold. What has a title and no text says its title.
    """
    title = " ".join("".join(sign if sign.isprintable() else " " for sign in text.title).split())
    front = f"title: {json.dumps(title or UNTITLED, ensure_ascii=False)}\n"
    # Control characters would make a file that is no text; no reader sees them either.
    body = re.sub(r"[\x00-\x08\x0b\x0c\x0e-\x1f]", " ", text.text)
    return f"---\n{front}---\n{body if body.strip() else title}\n"
