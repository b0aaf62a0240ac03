"""The public names: every type that an operation returns or raises, and nothing that only Marklight needs."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Iterator
from typing import Any

import marklight
from marklight import answer, errors, report, results
from marklight.operations import OPERATIONS
from tests.making import library

INTERNAL = {"Result", "RankedPassage", "Ranking", "LinkEnd", "Boilerplate", "Following"} | {
    *("RankedDocument", "Source", "RankedCommit", "CollectionGlob", "Name", "NameStrength"),
    *("Section", "UnreadChunk", "FileState"),
}
"""Bases, JSON rows and parts of a document that is being parsed."""


def types_in(hint: Any, seen: set[type]) -> Iterator[type]:
    """Yield the types of Marklight that a value of a type contains."""
    for part in typing.get_args(hint):
        yield from types_in(part, seen)
    if not isinstance(hint, type) or not hint.__module__.startswith("marklight.") or hint in seen:
        return
    seen.add(hint)
    yield hint
    if dataclasses.is_dataclass(hint) or hasattr(hint, "_fields") or typing.is_typeddict(hint):
        for field in typing.get_type_hints(hint).values():
            yield from types_in(field, seen)


def test_every_type_that_an_operation_returns_is_exported() -> None:
    seen: set[type] = set()
    for operation in OPERATIONS.values():
        kind = operation.result
        if isinstance(kind, str):
            kind = next(
                vars(each)[kind] for each in (answer, report, results) if kind in vars(each)
            )
        list(types_in(kind, seen))
    missing = {kind.__name__ for kind in seen} - {*marklight.__all__} - INTERNAL
    assert missing == set()


def test_every_error_is_exported() -> None:
    raised = {
        name
        for name, kind in vars(errors).items()
        if isinstance(kind, type) and issubclass(kind, Exception)
    }
    assert raised - {*marklight.__all__} == set()


def test_every_exported_name_exists() -> None:
    assert len({*marklight.__all__}) == len(marklight.__all__)
    for name in marklight.__all__:
        assert getattr(marklight, name) is not None


def test_only_operations_and_a_few_other_names_are_listed(tmp_path: Any) -> None:
    with library(tmp_path) as opened:
        listed = {*dir(opened)}
    assert {*OPERATIONS} < listed
    assert listed - {*OPERATIONS} == {
        *("close", "collections", "ignored", "place", "settings", "watch"),
    }
