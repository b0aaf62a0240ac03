"""Reranking on the command line."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from marklight.models.record import DEFAULT_RERANKER
from tests.making import write
from tests.models import pairs, tiny
from tests.surfaces.command_line import run_cli

PAGES = {
    "scale.md": "# Scale\n\nHow do I scale the rollout of an app? How do I, of a rollout: more replicas.\n",
    "undo.md": "# Back\n\nundo a rollout of the app, as I do\n",
    "coffee.md": "# Coffee\n\ngrind beans\n",
}
QUERY = "how do I undo a rollout of the app"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MARKLIGHT_MODEL_NAME", "none")
    monkeypatch.setenv("MARKLIGHT_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setenv("MARKLIGHT_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("MARKLIGHT_SEARCH_RERANK_BUDGET_MS", "60000")
    folder = write(tmp_path / "docs", PAGES)
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return pairs.write_folder(tmp_path / "pairs")


def scored(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, float]:
    """Return the ranked paths with their cross-encoder scores."""
    code, out, err = run_cli(
        capsys, "search", "--json", "--explain", "--min-confidence", "0", *arguments
    )
    assert code == 0, err
    return {
        result["path"]: why["value"]
        for result in json.loads(out)["results"]
        for why in result["why"]
        if why["stage"] == "rerank"
    }


def test_rerank_without_a_model_explains_how_to_get_one(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = run_cli(capsys, "search", QUERY, "--rerank")
    assert (code, out) == (3, "")
    assert "Reading text" not in err, "reported before any work is done"
    assert f"{DEFAULT_RERANKER} is not installed" in err
    assert f"marklight models pull {DEFAULT_RERANKER}" in err
    assert "Traceback" not in err
    assert run_cli(capsys, "search", QUERY)[0] == 0


def test_rerank_uses_the_installed_default_model(
    folder: Path, model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_cli(capsys, "models", "import", str(model), "--name", DEFAULT_RERANKER)[0] == 0
    found = scored(capsys, QUERY, "--rerank")
    assert next(iter(found)) == "undo.md"
    assert scored(capsys, QUERY) == {}, "neither configured nor requested"


def test_a_configured_model_reranks_queries_of_three_or_more_words(
    folder: Path, model: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MARKLIGHT_RERANKER_NAME", str(model))
    # [CLS] 9 words [SEP] "back", "undo a rollout of the app , as i do" [SEP]; not in it: how.
    expected = pairs.likely(found=8, tokens=1 + 9 + 1 + 1 + 10 + 1)
    assert scored(capsys, QUERY)["undo.md"] == pytest.approx(expected, abs=1e-4)
    assert scored(capsys, QUERY, "--no-rerank") == {}
    assert scored(capsys, "undo rollout") == {}
    assert "undo.md" in scored(capsys, "undo rollout", "--rerank")
    assert scored(capsys, QUERY, "--set", 'search.skip=["rerank"]') == {}


def test_candidates_and_time_limit_are_settings(
    folder: Path, model: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MARKLIGHT_RERANKER_NAME", str(model))
    arguments = ("search", QUERY, "--min-confidence", "0")
    code, _, err = run_cli(capsys, *arguments, "--set", "search.rerank.budget_ms=0")
    assert code == 0
    assert "Reranked 1 of 2 candidates within 0 ms" in err
    one = ("--set", "search.rerank.budget_ms=0", "--set", "search.rerank.candidates=1")
    assert "reranked" not in run_cli(capsys, *arguments, *one)[2], "the first is always read"
    assert (
        "reranked" not in run_cli(capsys, *arguments, "--set", "search.rerank.budget_ms=60000")[2]
    )


def test_an_unusable_configured_model_is_reported(
    folder: Path,
    model: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("MARKLIGHT_RERANKER_NAME", "nowhere")
    code, _, err = run_cli(capsys, "search", QUERY)
    assert code == 3
    assert "no cross-encoder named 'nowhere'" in err
    assert run_cli(capsys, "search", QUERY, "--no-rerank")[0] == 0
    assert run_cli(capsys, "search", "rollout")[0] == 0, "not needed for one word"
    assert "nowhere" in json.loads(run_cli(capsys, "status", "--json")[1])["reranker_problem"]
    assert run_cli(capsys, "doctor")[0] == 3

    vectors = tiny.write_folder(tmp_path / "vectors", tiny.weights())
    code, _, err = run_cli(capsys, "search", QUERY, "--set", f"reranker.name={vectors}")
    assert code == 3
    assert "vectors is an embedding model: it cannot rerank" in err

    shutil.copy(vectors / "onnx" / "model.onnx", model / "onnx" / "model.onnx")
    code, _, err = run_cli(capsys, "search", QUERY, "--set", f"reranker.name={model}")
    assert code == 3
    assert "pairs" in err
    assert "Traceback" not in err


def test_doctor_checks_the_reranker_and_status_names_it(
    folder: Path, model: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "reranker:" not in run_cli(capsys, "doctor")[1]
    assert json.loads(run_cli(capsys, "status", "--json")[1])["reranker"] == "none"
    monkeypatch.setenv("MARKLIGHT_RERANKER_NAME", str(model))
    code, out, _ = run_cli(capsys, "doctor")
    assert code == 0
    assert "ok  reranker: pairs, two passages in " in out
    assert json.loads(run_cli(capsys, "status", "--json")[1])["reranker"] == str(model)
