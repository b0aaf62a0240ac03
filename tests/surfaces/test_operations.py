"""Command-line options, operation parameters and keyword arguments of the library have the same names."""

from __future__ import annotations

import inspect

import click
import pytest

from marklight.library import Library
from marklight.library.ask import AskFlags
from marklight.library.listing import ListFlags
from marklight.library.validation import CommitFlags, SearchFlags
from marklight.surfaces.cli.ask_command import ask
from marklight.surfaces.cli.list_command import list_
from marklight.surfaces.cli.search_commands import commits, search
from marklight.surfaces.operations import OPERATIONS

PRINTING = {"format", "as_json", "color", "documents", "folder"}
"""Options of the output, and of the folder that the library is opened with."""
OTHERWISE = {"no_refresh": "refresh", "paths": "path", "assignments": "settings"}


FLAGS = {
    "search": SearchFlags.__annotations__,
    "ask": AskFlags.__annotations__,
    "list_documents": ListFlags.__annotations__,
    "commits": CommitFlags.__annotations__,
}


def keywords(operation: str) -> set[str]:
    parameters = inspect.signature(getattr(Library, operation)).parameters.values()
    named = {each.name for each in parameters if each.kind is each.KEYWORD_ONLY}
    return named | set(FLAGS.get(operation, ()))


@pytest.mark.parametrize(
    ("command", "operation"),
    [(search, "search"), (ask, "ask"), (list_, "list_documents"), (commits, "commits")],
)
def test_every_search_option_is_a_keyword_argument_of_the_library(
    command: click.Command, operation: str
) -> None:
    flags = {str(each.name) for each in command.params if isinstance(each, click.Option)}
    named = {OTHERWISE.get(flag, flag) for flag in flags - PRINTING}
    assert len(named) > 10
    assert named <= keywords(operation)


@pytest.mark.parametrize("operation", OPERATIONS)
def test_operation_parameters_are_keyword_arguments_of_the_library(operation: str) -> None:
    found = OPERATIONS[operation]
    given = {each.name for each in found.parameters} - {found.subject}
    known = keywords(operation)
    assert given | set(found.context) <= known
    # What is left is for whoever has the library in hand.
    assert known - given - set(found.context) <= {
        "near",
        "part",
        "assignments",
        "progress",
        "check_cancelled",
    }
