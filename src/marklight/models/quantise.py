"""Matrix products with eight-bit integers that lose almost nothing.

A few channels of this family's activations are a hundred times larger than the rest, so one scale
for all of them leaves the rest no bits. As in SmoothQuant (Xiao et al. 2023), every input channel is
divided by a factor and the weights are multiplied by it; the one or two channels for which that is
not enough are multiplied apart, exactly. Factors and ranges were measured beforehand
(benchmarks/ranges.py) and come with the package: nothing depends on the batch, so a text has one
vector on its own and among others.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from onnx import TensorProto

from marklight.models.graph import Graph

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from marklight.model import Matrix, Vector

_GROUP = 64
"""Values of an embedding row that share a scale; the bundled pack has the same, so nothing is lost."""
_ALL = slice(None)


@dataclass(frozen=True, slots=True, eq=False)
class Range:
    """How one matrix's input is brought to eight bits."""

    smooth: Vector
    """What each input channel is divided by."""
    scale: float
    zero: int
    apart: tuple[int, ...] = ()
    """Channels that are multiplied exactly."""


Ranges = Mapping[str, Range]


def read_ranges(path: Path) -> Ranges:
    """Ranges by matrix, from a file that `write_ranges` made."""
    with np.load(path, allow_pickle=False) as file:
        return {
            name: Range(
                np.exp2(file[f"{name}.smooth"].astype(np.float32) / 8),
                float(file[f"{name}.range"][0]),
                int(file[f"{name}.range"][1]),
                tuple(file[f"{name}.apart"].tolist()),
            )
            for name in sorted({key.rsplit(".", 1)[0] for key in file.files})
        }


def write_ranges(path: Path, ranges: Ranges) -> None:
    """Keep ranges in a file; factors are powers of two in steps of an eighth."""
    arrays: dict[str, NDArray[Any]] = {}
    for name, each in ranges.items():
        arrays[f"{name}.smooth"] = np.rint(8 * np.log2(each.smooth)).astype(np.int8)
        arrays[f"{name}.range"] = np.array([each.scale, each.zero], np.float32)
        arrays[f"{name}.apart"] = np.array(each.apart, np.int16)
    np.savez_compressed(path, allow_pickle=False, **arrays)


class Int8:
    """Products of unsigned activations and signed weights, one weight scale for each output."""

    def __init__(self, ranges: Ranges) -> None:
        self._ranges = ranges
        self._exact: dict[str, str] = {}
        """Values before they were made small, by the name they have after it."""

    def table(self, graph: Graph, name: str, ids: str) -> str:
        table = graph.weights[name]
        rows, width = table.shape
        values, scales = small_integers(table.reshape(-1, _GROUP))
        grouped = (rows, width // _GROUP, -1)
        small = graph.node("Gather", graph.constant(f"{name}.q", values.reshape(grouped)), ids)
        scale = graph.node("Gather", graph.constant(f"{name}.s", scales.reshape(grouped)), ids)
        found = graph.node("Mul", graph.node("Cast", small, to=TensorProto.FLOAT), scale)
        return graph.node("Reshape", found, graph.constant("row", np.array([0, 0, width])))

    def input(self, graph: Graph, matrix: str, value: str) -> str:
        factors = graph.constant(f"{matrix}.smooth", 1 / self._ranges[matrix].smooth)
        smooth = graph.node("Mul", value, factors)
        small = graph.node("QuantizeLinear", smooth, *self._range(graph, matrix))
        self._exact[small] = value
        return small

    def product(self, graph: Graph, matrix: str, value: str, rows: slice = _ALL) -> str:
        known, weights = self._ranges[matrix], graph.weights[f"{matrix}.w"][rows]
        apart = list(known.apart)
        rest = weights * known.smooth
        rest[:, apart] = 0
        values, scales = small_integers(rest)
        part = f"{matrix}.{rows.start or 0}"
        scale, zero = self._range(graph, matrix)
        found = graph.fused(
            "MatMulIntegerToFloat",
            value,
            graph.constant(f"{part}.q", values.T),
            scale,
            graph.constant(f"{part}.s", scales),
            zero,
        )
        if not apart:
            return found
        channels = graph.constant(f"{part}.apart", np.array(apart, np.int64))
        few = graph.node("Gather", self._exact[value], channels, axis=2)
        exact = graph.constant(f"{part}.apart.w", weights[:, apart].T)
        return graph.node("Add", found, graph.node("MatMul", few, exact))

    def _range(self, graph: Graph, matrix: str) -> tuple[str, str]:
        known = self._ranges[matrix]
        return (
            graph.constant(f"{matrix}.scale", np.array(known.scale, np.float32)),
            graph.constant(f"{matrix}.zero", np.array(known.zero, np.uint8)),
        )


def small_integers(rows: Matrix) -> tuple[NDArray[np.int8], Vector]:
    """Each row as integers from -127 to 127, and its scale."""
    scales = np.abs(rows).max(axis=1) / 127
    scales = np.where(scales == 0, 1, scales).astype(np.float32)
    values: NDArray[Any] = np.rint(rows / scales[:, None])
    return values.astype(np.int8), scales
