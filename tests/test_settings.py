"""Settings: layers, types, bounds, error messages."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, nan
from pathlib import Path
from typing import Annotated

import pytest

from marklight.errors import SettingsError
from marklight.library.configuration import SCHEMA, compose_pipeline, read_settings
from marklight.settings import ABOVE_ZERO, Layer, Within, combine, known_keys


def test_later_layers_win(tmp_path: Path) -> None:
    (tmp_path / "marklight.toml").write_text("[search.confidence]\nthreshold = 0.1\n")
    assert read_settings(tmp_path, environ={})["search.confidence.threshold"] == 0.1
    environ = {"MARKLIGHT_SEARCH_CONFIDENCE_THRESHOLD": "0.2"}
    assert read_settings(tmp_path, environ=environ)["search.confidence.threshold"] == 0.2
    found = read_settings(tmp_path, ["search.confidence.threshold=0.4"], environ=environ)
    assert found["search.confidence.threshold"] == 0.4
    assert found.sources["search.confidence.threshold"].startswith("--set")


def test_settings_can_be_in_pyproject(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text('[tool.marklight.search]\nfuse = "reciprocal"\n')
    assert read_settings(tmp_path, environ={})["search.fuse"] == "reciprocal"


def test_the_project_file_overrides_the_user_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    (tmp_path / "config" / "marklight").mkdir(parents=True)
    (tmp_path / "config" / "marklight" / "config.toml").write_text(
        "[chunk]\nmax_chars = 900\nmin_chars = 90\n"
    )
    (tmp_path / "marklight.toml").write_text("[chunk]\nmax_chars = 800\n")
    found = read_settings(tmp_path, environ={})
    assert (found["chunk.max_chars"], found["chunk.min_chars"]) == (800, 90)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[search]\nfusee = 1\n", "search.fuse"),
        ("[serch]\nfuse = 'x'\n", "search.fuse"),
        ("[search.confidence]\nthreshold = 'high'\n", "a number"),
        ("[search.per_document]\nmax_passages = 1.5\n", "a whole number"),
        ("[search]\nskip = 3\n", "a list"),
        ("[search]\nskip = ['nothing']\n", "exact_duplicates"),
        ("[search]\nfuse = 'nothing'\n", "weighted_sum"),
        ("[search]\nskip = ['weighted_sum']\n", "exact_duplicates"),
        ("collections = 3\n", "a table"),
        ("search = 3\n", "search"),
        ("not toml", "not valid TOML"),
        ("a = " + 5000 * "1", "not valid TOML"),
        ("a = " + 5000 * "[", "not valid TOML"),
    ],
)
def test_an_invalid_setting_is_an_error_with_a_hint(
    tmp_path: Path, text: str, message: str
) -> None:
    (tmp_path / "marklight.toml").write_text(text)
    with pytest.raises(SettingsError, match=message):
        read_settings(tmp_path, environ={})


def test_an_unknown_environment_variable_is_an_error() -> None:
    with pytest.raises(SettingsError, match="MARKLIGHT_SEARCH_FUSE"):
        read_settings(None, environ={"MARKLIGHT_SEARCH_FUSION": "x"})


def test_an_assignment_needs_a_key_and_a_value() -> None:
    with pytest.raises(SettingsError, match="KEY=VALUE"):
        read_settings(None, ["search.fuse"], environ={})


def test_assigned_values_are_converted_to_the_type_of_the_setting() -> None:
    found = read_settings(
        None,
        ["search.skip=exact_duplicates,per_document", "model.threads=2", "model.name=1"],
        environ={},
    )
    assert found["search.skip"] == ("exact_duplicates", "per_document")
    assert (found["model.threads"], found["model.name"]) == (2, "1")


def test_a_skipped_stage_is_not_in_the_pipeline() -> None:
    found = compose_pipeline(read_settings(None, ["search.skip=exact_duplicates"], environ={}))
    assert "exact_duplicates" not in found.refine
    assert "per_document" in found.refine


@pytest.mark.parametrize(
    "assignment",
    [
        "search.per_document.max_passages=0",
        "search.confidence.threshold=2",
        "search.current_collection.boost=-1",
        "search.current_collection.boost=inf",
        "search.current_collection.boost=nan",
        "search.graph.max_neighbours=9223372036854775807",
        "search.recency.strength=1" + 400 * "0",
        "search.recency.strength=" + 1000 * "[",
    ],
)
def test_a_value_out_of_range_is_an_error(assignment: str) -> None:
    with pytest.raises(SettingsError, match=assignment.partition("=")[0]):
        compose_pipeline(
            read_settings(
                None, ["search.use=calibrate", "search.fuse=reciprocal", assignment], environ={}
            )
        )


def test_every_key_has_a_dotted_name() -> None:
    assert "search.confidence.threshold" in known_keys(SCHEMA)
    assert "engine" in known_keys(SCHEMA)


@dataclass(frozen=True)
class Bounded:
    share: Annotated[float, Within(ABOVE_ZERO, 1)] = 0.5
    count: Annotated[int | None, Within(1)] = None
    free: float = 0.0


@pytest.mark.parametrize("values", [{}, {"share": 1, "count": 1, "free": inf}, {"count": 10**9}])
def test_a_value_within_its_bounds_is_accepted(values: dict[str, float]) -> None:
    found = combine([Layer("test", values)], {"": Bounded})
    assert found.build(Bounded, "") == Bounded(**values)  # type: ignore[arg-type]


@pytest.mark.parametrize("values", [{"share": 0}, {"share": 1.01}, {"count": 0}])
def test_a_value_out_of_its_annotated_bounds_is_an_error(values: dict[str, float]) -> None:
    found = combine([Layer("test", {"table": values})], {"table": Bounded})
    with pytest.raises(SettingsError, match=f"table.{next(iter(values))} must be"):
        found.build(Bounded, "table")


def test_nan_is_out_of_all_bounds() -> None:
    with pytest.raises(SettingsError, match="share must be above 0 and at most 1"):
        Within(ABOVE_ZERO, 1).check("share", nan)


@pytest.mark.parametrize(
    ("assignment", "message"),
    [
        ("search.recency.strength=11", "search.recency.strength must be 0 to 10, but is 11"),
        (
            "search.near_duplicates.overlap=0",
            "search.near_duplicates.overlap must be above 0 and at most 1",
        ),
        (
            "search.per_document.max_passages=0",
            "search.per_document.max_passages must be at least 1, but is 0",
        ),
        ("search.rerank.budget_ms=-1", "search.rerank.budget_ms must be at least 0, but is -1"),
    ],
)
def test_an_error_names_both_bounds(assignment: str, message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        compose_pipeline(read_settings(None, [assignment], environ={}))
