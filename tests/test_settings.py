"""Settings: layers, types, bounds, deprecated names, error messages."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, nan
from pathlib import Path
from typing import Annotated

import pytest

from marklight import settings
from marklight.errors import SettingsError
from marklight.library.configuration import SCHEMA, compose_pipeline, read_settings
from marklight.settings import ABOVE_ZERO, Layer, Within, combine, current_name, known_keys
from marklight.toml_values import nested


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
    monkeypatch.setattr("platformdirs.user_config_dir", lambda *_, **__: str(tmp_path / "config"))
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "config.toml").write_text("[chunk]\nmax_chars = 900\nmin_chars = 90\n")
    (tmp_path / "marklight.toml").write_text("[chunk]\nmax_chars = 800\n")
    found = read_settings(tmp_path, environ={})
    assert (found["chunk.max_chars"], found["chunk.min_chars"]) == (800, 90)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[search]\nfusee = 1\n", "search.fuse"),
        ("[serch]\nfuse = 'x'\n", "search.fuse"),
        ("[search.confidence]\nthreshold = 'high'\n", "a number"),
        ("[search.per_document]\nmost = 1.5\n", "a whole number"),
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
        "search.reciprocal.k=-1",
        "search.per_document.max_passages=0",
        "search.confidence.threshold=2",
        "search.current_collection.boost=-1",
        "search.current_collection.boost=inf",
        "search.current_collection.boost=nan",
        "search.calibrate.middle=nan",
        "search.reciprocal.k=inf",
        "search.reciprocal.weights={keywrd = 1}",
        "search.score_aware.compared=2147483648",
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


@pytest.fixture
def renamed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Renamings of a table, of a key, of a key in a renamed table, and of a key that moves."""
    names = {
        "search.old_recency": "search.recency",
        "search.recency.weight": "search.recency.strength",
        "index.refused_bytes": "index.max_bytes",
        "search.old_sum": "search.reciprocal",
        "places": "collections",
    }
    monkeypatch.setattr(settings, "RENAMED", names)


@pytest.mark.usefixtures("renamed")
@pytest.mark.parametrize(
    "old", ["search.old_recency.strength", "search.old_recency.weight", "search.recency.weight"]
)
def test_a_deprecated_name_works_in_every_layer(old: str, tmp_path: Path) -> None:
    key = "search.recency.strength"
    table, _, name = old.rpartition(".")
    variable = "MARKLIGHT_" + old.upper().replace(".", "_")
    (tmp_path / "marklight.toml").write_text(f"[{table}]\n{name} = 0.5\n")
    for found, source in (
        (read_settings(tmp_path, environ={}), str(tmp_path / "marklight.toml")),
        (read_settings(None, environ={variable: "0.5"}), f"the variable {variable}"),
        (read_settings(None, [f"{old}=0.5"], environ={}), f"--set {old}"),
        (read_settings(None, environ={}, given=nested(old, 0.5)), "the call"),
    ):
        assert (found[key], found.sources[key]) == (0.5, source)
        assert not found.ignored
        (notice,) = found.notices
        assert f"{old} is now {key} ({source})" in notice


@pytest.mark.usefixtures("renamed")
def test_stages_are_known_by_their_deprecated_names() -> None:
    found = read_settings(None, ["search.skip=old_recency,exact_duplicates"], environ={})
    assert found["search.skip"] == ("recency", "exact_duplicates")
    assert "recency" not in compose_pipeline(found).refine
    assert "old_recency is now recency" in found.notices[0]
    assert read_settings(None, ["search.fuse=old_sum"], environ={})["search.fuse"] == "reciprocal"


@pytest.mark.usefixtures("renamed")
def test_one_notice_names_all_deprecated_settings(tmp_path: Path) -> None:
    (tmp_path / "marklight.toml").write_text("[search.old_recency]\nstrength = 1\n")
    given = {"index": {"refused_bytes": 5}, "places": {"docs": "docs"}}
    found = read_settings(tmp_path, ["search.skip=old_recency"], given, environ={})
    assert (found["index.max_bytes"], found["collections"]) == (5, {"docs": "docs"})
    (notice,) = found.notices
    for old in ("search.old_recency.strength", "index.refused_bytes", "places", "old_recency"):
        assert f"{old} is now " in notice


@pytest.mark.usefixtures("renamed")
def test_the_current_name_wins_over_the_deprecated_one_beside_it() -> None:
    both = {"search": {"recency": {"strength": 2}, "old_recency": {"strength": 3}}}
    assert read_settings(None, environ={}, given=both)["search.recency.strength"] == 2
    swapped = {"search": dict(reversed(both["search"].items()))}
    assert read_settings(None, environ={}, given=swapped)["search.recency.strength"] == 2
    variables = {
        "MARKLIGHT_SEARCH_RECENCY_STRENGTH": "2",
        "MARKLIGHT_SEARCH_OLD_RECENCY_STRENGTH": "3",
    }
    assert read_settings(None, environ=variables)["search.recency.strength"] == 2


@pytest.mark.usefixtures("renamed")
def test_a_deprecated_name_gets_no_rights_in_a_folders_file(tmp_path: Path) -> None:
    (tmp_path / "marklight.toml").write_text("[index]\nrefused_bytes = 5\n")
    found = read_settings(tmp_path, environ={})
    assert found["index.max_bytes"] == 20_000_000
    assert [one.key for one in found.ignored] == ["index.max_bytes"]


def test_every_renamed_setting_leads_to_one_that_exists() -> None:
    known = {*known_keys(SCHEMA), *SCHEMA}
    for old in settings.RENAMED:
        assert old not in known
        assert current_name(old) in known


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
