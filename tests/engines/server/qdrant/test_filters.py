"""Tests of the filters that Qdrant evaluates, and of the labels of documents."""

from __future__ import annotations

import pytest

from marklight.engines.metadata_filters import metadata_pairs
from marklight.engines.server.qdrant.collections import (
    document_labels,
    is_native,
    label,
    native_filter,
)
from marklight.model import DocumentId
from marklight.query import Filters
from tests.contracts.builders import entry


@pytest.mark.parametrize(
    "filters, native",
    [
        (Filters(), True),
        (Filters(collections=("a",), tags=("t",), where=(("k", "v"),)), True),
        (Filters(within=(("a", "b"),), languages=("c",), documents=(DocumentId("a", "b"),)), True),
        (Filters(after="2026-01-01T00:00Z", before="2027-01-01T00:00+01:00"), False),
        (Filters(after="2026", before="2027"), False),
        (Filters(dated=(("2026-01-01", "2026-01-31"),)), False),
        (Filters(also=Filters(tags=("t",))), True),
        (Filters(paths=("*.md",)), False),
        (Filters(exclude=("*.md",)), False),
        (Filters(authors=("ann",)), False),
        (Filters(files=("*.py",)), False),
        (Filters(phrases=("a b",)), False),
        (Filters(without=("a",)), False),
        (Filters(also=Filters(without=("a",))), False),
    ],
)
def test_filters_on_properties_are_native(filters: Filters, native: bool) -> None:
    assert is_native(filters) is native


def test_a_document_has_a_label_for_each_folder_and_each_level_of_a_tag() -> None:
    document = entry("a/b/c.md", "x", collection="docs", tags=("x/y",)).document
    labels = document_labels(document.id, metadata_pairs(document))
    expected = {
        label("document", "docs", "a/b/c.md"),
        *(label("folder", "docs", folder) for folder in ("", "a", "a/b")),
        *(label("pair", "#", tag) for tag in ("x", "x/y")),
        label("pair", "tags", "x/y"),
    }
    assert labels == expected


def test_text_of_users_reaches_qdrant_as_numbers_only() -> None:
    """No text is in a request, so no text can change its meaning."""
    hostile = '"}]}, {"must_not": [{"key": "added"'
    request = native_filter(
        Filters(
            collections=(hostile,),
            tags=(hostile,),
            where=((hostile, hostile),),
            within=((hostile, hostile),),
            languages=(hostile,),
            documents=(DocumentId(hostile, hostile),),
        ),
        7,
    )
    assert "must_not" not in request.SerializeToString().decode("latin-1").replace("removed", "")
    assert hostile.encode() not in request.SerializeToString()
    assert len(request.must) == 7
