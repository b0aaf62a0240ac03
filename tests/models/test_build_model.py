"""The files of the default model: how its graph computes, and what is built."""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING

import numpy as np
import onnxruntime
import pytest
from tokenizers import Tokenizer

from marklight.models.record import GRANITE
from marklight.ports import Embedder
from scripts import build_model
from scripts.build_model import (
    RANGES_FILE,
    Float32,
    Graph,
    Int8,
    Range,
    build,
    build_files,
    parse_weights,
    read_weights,
    small_integers,
)
from tests.models import tiny

if TYPE_CHECKING:
    from marklight.model import Matrix


def run(model: bytes, ids: list[list[int]]) -> Matrix:
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    (vectors,) = session.run(None, {"input_ids": np.array(ids, np.int64)})
    return np.asarray(vectors, np.float32)


def test_the_bundled_files_are_those_that_the_weights_produce() -> None:
    for file, data in zip(GRANITE.files, build_files(), strict=True):
        assert (sha256(data).hexdigest(), len(data)) == (file.sha256, file.size)
        assert file.sha256[:8] in file.path


def test_int8_vectors_match_float32(granite: Embedder) -> None:
    texts = ("How do I roll back a deployment?", "Bake the bread for forty minutes.", "x = f(1)")
    weights = read_weights()
    model = build(weights, Float32(), pooling=GRANITE.pooling, normalise=True)
    tokenizer = Tokenizer.from_str(weights.tokenizer)
    tokenizer.no_padding()
    for text, vector in zip(texts, granite.embed_passages(texts), strict=True):
        (expected,) = run(model, [tokenizer.encode(text).ids])
        assert float(expected @ vector) > 0.99


def test_the_recipe_names_the_ranges() -> None:
    ranges = sha256(RANGES_FILE.read_bytes()).hexdigest()[:8]
    assert GRANITE.recipe.endswith(f"levels {ranges}")


def test_other_weights_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build_model, "WEIGHTS_SHA256", "0" * 64)
    with pytest.raises(ValueError, match="SHA-256"):
        read_weights()


@pytest.mark.parametrize("content", [b"HMSEMB01" + b"\xff" * 8, b"NOTAPACK" + bytes(50)])
def test_an_invalid_pack_is_rejected(content: bytes) -> None:
    with pytest.raises(ValueError, match="not a pack"):
        parse_weights(content)


@pytest.mark.parametrize("pooling", ["cls", "mean"])
def test_the_graph_matches_numpy(pooling: str) -> None:
    of, ids = tiny.weights(), [[1, 3, 4, 5, 2], [1, 9, 10, 11, 2]]
    vectors = run(build(of, Float32(), pooling=pooling, normalise=True), ids)
    for row, text in zip(vectors, ids, strict=True):
        tokens = tiny.tokens(of, text)
        expected = tiny.unit(tokens[0] if pooling == "cls" else tokens.mean(axis=0))
        np.testing.assert_allclose(row, expected, atol=1e-5)


def test_integers_of_a_row_span_the_whole_range() -> None:
    values, scales = small_integers(np.array([[2.54, -1.27, 0], [0, 0, 0]], np.float32))
    assert values.tolist() == [[127, -64, 0], [0, 0, 0]]  # 2.54 / 127 = 0.02; 1.27 / 0.02 = 63.5
    assert scales[0] == pytest.approx(0.02)


def test_smoothing_keeps_precision_beside_a_huge_channel() -> None:
    of = tiny.weights()
    value, name = np.zeros((1, tiny.HIDDEN), np.float32), "l0.ao"
    value[0, :3] = [1000.0, 1.0, 0.5]
    exact = value @ of[f"{name}.w"].T

    def off(smooth: Matrix, largest: float) -> float:
        graph = Graph(of)
        products = Int8({name: Range(smooth, largest / 127, 128)})
        given = graph.constant("given", value[None])
        product = products.product(graph, name, products.input(graph, name, given))
        row = run(
            graph.model(graph.node("Squeeze", product, graph.constant("a", np.array([1])))), [[1]]
        )
        # Compared without the huge channel's own part, which both get nearly right.
        rest = exact - 1000.0 * of[f"{name}.w"][:, 0]
        return float(np.abs(row - 1000.0 * of[f"{name}.w"][:, 0] - rest).max())

    plain = np.ones(tiny.HIDDEN, np.float32)
    smooth = plain.copy()
    smooth[0] = 31.6
    assert off(smooth, 1000 / 31.6) < off(plain, 1000.0)
