"""Builds the ONNX graph of a BERT-family encoder from its weights.

There is no attention mask: only texts of one length share a batch. That spares all padding, makes a
text's vector independent of its neighbours, and lets onnxruntime take its flash attention, which
refuses masks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from marklight.models.weights import Weights

if TYPE_CHECKING:
    from numpy.typing import NDArray

VERSION = 1
"""Counts changes to the graph that change its vectors; part of every fingerprint."""

_FUSED = "com.microsoft"
_ALL = slice(None)


class Graph:
    """Nodes and constants while they are collected; values are known by name."""

    def __init__(self, weights: Weights) -> None:
        self.weights = weights
        self._nodes: list[Any] = []
        self._constants: dict[str, Any] = {}

    def constant(self, name: str, value: NDArray[Any]) -> str:
        """A named constant, stored once."""
        if name not in self._constants:
            self._constants[name] = numpy_helper.from_array(np.array(value, order="C"), name)
        return name

    def weight(self, name: str) -> str:
        """One of the encoder's own tensors as it is."""
        return self.constant(name, self.weights[name])

    def node(self, op: str, *inputs: str, domain: str = "", **attributes: Any) -> str:
        """The one output of a new node."""
        name = f"{op}.{len(self._nodes)}"
        self._nodes.append(
            helper.make_node(op, inputs, [name], name=name, domain=domain, **attributes)
        )
        return name

    def fused(self, op: str, *inputs: str, **attributes: Any) -> str:
        """A node that onnxruntime brings along: several plain ones in one pass over memory."""
        return self.node(op, *inputs, domain=_FUSED, **attributes)

    def model(self, output: str) -> bytes:
        """The finished file, from `input_ids` to `output`."""
        graph = helper.make_graph(
            [*self._nodes, helper.make_node("Identity", [output], ["embedding"])],
            "encoder",
            [helper.make_tensor_value_info("input_ids", TensorProto.INT64, ["batch", "tokens"])],
            [
                helper.make_tensor_value_info(
                    "embedding", TensorProto.FLOAT, ["batch", self.weights.shape.hidden]
                )
            ],
            list(self._constants.values()),
        )
        opsets = [helper.make_opsetid("", 17), helper.make_opsetid(_FUSED, 1)]
        model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
        return bytes(model.SerializeToString())


class Products(Protocol):
    """How matrix products are computed: exactly, or with small integers."""

    def table(self, graph: Graph, name: str, ids: str) -> str:
        """Rows `ids` of an embedding table."""

    def input(self, graph: Graph, matrix: str, value: str) -> str:
        """A value made ready to be multiplied with a matrix, once for several products."""

    def product(self, graph: Graph, matrix: str, value: str, rows: slice = _ALL) -> str:
        """A ready value times (some output rows of) a matrix, without its bias."""


class Float32:
    """Products as the weights say."""

    def table(self, graph: Graph, name: str, ids: str) -> str:
        return graph.node("Gather", graph.weight(name), ids)

    def input(self, graph: Graph, matrix: str, value: str) -> str:  # noqa: ARG002
        return value

    def product(self, graph: Graph, matrix: str, value: str, rows: slice = _ALL) -> str:
        part = graph.weights[f"{matrix}.w"][rows]
        name = f"{matrix}.w.{rows.start or 0}"
        return graph.node("MatMul", value, graph.constant(name, part.T))


def build(weights: Weights, products: Products, *, pooling: str, normalise: bool) -> bytes:
    """An ONNX file that takes `input_ids` of one length and gives one vector for each row."""
    graph = Graph(weights)
    exact = Float32()
    value = _embedding(graph, products)
    last = weights.shape.layers - 1
    for layer in range(weights.shape.layers):
        # Only the first token's vector is read: the last layer need not compute the others, and
        # what is left of it costs so little that it stays exact.
        first_only = layer == last and pooling == "cls"
        rest = exact if first_only else products
        queries = _first_token(graph, value) if first_only else value
        value = _layer(graph, products, rest, f"l{layer}", value, queries)
    if pooling == "cls":
        value = graph.node("Squeeze", value, graph.constant("axis1", np.array([1])))
    else:
        value = graph.node("ReduceMean", value, axes=[1], keepdims=0)
    if normalise:
        value = graph.node("LpNormalization", value, axis=-1, p=2)
    return graph.model(value)


def _embedding(graph: Graph, products: Products) -> str:
    weights = graph.weights
    words = products.table(graph, "word_emb", "input_ids")
    # All tokens are of type 0, so its row can be added to every position beforehand.
    places = graph.constant("places", weights["pos_emb"] + weights["type_emb"][0])
    zero, one = graph.constant("zero", np.array([0])), graph.constant("one", np.array([1]))
    length = graph.node("Shape", "input_ids", start=1, end=2)
    places = graph.node("Slice", places, zero, length, zero, one)
    return graph.node(
        "LayerNormalization",
        graph.node("Add", words, places),
        graph.weight("emb_ln.w"),
        graph.weight("emb_ln.b"),
        epsilon=weights.shape.layer_norm_eps,
    )


def _first_token(graph: Graph, value: str) -> str:
    zero, one = graph.constant("zero", np.array([0])), graph.constant("one", np.array([1]))
    return graph.node("Slice", value, zero, one, one)


def _layer(
    graph: Graph, products: Products, rest: Products, name: str, value: str, queries: str
) -> str:
    hidden = graph.weights.shape.hidden
    qkv, ready = f"{name}.qkv", products.input(graph, f"{name}.qkv", value)
    asking = ready if queries == value else rest.input(graph, qkv, queries)
    attended = graph.fused(
        "MultiHeadAttention",
        (products if queries == value else rest).product(graph, qkv, asking, slice(0, hidden)),
        products.product(graph, qkv, ready, slice(hidden, 2 * hidden)),
        products.product(graph, qkv, ready, slice(2 * hidden, 3 * hidden)),
        graph.weight(f"{qkv}.b"),
        num_heads=graph.weights.shape.heads,
    )
    attended = _multiply(graph, rest, f"{name}.ao", attended)
    attended = _add_and_normalise(graph, name, "ao", "aln", attended, queries)
    wide = _multiply(graph, rest, f"{name}.f1", attended)
    wide = graph.fused("BiasGelu", wide, graph.weight(f"{name}.f1.b"))
    narrow = _multiply(graph, rest, f"{name}.f2", wide)
    return _add_and_normalise(graph, name, "f2", "fln", narrow, attended)


def _multiply(graph: Graph, products: Products, matrix: str, value: str) -> str:
    return products.product(graph, matrix, products.input(graph, matrix, value))


def _add_and_normalise(
    graph: Graph, layer: str, product: str, norm: str, value: str, skip: str
) -> str:
    return graph.fused(
        "SkipLayerNormalization",
        value,
        skip,
        graph.weight(f"{layer}.{norm}.w"),
        graph.weight(f"{layer}.{norm}.b"),
        graph.weight(f"{layer}.{product}.b"),
        epsilon=graph.weights.shape.layer_norm_eps,
    )
