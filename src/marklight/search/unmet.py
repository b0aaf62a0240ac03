"""Filters that nothing passes: which ones, and what may have been meant by them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import fields, replace
from pathlib import PurePosixPath
from typing import Any

from marklight.answer import Filters
from marklight.ports import Snapshot
from marklight.search.filters import in_words
from marklight.search.near import MOST, near_keys

MOST_COMPARED = 20_000
"""Names and values that one is compared with: some tenths of a second."""


def unmet(filters: Filters, snapshot: Snapshot) -> str:
    """In words, with what is there that is like it; empty where something passes them all."""
    if snapshot.metadata.matching_documents(filters, 1):
        return ""
    alone = [each for each in _apart(filters) if not snapshot.metadata.matching_documents(each, 1)]
    if not alone:
        return f"no passage passes all of the filters: {in_words(filters)}"
    return "; ".join(_told(each, snapshot) for each in alone)


def _apart(filters: Filters) -> Iterator[Filters]:
    """Each that must hold beside the others; of those that are alternatives, all of them together."""
    for field in fields(filters):
        value = getattr(filters, field.name)
        if field.name == "also" and value:
            yield from _apart(value)
        elif field.name in ("where", "phrases"):
            yield from (_only(field.name, (each,)) for each in value)
        elif value:
            yield _only(field.name, value)


def _only(name: str, value: object) -> Filters:
    given: dict[str, Any] = {name: value}
    return replace(Filters(), **given)


def _told(alone: Filters, snapshot: Snapshot) -> str:
    if alone.phrases:
        return f"no passage holds {in_words(alone)}"
    near = list(dict.fromkeys(_near(alone, snapshot)))[:MOST]
    meant = " or ".join(f'"{each}"' for each in near)
    told = f"no passage passes the filter {in_words(alone)}"
    return f"{told}; did you mean {meant}?" if near else told


def _near(alone: Filters, snapshot: Snapshot) -> Iterator[str]:
    for tag in alone.tags:
        yield from _like(tag, snapshot.metadata.tags(), lambda each: each.split("/"))
    for key, value in alone.where:
        yield from _like(value, snapshot.metadata.values(key, MOST_COMPARED), str.split)
    if alone.paths:
        files = [id.path for id in snapshot.documents.files()][:MOST_COMPARED]
        folders = {str(each) for path in files for each in PurePosixPath(path).parents} - {"."}
        for path in alone.paths:
            yield from _like(_fixed(path), sorted(folders) + files, lambda each: [_own(each)])


def _like(written: str, known: Iterable[str], parts: Callable[[str], list[str]]) -> Iterator[str]:
    """What differs from it by a slip, then what it is a part of: the name of a person, of a folder, of a tag."""
    there = list(known)
    yield from near_keys(written, {each: each for each in there})
    wanted = written.casefold()
    yield from (each for each in there if wanted in (part.casefold() for part in parts(each)))


def _own(path: str) -> str:
    return PurePosixPath(path).stem


def _fixed(glob: str) -> str:
    """A pattern down to its first wildcard: the folder that it begins in, or the file that it is."""
    whole = glob.removeprefix("./").strip("/").split("/")
    wild = [at for at, part in enumerate(whole) if set(part) & set("*?[")]
    return "/".join(whole[: wild[0]] if wild else whole)
