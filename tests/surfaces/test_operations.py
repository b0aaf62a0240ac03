"""Command-line options, operation parameters and keyword arguments of the library have the same names."""

from __future__ import annotations

import inspect

import click
import pytest

from marklight.library import Library
from marklight.operations import OPERATIONS
from marklight.surfaces.cli.search_commands import ask, commits, list_, search

PRINTING = {"format", "as_json", "color", "documents", "folder", "full", "oneline"}
"""Options of the output, and of the folder that the library is opened with."""


def keywords(operation: str) -> dict[str, inspect.Parameter]:
    return dict(inspect.signature(getattr(Library, operation)).parameters)


@pytest.mark.parametrize(
    ("command", "operation"),
    [(search, "search"), (ask, "ask"), (list_, "list_documents"), (commits, "commits")],
)
def test_every_search_option_is_a_keyword_argument_of_the_library(
    command: click.Command, operation: str
) -> None:
    flags = {str(each.name) for each in command.params if isinstance(each, click.Option)}
    assert len(flags) > 10
    assert flags - PRINTING <= keywords(operation).keys()


@pytest.mark.parametrize("operation", OPERATIONS)
def test_an_operation_has_a_real_signature(operation: str) -> None:
    declared = OPERATIONS[operation]
    signature = keywords(operation)
    assert {"self", *declared.hooks, *(each.name for each in declared.parameters)} == set(signature)
    assert not {each.kind for each in signature.values()} & {inspect.Parameter.VAR_KEYWORD}
    for parameter in declared.parameters:
        assert parameter.description.endswith(".")
