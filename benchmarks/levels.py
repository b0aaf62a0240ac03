"""Measures the smoothing factors and ranges that the package ships for its converted models.

    python -m benchmarks.levels          # half a minute; writes src/marklight/models/<name>.npz

For every matrix the way of smoothing and of clipping is taken that changes the products least on
passages of three documentations, none of which the development sets are made of.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper
from tokenizers import Tokenizer

from marklight.models.convert import levels_file, read_weights
from marklight.models.graph import Float32, Graph, build
from marklight.models.quantise import Level, small_integers, write_levels
from marklight.models.record import KNOWN, ModelRecord
from marklight.models.weights import Weights

if TYPE_CHECKING:
    from marklight.model import Matrix

EVAL = Path("/work/shared/eval")
STRENGTHS = (0.4, 0.5, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9, 1.0)
"""How far an outlier moves from activations into weights: SmoothQuant's alpha."""
CLIPS = (1.0, 0.95, 0.9, 0.8, 0.7, 0.6, 0.5)
"""Shares of the measured range to keep: what lies outside is clipped for finer steps within."""


class Tapped(Float32):
    """Exact products that remember the name of every matrix's input."""

    def __init__(self) -> None:
        self.inputs: dict[str, str] = {}

    def input(self, graph: Graph, matrix: str, value: str) -> str:
        self.inputs.setdefault(matrix, value)
        return value


def passages(count: int = 360) -> list[str]:
    """Pieces of three documentations, none of which the development sets are made of."""
    rng, found = random.Random(1), []
    for corpus in ("kubernetes", "fastapi", "blue-book"):
        files = sorted((EVAL / "corpora" / corpus).rglob("*.md"))
        for file in rng.sample(files, min(len(files), count // 3)):
            text = file.read_text(errors="replace")
            start = rng.randrange(max(1, len(text) - 200))
            found.append(text[start : start + rng.choice([40, 120, 300, 600, 900])])
    return [text for text in found if text.strip()]


def activations(record: ModelRecord, weights: Weights, texts: Sequence[str]) -> dict[str, Matrix]:
    tapped = Tapped()
    model = onnx.load_from_string(build(weights, tapped, pooling=record.pooling, normalise=True))
    for value in tapped.inputs.values():
        model.graph.output.append(helper.make_tensor_value_info(value, TensorProto.FLOAT, None))
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    tokenizer = Tokenizer.from_str(weights.tokenizer)
    tokenizer.enable_truncation(record.token_limit)
    seen: dict[str, list[Matrix]] = {matrix: [] for matrix in tapped.inputs}
    for encoding in tokenizer.encode_batch_fast(list(texts)):
        given = {"input_ids": np.array([encoding.ids], np.int64)}
        found = session.run(list(tapped.inputs.values()), given)
        for matrix, values in zip(tapped.inputs, found, strict=True):
            seen[matrix].append(values[0])
    return {matrix: np.concatenate(values) for matrix, values in seen.items()}


def best_level(weights: Matrix, inputs: Matrix) -> tuple[float, Level]:
    rng = np.random.default_rng(0)
    tried = inputs[rng.choice(len(inputs), min(1500, len(inputs)), replace=False)]
    exact = tried @ weights.T
    spread = float(((exact - exact.mean(axis=0)) ** 2).sum())
    widest = np.maximum(np.abs(inputs).max(axis=0), 1e-3)
    heaviest = np.maximum(np.abs(weights).max(axis=0), 1e-4)
    best: tuple[float, Level] | None = None
    for strength in STRENGTHS:
        smooth = widest**strength / heaviest ** (1 - strength)
        # Steps of an eighth of an octave: as good, and small in the file.
        smooth = np.exp2(np.rint(8 * np.log2(smooth / np.exp(np.log(smooth).mean()))) / 8)
        values, scales = small_integers(weights * smooth)
        moved, quantised = tried / smooth, (values * scales[:, None]).T
        low, high = min(float((inputs / smooth).min()), 0.0), float((inputs / smooth).max())
        for clip in CLIPS:
            scale = clip * (high - low) / 255
            zero = round(-clip * low / scale)
            steps = np.clip(np.rint(moved / scale) + zero, 0, 255) - zero
            off = float((((steps * scale) @ quantised - exact) ** 2).sum())
            error = float(np.sqrt(off / spread))
            if best is None or error < best[0]:
                best = error, Level(smooth.astype(np.float32), scale, zero)
    assert best is not None
    return best


def measure(record: ModelRecord) -> None:
    weights, levels = read_weights(record), {}
    for matrix, inputs in activations(record, weights, passages()).items():
        error, levels[matrix] = best_level(weights[f"{matrix}.w"], inputs)
        print(f"{record.name} {matrix}: {error:.2%} of the product's spread", flush=True)
    write_levels(levels_file(record), levels)


if __name__ == "__main__":
    for known in KNOWN.values():
        if known.form != "onnx":
            measure(known)
