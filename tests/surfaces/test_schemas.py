"""Results match their JSON Schemas, which describe every property."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from marklight import Library
from marklight.surfaces.host import call, result_schema
from tests.making import library, write

PAGES: dict[str, str | bytes] = {
    "guide/auth.md": "---\ntags: [security]\n---\n# Auth\n\nSee [tokens](tokens.md#expiry) and [[gone]].\n",
    "guide/tokens.md": "---\ntags: [security]\n---\n# Tokens\n\n## Expiry\n\nTokens last a day. See [auth](auth.md).\n",
    "alone.md": "# Alone\n\nNothing leads here.\n",
    "broken.md": b"\xff\xfe\x00\xd8 \x00",
}


@pytest.fixture
def lib(tmp_path: Path) -> Iterator[Library]:
    with library(write(tmp_path / "docs", PAGES)) as opened:
        opened.index()
        yield opened


def closed(schema: Any) -> Any:
    """Return a copy of the schema that allows no additional properties."""
    if isinstance(schema, list):
        return [closed(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    inner = {name: closed(value) for name, value in schema.items()}
    return {"additionalProperties": False, **inner} if "properties" in schema else inner


@pytest.mark.parametrize(
    ("operation", "given"),
    [
        ("search", {"query": "when do tokens expire", "explain": True}),
        ("search", {"query": "when do tokens expire", "min_confidence": 1}),
        ("get", {"ref": "guide/auth.md"}),
        ("outline", {"ref": "guide/tokens.md"}),
        ("links", {"ref": "guide/auth.md"}),
        ("links", {}),
        ("related", {"ref": "guide/auth.md"}),
        ("graph", {"ref": "guide/auth.md"}),
        ("graph", {}),
        ("page", {"ref": "guide/auth.md"}),
        ("list_documents", {"query": "tokens"}),
        ("list_documents", {"query": "tokens", "lines": True}),
        ("status", {}),
        ("documents", {"limit": 1}),
        ("tags", {}),
    ],
)
def test_a_result_matches_its_schema_without_additional_properties(
    lib: Library, operation: str, given: dict[str, Any]
) -> None:
    schema = result_schema(operation)
    validator = Draft202012Validator(closed(schema))
    validator.check_schema(schema)
    found = call(lib, operation, given)
    assert [error.message for error in validator.iter_errors(found)] == []


def test_an_extract_of_a_passage_matches_its_schema(lib: Library) -> None:
    first = call(lib, "search", {"query": "when do tokens expire"})["results"][0]
    found = call(lib, "get", {"ref": first["chunk_id"], "level": "section"})
    Draft202012Validator(closed(result_schema("get"))).validate(found)


def test_a_schema_rejects_a_missing_property(lib: Library) -> None:
    found = call(lib, "search", {"query": "when do tokens expire"})
    del found["results"][0]["lines"]
    assert list(Draft202012Validator(result_schema("search")).iter_errors(found))
