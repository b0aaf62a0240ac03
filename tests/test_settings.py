"""Settings: layers, kinds, and errors that help."""

from __future__ import annotations

from pathlib import Path

import pytest

from marklight.errors import SettingsError
from marklight.library.compose import SCHEMA, compose_pipeline, read_settings
from marklight.settings import known_keys


def test_later_layers_win(tmp_path: Path) -> None:
    (tmp_path / "marklight.toml").write_text("[search.confidence]\nthreshold = 0.1\n")
    assert read_settings(tmp_path, environ={})["search.confidence.threshold"] == 0.1
    environ = {"MARKLIGHT_SEARCH_CONFIDENCE_THRESHOLD": "0.2"}
    assert read_settings(tmp_path, environ=environ)["search.confidence.threshold"] == 0.2
    found = read_settings(tmp_path, ["search.confidence.threshold=0.4"], environ=environ)
    assert found["search.confidence.threshold"] == 0.4
    assert found.sources["search.confidence.threshold"].startswith("--set")


def test_settings_may_stand_in_pyproject(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text('[tool.marklight.search]\nfuse = "reciprocal"\n')
    assert read_settings(tmp_path, environ={})["search.fuse"] == "reciprocal"


def test_the_user_file_is_under_the_project_file(
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
    ("text", "said"),
    [
        ("[search]\nfusee = 1\n", "search.fuse"),
        ("[serch]\nfuse = 'x'\n", "search.fuse"),
        ("[search.confidence]\nthreshold = 'high'\n", "a number"),
        ("[search.per_document]\nmost = 1.5\n", "a whole number"),
        ("[search]\nskip = 3\n", "a list"),
        ("[search]\nskip = ['nothing']\n", "same_text"),
        ("[search]\nfuse = 'nothing'\n", "weighted_sum"),
        ("[search]\nskip = ['weighted_sum']\n", "same_text"),
        ("collections = 3\n", "a table"),
        ("search = 3\n", "search"),
        ("not toml", "not valid TOML"),
        ("a = " + 5000 * "1", "not valid TOML"),
        ("a = " + 5000 * "[", "not valid TOML"),
    ],
)
def test_a_wrong_setting_is_an_error_that_helps(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "marklight.toml").write_text(text)
    with pytest.raises(SettingsError, match=said):
        read_settings(tmp_path, environ={})


def test_a_variable_that_fits_no_setting_is_an_error() -> None:
    with pytest.raises(SettingsError, match="MARKLIGHT_SEARCH_FUSE"):
        read_settings(None, environ={"MARKLIGHT_SEARCH_FUSION": "x"})


def test_an_assignment_needs_a_key_and_a_value() -> None:
    with pytest.raises(SettingsError, match="KEY=VALUE"):
        read_settings(None, ["search.fuse"], environ={})


def test_written_values_take_their_settings_kind() -> None:
    found = read_settings(
        None, ["search.skip=same_text,per_document", "model.threads=2", "model.name=1"], environ={}
    )
    assert found["search.skip"] == ("same_text", "per_document")
    assert (found["model.threads"], found["model.name"]) == (2, "1")


def test_a_skipped_stage_is_not_in_the_pipeline() -> None:
    found = compose_pipeline(read_settings(None, ["search.skip=same_text"], environ={}))
    assert "same_text" not in found.refine
    assert "per_document" in found.refine


@pytest.mark.parametrize(
    "assignment",
    [
        "search.reciprocal.k=-1",
        "search.per_document.most=0",
        "search.confidence.threshold=2",
        "search.here.boost=-1",
        "search.here.boost=inf",
        "search.here.boost=nan",
        "search.calibrate.middle=nan",
        "search.reciprocal.k=inf",
        "search.reciprocal.weights={keywrd = 1}",
        "search.score_aware.compared=2147483648",
        "search.graph.most=9223372036854775807",
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


def test_every_key_is_known_by_its_dotted_name() -> None:
    assert "search.confidence.threshold" in known_keys(SCHEMA)
    assert "engine" in known_keys(SCHEMA)


@pytest.mark.parametrize(
    ("assignment", "said"),
    [
        ("search.recency.strength=11", "search.recency.strength must be 0 to 10, but is 11"),
        ("search.near_text.overlap=0", "search.near_text.overlap must be above 0 and at most 1"),
        ("search.per_document.most=0", "search.per_document.most must be at least 1, but is 0"),
        ("search.rerank.budget_ms=-1", "search.rerank.budget_ms must be at least 0, but is -1"),
    ],
)
def test_a_range_is_told_with_both_its_ends(assignment: str, said: str) -> None:
    with pytest.raises(SettingsError, match=said):
        compose_pipeline(read_settings(None, [assignment], environ={}))
