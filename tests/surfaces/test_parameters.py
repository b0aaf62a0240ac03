"""Argument values: conversion of numbers, lists and objects that arrive as text, and aliases."""

from __future__ import annotations

from typing import Any

import pytest

from marklight.errors import UsageError
from marklight.operations import OPERATIONS
from marklight.parameters import parse


@pytest.mark.parametrize(
    ("given", "parsed"),
    [
        ({"limit": "5"}, {"limit": 5}),
        ({"limit": " 5 "}, {"limit": 5}),
        ({"limit": 5.0}, {"limit": 5}),
        ({"min_confidence": "0.25"}, {"min_confidence": 0.25}),
        ({"explain": "true", "parents": "0"}, {"explain": True, "parents": False}),
        ({"path": "guide/**"}, {"path": ["guide/**"]}),
        ({"path": '["a.md", "b.md"]'}, {"path": ["a.md", "b.md"]}),
        ({"path": ['["a.md"]', "c.md"]}, {"path": ["a.md", "c.md"]}),
        ({"path": "[slug].md"}, {"path": ["[slug].md"]}),
        ({"path": "[1]"}, {"path": ["[1]"]}),
        ({"path": '["a.md", " "]'}, {"path": ["a.md"]}),
        ({"where": '{"status": "draft"}'}, {"where": {"status": "draft"}}),
        ({"where": "status=draft"}, {"where": ["status=draft"]}),
        (
            {"settings": '{"search": {"skip": ["rerank"]}}'},
            {"settings": {"search": {"skip": ["rerank"]}}},
        ),
    ],
)
def test_values_given_as_text_are_converted(given: dict[str, Any], parsed: dict[str, Any]) -> None:
    assert parse(OPERATIONS["search"].parameters, {"query": "5", **given}) == {
        "query": "5",
        **parsed,
    }


@pytest.mark.parametrize(
    "given",
    [
        {"limit": "five"},
        {"limit": "5.5"},
        {"limit": "500"},
        {"limit": True},
        {"limit": "1" * 50},
        {"explain": "perhaps"},
        {"path": "[" * 5000, "limit": []},
        {"where": "[]"} | {"limit": {}},
        {"settings": "search"},
        {"settings": "{" * 5000},
    ],
)
def test_other_text_is_an_error(given: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        parse(OPERATIONS["search"].parameters, {"query": "a", **given})


def test_path_is_another_name_of_ref() -> None:
    assert parse(OPERATIONS["outline"].parameters, {"path": "a.md"}) == {"ref": "a.md"}
    assert parse(OPERATIONS["links"].parameters, {"path": None, "ref": "a.md"}) == {"ref": "a.md"}
    with pytest.raises(UsageError, match="given twice"):
        parse(OPERATIONS["get"].parameters, {"path": "a.md", "ref": "a.md"})
    with pytest.raises(UsageError, match="Missing parameter: 'ref'"):
        parse(OPERATIONS["outline"].parameters, {})
