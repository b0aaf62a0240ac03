"""Measures the smoothing factors and ranges of the default model.

    python -m benchmarks.ranges          # some minutes; writes scripts/<name>.npz

Matrix by matrix, the strength of smoothing is taken that moves whole vectors least from those of the
float32 graph, on passages of three documentations, none of which the development sets are made of.
(Choosing by each product's own error, every token counting the same, moved vectors more than twice as far.)
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper
from tokenizers import Tokenizer

from benchmarks._measure import corpus
from benchmarks.quantisation import Runner
from marklight.models.record import GRANITE
from scripts.build_model import (
    RANGES_FILE,
    Float32,
    Graph,
    Int8,
    Products,
    Range,
    Ranges,
    Weights,
    build,
    read_weights,
    write_ranges,
)

if TYPE_CHECKING:
    from marklight.model import Matrix

STRENGTHS = (0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
"""How far an outlier moves from activations into weights: SmoothQuant's alpha."""
OUTLIER = 4.0
"""A channel so many times wider than the 99th of a hundred is multiplied apart. Only in `f2`, whose
output is narrow: in `f1` it may help a little too, but costs a pass over the widest values."""
ORDER = ("f2", "f1", "qkv", "ao")
"""Most harmful first."""


class Tapped(Float32):
    """Exact products that remember the name of every matrix's input."""

    def __init__(self) -> None:
        self.inputs: dict[str, str] = {}

    def input(self, graph: Graph, matrix: str, value: str) -> str:  # noqa: ARG002
        self.inputs.setdefault(matrix, value)
        return value


def passages(count: int = 360) -> list[str]:
    """Pieces of three documentations, none of which the development sets are made of."""
    rng, found = random.Random(1), []
    for name in ("kubernetes", "fastapi", "blue-book"):
        files = sorted(corpus(name).rglob("*.md"))
        for file in rng.sample(files, min(len(files), count // 3)):
            text = file.read_text(errors="replace")
            start = rng.randrange(max(1, len(text) - 200))
            found.append(text[start : start + rng.choice([40, 120, 300, 600, 900])])
    return [text for text in found if text.strip()]


def activations(weights: Weights, texts: Sequence[str]) -> dict[str, Matrix]:
    tapped = Tapped()
    model = onnx.load_from_string(build(weights, tapped, pooling=GRANITE.pooling, normalise=True))
    for value in tapped.inputs.values():
        model.graph.output.append(helper.make_tensor_value_info(value, TensorProto.FLOAT, None))
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    tokenizer = Tokenizer.from_str(weights.tokenizer)
    tokenizer.no_padding()
    tokenizer.enable_truncation(GRANITE.token_limit)
    seen: dict[str, list[Matrix]] = {matrix: [] for matrix in tapped.inputs}
    for encoding in tokenizer.encode_batch_fast(list(texts)):
        given = {"input_ids": np.array([encoding.ids], np.int64)}
        found = session.run(list(tapped.inputs.values()), given)
        for matrix, values in zip(tapped.inputs, found, strict=True):
            seen[matrix].append(values[0])
    return {matrix: np.concatenate(values) for matrix, values in seen.items()}


def fitted(matrix: str, weights: Matrix, inputs: Matrix, strength: float) -> Range:
    """The range of a matrix whose inputs were measured, for one strength of smoothing."""
    widest = np.maximum(np.abs(inputs).max(axis=0), 1e-3)
    heaviest = np.maximum(np.abs(weights).max(axis=0), 1e-4)
    far = widest > OUTLIER * np.quantile(widest, 0.99)
    apart = tuple(np.flatnonzero(far).tolist()) if matrix.endswith("f2") else ()
    smooth = widest**strength / heaviest ** (1 - strength)
    # Steps of an eighth of an octave: as good, and small in the file.
    smooth = np.exp2(np.rint(8 * np.log2(smooth / np.exp(np.log(smooth).mean()))) / 8)
    kept = inputs / smooth
    kept[:, list(apart)] = 0
    low, high = min(float(kept.min()), 0.0), float(kept.max())
    scale = (high - low) / 255
    return Range(smooth.astype(np.float32), scale, round(-low / scale), apart)


def measure(weights: Weights) -> Ranges:
    """Return the range of each matrix's input, by which vectors are moved least."""
    seen = activations(weights, passages())
    tokenizer = Tokenizer.from_str(weights.tokenizer)
    tokenizer.no_padding()
    tokenizer.enable_truncation(192)
    tokens = [encoding.ids for encoding in tokenizer.encode_batch_fast(passages()[::3])]

    def vectors(products: Products) -> Matrix:
        return Runner(build(weights, products, pooling=GRANITE.pooling, normalise=True))(tokens)

    exact = vectors(Float32())

    def moved(ranges: Ranges) -> float:
        return float(1 - (vectors(Int8(ranges)) * exact).sum(axis=1).mean())

    ranges = {name: fitted(name, weights[f"{name}.w"], seen[name], 0.8) for name in seen}
    best = moved(ranges)
    for name in sorted(seen, key=lambda name: (ORDER.index(name.split(".")[1]), name)):
        for strength in STRENGTHS:
            tried = fitted(name, weights[f"{name}.w"], seen[name], strength)
            if (found := moved({**ranges, name: tried})) < best:
                best, ranges[name] = found, tried
        print(f"{name}: apart {ranges[name].apart}, cosine {1 - best:.5f}", flush=True)
    return ranges


if __name__ == "__main__":
    write_ranges(RANGES_FILE, measure(read_weights()))
