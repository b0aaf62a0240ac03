from __future__ import annotations

from pathlib import Path

import pytest

from .figures import Figures, figures, value


@pytest.mark.parametrize(
    "each", list(figures()), ids=lambda each: f"{each.page.name}: {each.text[:40]}"
)
def test_figures_in_the_documentation_are_current(each: Figures) -> None:
    content = each.page.read_text()
    assert each.written(content) == content, "run python -m tests.docs.reference"


def test_a_figure_is_replaced_in_its_text() -> None:
    entry = Figures(Path("page.md"), "takes {} ms, of {} in all", ("1.25 : .1f", "2000 : ,"))
    assert entry.written("It takes 3\nms, of 4,000 in all.") == "It takes 1.2\nms, of 2,000 in all."


def test_a_text_that_is_missing_is_an_error() -> None:
    with pytest.raises(AssertionError, match=r"page\.md has 0 times"):
        Figures(Path("page.md"), "takes {} ms", ("1",)).written("It takes long.")


def test_values_come_from_results_settings_and_constants() -> None:
    assert value('result("binary_vectors")["100000 vectors"]["recall_at_20"] : .0%') == "99%"
    assert value('setting("search.recency.strength")') == "1.0"
    assert value('constant("marklight.ingest.embedding:TERM_WINDOW") : ,') == "1,024"
