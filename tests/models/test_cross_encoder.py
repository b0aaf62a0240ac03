from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from marklight.errors import ModelError
from marklight.models import load, load_reranker
from marklight.models.pull import Hub, pull
from marklight.models.record import DEFAULT, DEFAULT_RERANKER
from marklight.models.store import import_folder, list_models, stored_folder, verify
from marklight.ports import Reranker
from marklight.surfaces.cli import run
from tests.models import pairs, tiny
from tests.models.hub import Behaviour, serving
from tests.models.pairs import likely

LONG = 60_000.0


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return pairs.write_folder(tmp_path / "pairs")


@pytest.fixture
def model(folder: Path) -> Reranker:
    return load_reranker(str(folder))


def test_scores_match_the_model(model: Reranker) -> None:
    passages = ["a dog ran far", "the cat ran", "the cat sat on a mat", ""]
    assert model.score("The cat sat", passages, LONG) == pytest.approx(
        [
            likely(found=0, tokens=3 + 3 + 4),
            likely(found=2, tokens=3 + 3 + 3),
            likely(found=3, tokens=3 + 3 + 6),
            likely(found=0, tokens=3 + 3),
        ],
        abs=1e-6,
    )
    assert model.name == "pairs"


def test_two_logits_become_a_softmax(tmp_path: Path, model: Reranker) -> None:
    two = load_reranker(str(pairs.write_folder(tmp_path / "two", gives="two")))
    passages = ["the cat", "a dog ran"]
    expected = model.score("the cat sat", passages, LONG)
    assert two.score("the cat sat", passages, LONG) == pytest.approx(expected, abs=1e-6)


def test_pairs_are_truncated_at_the_token_limit(tmp_path: Path, model: Reranker) -> None:
    bare = load_reranker(str(pairs.write_folder(tmp_path / "bare", masked=False)))
    passages = ["the cat", "a dog", "a dog ran", "far", "the mat"]
    expected = model.score("the cat sat", passages, LONG)
    assert bare.score("the cat sat", passages, LONG) == pytest.approx(expected, abs=1e-6)


def test_the_passage_is_truncated_first(tmp_path: Path) -> None:
    # Ten tokens: three special ones, three of the question, and room for four of the passage.
    short = load_reranker(str(pairs.write_folder(tmp_path / "m", max_position_embeddings=10)))
    cut, whole = short.score("the cat sat", ["far far far far sat cat", "far far cat sat"], LONG)
    assert cut == pytest.approx(likely(found=0, tokens=10), abs=1e-6)
    assert whole == pytest.approx(likely(found=2, tokens=10), abs=1e-6)


def test_a_query_is_truncated_only_beyond_half_of_the_limit(tmp_path: Path) -> None:
    # 13 tokens leave ten for both. Eight words of a question: five beside a long passage, all beside a word.
    short = load_reranker(str(pairs.write_folder(tmp_path / "m", max_position_embeddings=13)))
    question = "far far far far far the cat sat"
    long, one = short.score(question, ["cat " * 8, "cat"], LONG)
    assert long == pytest.approx(likely(found=0, tokens=13), abs=1e-6)
    assert one == pytest.approx(likely(found=1, tokens=3 + 8 + 1), abs=1e-6)


def test_when_time_runs_out_the_first_passages_are_scored(model: Reranker) -> None:
    passages = [f"the cat {'far ' * (300 + number)}" for number in range(20)]
    every = model.score("the cat sat", passages, LONG)
    assert len(every) == 20
    assert model.score("the cat sat", passages, 0) == every[:1]
    for budget_ms in (0.5, 2, 5, 10):
        some = model.score("the cat sat", passages, budget_ms)
        assert some == every[: len(some)]
        assert some


def test_a_passage_never_has_the_score_of_a_later_one(
    model: Reranker, monkeypatch: pytest.MonkeyPatch
) -> None:
    passages = ["the cat sat", "a dog", "the cat"]
    every = model.score("the cat sat", passages, LONG)
    # The thread of the second passage reads the clock after the thread of the third.
    seconds = iter([0.0, 0.0, 2.0, 1.0])
    monkeypatch.setattr("marklight.models.onnx.perf_counter", lambda: next(seconds))
    monkeypatch.setattr(model, "threads", 1)
    assert model.score("the cat sat", passages, 1_500) == every[:1]


def test_no_passages_give_no_scores(model: Reranker) -> None:
    assert model.score("the cat", [], LONG) == []


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(question=st.text(max_size=40), passages=st.lists(st.text(max_size=60), max_size=5))
def test_any_text_has_a_score_between_0_and_1(
    model: Reranker, question: str, passages: list[str]
) -> None:
    scores = model.score(question, [*passages, "\ud800 alone", "x" * 200_000], LONG)
    assert len(scores) == len(passages) + 2
    assert all(0.0 <= score <= 1.0 for score in scores)


def test_many_threads_open_the_model_once(folder: Path) -> None:
    model = load_reranker(str(folder), threads=2)
    passages = ["the cat", "a dog ran far", "the cat sat on a mat"]
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: model.score("the cat sat", passages, LONG), range(16)))
    assert found == [found[0]] * 16


def test_the_model_is_loaded_by_the_first_score(folder: Path) -> None:
    code = (
        "import sys; from marklight.models import load_reranker;"
        "heavy = {'numpy', 'onnxruntime', 'tokenizers'};"
        "model = load_reranker(sys.argv[1]); print(sorted(heavy & set(sys.modules)));"
        "model.score('the cat', ['cat'], 1e9); print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(folder)], check=True, capture_output=True, text=True
    )
    assert done.stdout.splitlines() == ["[]", "['numpy', 'onnxruntime', 'tokenizers']"]


# By name


def test_an_imported_cross_encoder_works_by_name_and_is_listed(
    folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("MARKLIGHT_CACHE_DIR", str(tmp_path / "cache"))
    assert run(["models", "import", str(folder), "--name", "team/pairs"]) == 0
    assert "reranker.name" in capsys.readouterr().out
    (folder / "tokenizer.json").unlink()
    scores = load_reranker("team/pairs").score("the cat", ["the cat"], LONG)
    assert scores == pytest.approx([likely(found=2, tokens=3 + 2 + 2)], abs=1e-6)
    assert run(["models", "list"]) == 0
    lines = {line.split()[0]: line for line in capsys.readouterr().out.splitlines()}
    assert "cross-encoder    512 tokens" in lines["team/pairs"]
    assert lines["team/pairs"].endswith("imported")
    assert lines[DEFAULT_RERANKER].endswith(f"marklight models pull {DEFAULT_RERANKER}")
    assert run(["models", "verify", "team/pairs"]) == 0
    stored = stored_folder("team/pairs")
    assert stored is not None
    (stored / "onnx" / "model.onnx").write_bytes(b"x")
    assert run(["models", "verify", "team/pairs"]) == 3
    with pytest.raises(ModelError, match=r"has changed.*again"):
        load_reranker("team/pairs").score("the cat", ["the cat"], LONG)


def test_the_default_reranker_is_pulled_and_resumed(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=f"marklight models pull {DEFAULT_RERANKER}"):
        load_reranker(cache_dir=tmp_path)
    files = {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }
    does = Behaviour(files | {"pytorch_model.bin": b"not wanted"}, cut_at=[1000])
    with serving(does) as address:
        hub = Hub(address, timeout_seconds=5, attempts=2, pause_seconds=0.01)
        record = pull(DEFAULT_RERANKER, cache_dir=tmp_path, hub=hub)
    assert does.ranges == ["bytes=1000-"]
    assert (record.kind, record.token_limit, record.dimension) == ("reranker", 512, 0)
    assert record.licence == "Apache-2.0"
    assert verify(DEFAULT_RERANKER, tmp_path) == []
    row = next(row for row in list_models(tmp_path) if row.name == DEFAULT_RERANKER)
    assert (row.kind, row.state, row.usable) == ("reranker", "pulled", True)
    scores = load_reranker(cache_dir=tmp_path).score("the cat", ["a dog", "the cat"], LONG)
    assert scores[1] > scores[0]


# What it is not


def test_a_model_of_the_wrong_kind_is_rejected(folder: Path, tmp_path: Path) -> None:
    embedder = tiny.write_folder(tmp_path / "vectors", tiny.weights())
    with pytest.raises(ModelError, match=r"pairs is a cross-encoder.*reranker\.name"):
        load(str(folder))
    with pytest.raises(ModelError, match=r"vectors is an embedding model.*model\.name"):
        load_reranker(str(embedder))
    import_folder(embedder, "v", tmp_path)
    with pytest.raises(ModelError, match="v is an embedding model"):
        load_reranker("v", cache_dir=tmp_path)
    with pytest.raises(ModelError, match="is a cross-encoder"):
        load(DEFAULT_RERANKER, cache_dir=tmp_path)
    with pytest.raises(ModelError, match="is an embedding model"):
        load_reranker(DEFAULT, cache_dir=tmp_path)
    with pytest.raises(ModelError, match="contains a cross-encoder, but BAAI/bge"):
        import_folder(folder, "BAAI/bge-small-en-v1.5", tmp_path)
    with pytest.raises(ModelError, match="no cross-encoder named 'nowhere'"):
        load_reranker("nowhere", cache_dir=tmp_path)


def test_our_description_file_sets_the_kind(folder: Path) -> None:
    (folder / "config.json").unlink()
    with pytest.raises(ModelError, match='kind = "reranker"'):
        load(str(folder))
    (folder / "marklight-model.toml").write_text('kind = "reranker"\ntoken_limit = 64\n')
    assert load_reranker(str(folder)).score("the cat", ["cat"], LONG)
    (folder / "marklight-model.toml").write_text('kind = "oracle"\n')
    with pytest.raises(ModelError, match="unknown kind 'oracle'"):
        load_reranker(str(folder))


def test_a_classifier_is_rejected(tmp_path: Path) -> None:
    labels = {str(at): name for at, name in enumerate(("no", "maybe", "yes"))}
    reported = pairs.write_folder(tmp_path / "told", gives="three", id2label=labels)
    with pytest.raises(ModelError, match="classifies texts into 3 classes"):
        load_reranker(str(reported))
    silent = load_reranker(str(pairs.write_folder(tmp_path / "silent", gives="three")))
    with pytest.raises(ModelError, match="returns 3 numbers per pair"):
        silent.score("the cat", ["cat"], LONG)


def test_a_token_level_model_is_rejected(tmp_path: Path) -> None:
    each = load_reranker(str(pairs.write_folder(tmp_path / "m", gives="each")))
    with pytest.raises(ModelError, match="is not a cross-encoder"):
        each.score("the cat", ["cat"], LONG)


def test_invalid_model_files_are_reported_in_one_line(folder: Path) -> None:
    (folder / "onnx" / "model.onnx").write_bytes(b"not a model")
    with pytest.raises(ModelError, match="onnxruntime cannot open the model pairs"):
        load_reranker(str(folder)).score("the cat", ["cat"], LONG)


def test_an_unsupported_input_is_reported(folder: Path) -> None:
    path = folder / "onnx" / "model.onnx"
    graph = onnx.load(path)
    graph.graph.input.append(
        onnx.helper.make_tensor_value_info("position_ids", onnx.TensorProto.INT64, ["b", "t"])
    )
    onnx.save(graph, path)
    with pytest.raises(ModelError, match="needs the input position_ids"):
        load_reranker(str(folder)).score("the cat", ["cat"], LONG)


def test_a_score_that_is_not_a_number_is_reported(folder: Path) -> None:
    path = folder / "onnx" / "model.onnx"
    graph = onnx.load(path)
    for constant in graph.graph.initializer:
        if constant.data_type == onnx.TensorProto.FLOAT:
            constant.CopyFrom(
                onnx.numpy_helper.from_array(np.array(np.nan, np.float32), constant.name)
            )
    onnx.save(graph, path)
    with pytest.raises(ModelError, match="not a number"):
        load_reranker(str(folder)).score("the cat", ["cat"], LONG)
