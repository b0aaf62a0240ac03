"""Classification of queries, and the weights that follow from it."""

import pytest

from marklight.errors import SettingsError
from marklight.ports import Tools
from marklight.query import Filters, Query
from marklight.search.rewrite.classify import Classify
from tests.making import no_snapshot
from tests.search.stage_settings import build_stage

TOOLS = Tools(no_snapshot())


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
    assert Classify()(Query(text), TOOLS).kind == kind


def test_a_query_with_a_phrase_filter_is_factual() -> None:
    query = Query("in the guide", filters=Filters(phrases=("connection refused",)))
    assert Classify()(query, TOOLS).kind == "factual"


@pytest.mark.parametrize(
    ("text", "weights"),
    [
        ("getUserById", {"keyword": 1.5}),
        ("install guide", {}),
        ("how do tokens expire?", {"semantic": 1.3}),
    ],
)
def test_each_kind_weights_its_retriever(text: str, weights: dict[str, float]) -> None:
    assert Classify()(Query(text), TOOLS).weights == weights


def test_the_factors_are_settings() -> None:
    assert Classify(exploratory=1.0)(Query("why"), TOOLS).weights == {"semantic": 1.0}
    with pytest.raises(SettingsError, match="factual"):
        build_stage(Classify, factual=0.0)
