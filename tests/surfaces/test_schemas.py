"""Results match their JSON Schemas, which describe every property."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from marklight import Library
from marklight.surfaces import schemas
from marklight.surfaces.operations import call
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
    ("verb", "given", "schema"),
    [
        ("search", {"query": "when do tokens expire", "explain": True}, schemas.ANSWER),
        ("search", {"query": "when do tokens expire", "min_confidence": 1}, schemas.ANSWER),
        ("get", {"ref": "guide/auth.md"}, schemas.EXTRACT),
        ("outline", {"ref": "guide/tokens.md"}, schemas.OUTLINE),
        ("links", {"ref": "guide/auth.md"}, schemas.LINKS),
        ("links", {}, schemas.LINKS),
        ("related", {"ref": "guide/auth.md"}, schemas.RELATED),
        ("graph", {"ref": "guide/auth.md"}, schemas.GRAPH),
        ("graph", {}, schemas.GRAPH),
        ("status", {}, schemas.STATUS),
        ("documents", {"limit": 1}, schemas.DOCUMENTS),
        ("tags", {}, schemas.TAGS),
    ],
)
def test_a_result_matches_its_schema_without_additional_properties(
    lib: Library, verb: str, given: dict[str, Any], schema: schemas.Schema
) -> None:
    validator = Draft202012Validator(closed(schema))
    validator.check_schema(schema)
    found = call(lib, verb, given)
    assert [error.message for error in validator.iter_errors(found)] == []


def test_an_extract_of_a_passage_matches_its_schema(lib: Library) -> None:
    first = call(lib, "search", {"query": "when do tokens expire"})["results"][0]
    found = call(lib, "get", {"ref": first["chunk_id"], "level": "section"})
    Draft202012Validator(closed(schemas.EXTRACT)).validate(found)


def test_a_schema_rejects_a_missing_property(lib: Library) -> None:
    found = call(lib, "search", {"query": "when do tokens expire"})
    del found["results"][0]["lines"]
    assert list(Draft202012Validator(schemas.ANSWER).iter_errors(found))
