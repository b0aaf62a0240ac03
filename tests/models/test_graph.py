from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnxruntime
import pytest

from marklight.models.graph import Float32, Int8, Range, build, small_integers
from tests.models import tiny

if TYPE_CHECKING:
    from marklight.model import Matrix


def run(model: bytes, ids: list[list[int]]) -> Matrix:
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    (found,) = session.run(None, {"input_ids": np.array(ids, np.int64)})
    return np.asarray(found, np.float32)


@pytest.mark.parametrize("pooling", ["cls", "mean"])
def test_the_graph_matches_numpy(pooling: str) -> None:
    of, ids = tiny.weights(), [[1, 3, 4, 5, 2], [1, 9, 10, 11, 2]]
    found = run(build(of, Float32(), pooling=pooling, normalise=True), ids)
    for row, text in zip(found, ids, strict=True):
        each = tiny.tokens(of, text)
        expected = tiny.unit(each[0] if pooling == "cls" else each.mean(axis=0))
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
        from marklight.models.graph import Graph

        graph = Graph(of)
        products = Int8({name: Range(smooth, largest / 127, 128)})
        given = graph.constant("given", value[None])
        made = products.product(graph, name, products.input(graph, name, given))
        found = run(
            graph.model(graph.node("Squeeze", made, graph.constant("a", np.array([1])))), [[1]]
        )
        # Compared without the huge channel's own part, which both get nearly right.
        rest = exact - 1000.0 * of[f"{name}.w"][:, 0]
        return float(np.abs(found - 1000.0 * of[f"{name}.w"][:, 0] - rest).max())

    plain = np.ones(tiny.HIDDEN, np.float32)
    smooth = plain.copy()
    smooth[0] = 31.6
    assert off(smooth, 1000 / 31.6) < off(plain, 1000.0)
