"""Convert the multilingual universal sentence encoder (Yang et al. 2019) to ONNX: weights in a NumPy archive, a SentencePiece model.

Token embeddings and convolutions over two, three and five of them are summed, then pass four dense layers with skip
connections. The tokenizer becomes a Unigram model of the `tokenizers` package; the protocol buffer is read here, so that
no SentencePiece runtime is needed.
"""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Iterator, Mapping
from hashlib import sha256
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from onnx import TensorProto

from marklight.errors import ModelError
from marklight.models.graph import Graph
from marklight.models.weights import Shape, Weights

if TYPE_CHECKING:
    from marklight.models.record import ModelRecord

_ORDERS = ((2, 0), (3, 1), (5, 2))
"""Tokens of each convolution, and how many of them stand before the current one."""
_BEGIN, _END = 1, 2
"""Ids of the tokens at both ends of a text."""
_NORMAL, _USER_DEFINED = 1, 4
"""Types of SentencePiece tokens that occur in texts; the rest are control tokens."""


def read_encoder(record: ModelRecord, folder: Path) -> Weights:
    """Read the weights and the tokenizer of the package's folder, after verifying their SHA-256."""
    weights, vocabulary = (_verified(folder / file.path, file.sha256) for file in record.files)
    try:
        with np.load(BytesIO(weights), allow_pickle=False) as file:
            tensors = {name: file[name] for name in file.files}
        shape = Shape(tensors["d3"].shape[1], 0, 0, float(tensors["eps"]))
        return Weights(shape, tensors, unigram_tokenizer(vocabulary))
    except (ValueError, KeyError, IndexError, struct.error, OSError) as error:
        raise ModelError(
            f"The model {record.name} cannot be read: {error}", "Reinstall its package"
        ) from error


def _verified(path: Path, digest: str) -> bytes:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ModelError(
            f"The model file {path} cannot be read: {error}", "Reinstall its package"
        ) from error
    if (actual := sha256(data).hexdigest()) != digest:
        raise ModelError(
            f"The model file {path} is damaged: its SHA-256 is {actual[:12]}…, not {digest[:12]}…",
            "Reinstall its package",
        )
    return data


def build_encoder(weights: Weights) -> bytes:
    """Return an ONNX file that maps `input_ids` of one length to one vector per row."""
    graph, of = Graph(weights), weights.tensors
    embedded = _embedding(graph, of)
    branches = [embedded]
    for (order, before), value in zip(_ORDERS, _projections(graph, embedded), strict=True):
        for layer in (1, 2):
            seen = _convolution(graph, value, f"w{layer}_{order}", f"b{layer}_{order}", before)
            value = graph.node("Add", graph.node("Relu", seen), value)
        branches.append(value)
    value = graph.node("Concat", *branches, axis=2)
    value = _normalise(graph, value, graph.weight("ln_g"), graph.weight("ln_b"))
    # The sum over the tokens divided by the root of their number.
    shape = graph.node("Shape", "input_ids", start=1)
    root = graph.node("Sqrt", graph.node("Cast", shape, to=TensorProto.FLOAT))
    value = graph.node("Mul", graph.node("ReduceMean", value, axes=[1], keepdims=0), root)
    value = graph.node("MatMul", value, graph.weight("cnn_W"))
    value = graph.node("Add", value, graph.node("Mul", graph.weight("cnn_b"), root))
    value = _dense_layers(graph, value)
    return graph.model(graph.node("LpNormalization", graph.node("Tanh", value), axis=-1, p=2))


def _embedding(graph: Graph, of: Mapping[str, Any]) -> str:
    """Look up token embeddings: 8-bit values whose scale depends on the id modulo the number of parts."""
    parts = [of[f"q{number}"] for number in range(1, len(of["scale"]) + 1)]
    table = np.empty((len(parts) * len(parts[0]), parts[0].shape[1]), np.uint8)
    for number, part in enumerate(parts):
        table[number :: len(parts)] = part
    rows = graph.node("Gather", graph.constant("table", table), "input_ids")
    modulus = graph.constant("parts", np.array(len(parts), np.int64))
    part_ids = graph.node("Mod", "input_ids", modulus)
    scale = graph.node("Gather", graph.constant("scale", of["scale"][:, None]), part_ids)
    low = graph.node("Gather", graph.constant("lo", of["lo"][:, None]), part_ids)
    values = graph.node("Cast", rows, to=TensorProto.FLOAT)
    return graph.node("Add", graph.node("Mul", values, scale), low)


def _projections(graph: Graph, embedded: str) -> list[str]:
    """Project the embeddings once for each convolution; all projections are normalised together."""

    def joined(name: str, axis: int) -> str:
        parts = [graph.weights[f"{name}{order}"] for order, _ in _ORDERS]
        return graph.constant(f"{name}.joined", np.concatenate(parts, axis))

    product = graph.node("MatMul", embedded, joined("proj", 1))
    value = graph.node("Add", product, joined("proj_b", 0))
    value = _normalise(graph, value, joined("ln_g", 0), joined("ln_b", 0))
    width = graph.weights["proj2"].shape[1]
    axis = graph.constant("last", np.array([2]))
    return [
        graph.node(
            "Slice",
            value,
            graph.constant(f"from.{at}", np.array([at * width])),
            graph.constant(f"to.{at}", np.array([(at + 1) * width])),
            axis,
        )
        for at in range(len(_ORDERS))
    ]


def _normalise(graph: Graph, value: str, gain: str, bias: str) -> str:
    epsilon = graph.weights.shape.layer_norm_eps
    return graph.node("LayerNormalization", value, gain, bias, epsilon=epsilon)


def _convolution(graph: Graph, value: str, matrix: str, bias: str, before: int) -> str:
    """Convolve over tokens; beyond both ends of the text are zeros."""
    weights = graph.weights[matrix]
    width = weights.shape[1]
    order = len(weights) // width
    kernel = weights.reshape(order, width, width).transpose(2, 1, 0)
    channels_first = graph.node("Transpose", value, perm=[0, 2, 1])
    seen = graph.node(
        "Conv",
        channels_first,
        graph.constant(f"{matrix}.kernel", kernel),
        graph.weight(bias),
        kernel_shape=[order],
        pads=[before, order - 1 - before],
    )
    return graph.node("Transpose", seen, perm=[0, 2, 1])


def _dense_layers(graph: Graph, value: str) -> str:
    def product(matrix: str, of: str) -> str:
        return graph.node("MatMul", of, graph.weight(matrix))

    first = graph.node("Relu", product("d0", value))
    second = graph.node("Relu", graph.node("Add", product("d1", first), product("p1", value)))
    third = graph.node("Relu", product("d2", second))
    return graph.node("Add", product("d3", third), product("p3", second))


def unigram_tokenizer(model: bytes) -> str:
    """Return the JSON of a tokenizer that splits text as this SentencePiece model does."""
    pieces: list[tuple[str, float]] = []
    normalizer = b""
    for field, value in _fields(model):
        if field == 1:
            own = dict(_fields(value))
            kind = own.get(3, _NORMAL)
            text = own[1].decode()
            if kind not in (_NORMAL, _USER_DEFINED):
                text = f"\0{text}"  # no text contains it: control tokens are never found
            pieces.append((text, struct.unpack("<f", own.get(2, b"\0\0\0\0"))[0]))
        elif field == 3:
            normalizer = dict(_fields(value)).get(2, b"")
    special = {
        name: {"id": name, "ids": [id], "tokens": [name]}
        for name, id in (("<s>", _BEGIN), ("</s>", _END))
    }
    begin, text, end = (
        {"SpecialToken": {"id": "<s>", "type_id": 0}},
        {"Sequence": {"id": "A", "type_id": 0}},
        {"SpecialToken": {"id": "</s>", "type_id": 0}},
    )
    steps = [
        {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "},
        {"type": "Strip", "strip_left": True, "strip_right": True},
    ]
    if normalizer:
        charsmap = base64.b64encode(normalizer).decode()
        steps.insert(0, {"type": "Precompiled", "precompiled_charsmap": charsmap})
    return json.dumps(
        {
            "version": "1.0",
            "truncation": None,
            "padding": None,
            "added_tokens": [],
            "normalizer": {"type": "Sequence", "normalizers": steps},
            "pre_tokenizer": {
                "type": "Metaspace",
                "replacement": "▁",
                "prepend_scheme": "always",
                "split": True,
            },
            "post_processor": {
                "type": "TemplateProcessing",
                "single": [begin, text, end],
                "pair": [begin, text, end, {"Sequence": {"id": "B", "type_id": 1}}],
                "special_tokens": special,
            },
            "decoder": None,
            "model": {"type": "Unigram", "unk_id": 0, "vocab": pieces, "byte_fallback": False},
        }
    )


def _fields(data: bytes) -> Iterator[tuple[int, Any]]:
    """Yield the fields of a message of protocol buffers: bytes, or integers."""
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        field, wire = key >> 3, key & 7
        if wire == 0:
            value, at = _varint(data, at)
            yield field, value
            continue
        if wire == 2:
            length, at = _varint(data, at)
        elif wire in (1, 5):
            length = 8 if wire == 1 else 4
        else:
            raise ValueError(f"unknown wire type {wire}")
        if at + length > len(data):
            raise ValueError("a field ends after the message")
        yield field, data[at : at + length]
        at += length


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at += 1
        if byte < 0x80:
            return value, at
        shift += 7
