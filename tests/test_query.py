"""Queries: their kind by surface form."""

import pytest

from marklight.query import Filters, Query


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("getUserById", "factual"),
        ("where is max_tokens set", "factual"),
        ("the `--force` flag", "factual"),
        ("changes in 1.29", "factual"),
        ("upgrade to v2", "factual"),
        ('what does "connection refused" mean', "factual"),
        ("getUserById in the guide", "factual"),
        ("install guide", "navigational"),
        ("Chapter on scheduling", "navigational"),
        ("[[Rolling back]]", "navigational"),
        ("API docs", "navigational"),
        ("what is in the tutorial?", "navigational"),
        ("how do tokens expire?", "exploratory"),
        ("rolling back a deployment", "exploratory"),
        ("the document is misguided", "exploratory"),
        ("", "exploratory"),
        ("[[" * 50_000, "exploratory"),
    ],
)
def test_the_first_matching_kind_is_chosen(text: str, kind: str) -> None:
    assert Query(text).kind == kind


def test_a_query_with_a_phrase_filter_is_factual() -> None:
    assert Query("in the guide", filters=Filters(phrases=("connection refused",))).kind == "factual"
