"""A tiny generated BERT, and the same computation in numpy."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
from onnx import TensorProto, helper

from scripts.build_model import Float32, Shape, Weights, build

if TYPE_CHECKING:
    from marklight.model import Matrix

SPECIAL = ("[UNK]", "[CLS]", "[SEP]")
WORDS = [*SPECIAL, *"the cat sat on a mat dog ran far represent this sentence".split()]
HIDDEN, WIDE, LAYERS, HEADS, PLACES = 16, 32, 2, 4, 24


def tokenizer(words: list[str]) -> str:
    """A word is a token; whatever is not among these words is [UNK]."""
    return json.dumps(
        {
            "version": "1.0",
            "added_tokens": [],
            "normalizer": {"type": "Lowercase"},
            "pre_tokenizer": {"type": "Whitespace"},
            "post_processor": {
                "type": "BertProcessing",
                "sep": ["[SEP]", 2],
                "cls": ["[CLS]", 1],
            },
            "model": {
                "type": "WordLevel",
                "vocab": {word: number for number, word in enumerate(words)},
                "unk_token": "[UNK]",
            },
        }
    )


def weights(seed: int = 0) -> Weights:
    rng = np.random.default_rng(seed)

    def made(*shape: int) -> Matrix:
        return rng.normal(0, 0.5, shape).astype(np.float32)

    tensors = {
        "word_emb": made(len(WORDS), HIDDEN),
        "pos_emb": made(PLACES, HIDDEN),
        "type_emb": made(2, HIDDEN),
        "emb_ln.w": made(HIDDEN),
        "emb_ln.b": made(HIDDEN),
    }
    shapes = {"qkv": (3 * HIDDEN, HIDDEN), "ao": (HIDDEN, HIDDEN)}
    shapes |= {"f1": (WIDE, HIDDEN), "f2": (HIDDEN, WIDE)}
    for layer in range(LAYERS):
        for name, shape in shapes.items():
            tensors[f"l{layer}.{name}.w"] = made(*shape)
            tensors[f"l{layer}.{name}.b"] = made(shape[0])
        for name in ("aln", "fln"):
            tensors[f"l{layer}.{name}.w"] = made(HIDDEN)
            tensors[f"l{layer}.{name}.b"] = made(HIDDEN)
    return Weights(Shape(HIDDEN, LAYERS, HEADS, 1e-12), tensors, tokenizer(WORDS))


def tokens(of: Weights, ids: list[int]) -> Matrix:
    """The last layer's vector of every token, by plain arithmetic."""
    from math import erf, sqrt

    def normal(value: Matrix, name: str) -> Matrix:
        centred = value - value.mean(axis=-1, keepdims=True)
        scaled = centred / np.sqrt((centred**2).mean(axis=-1, keepdims=True))
        return np.asarray(scaled * of[f"{name}.w"] + of[f"{name}.b"], np.float32)

    def linear(value: Matrix, name: str) -> Matrix:
        return np.asarray(value @ of[f"{name}.w"].T + of[f"{name}.b"], np.float32)

    x = normal(of["word_emb"][ids] + of["pos_emb"][: len(ids)] + of["type_emb"][0], "emb_ln")
    for layer in range(LAYERS):
        q, k, v = np.split(linear(x, f"l{layer}.qkv"), 3, axis=1)
        heads = []
        for head in np.split(np.arange(HIDDEN), HEADS):
            scores = q[:, head] @ k[:, head].T / sqrt(len(head))
            likely = np.exp(scores - scores.max(axis=1, keepdims=True))
            heads.append(likely / likely.sum(axis=1, keepdims=True) @ v[:, head])
        x = normal(x + linear(np.concatenate(heads, axis=1), f"l{layer}.ao"), f"l{layer}.aln")
        wide = linear(x, f"l{layer}.f1")
        wide = wide * 0.5 * (1 + np.vectorize(erf)(wide / sqrt(2)))
        x = normal(x + linear(wide, f"l{layer}.f2"), f"l{layer}.fln")
    return np.asarray(x, np.float32)


def unit(vector: Matrix) -> Matrix:
    return np.asarray(vector / np.linalg.norm(vector), np.float32)


def published(of: Weights) -> bytes:
    """As models are exported for the hub: three inputs, one vector a token."""
    model = onnx.load_from_string(build(of, Float32(), pooling="mean", normalise=False))
    pool = next(node for node in model.graph.node if node.op_type == "ReduceMean")
    del model.graph.output[:]
    shape: list[str | int | None] = ["batch", "tokens", HIDDEN]
    model.graph.node.append(helper.make_node("Identity", [pool.input[0]], ["last_hidden_state"]))
    model.graph.output.append(
        helper.make_tensor_value_info("last_hidden_state", TensorProto.FLOAT, shape)
    )
    for name in ("attention_mask", "token_type_ids"):
        model.graph.input.append(
            helper.make_tensor_value_info(name, TensorProto.INT64, ["batch", "tokens"])
        )
    return bytes(model.SerializeToString())


def write_folder(folder: Path, of: Weights, **configurations: dict[str, Any]) -> Path:
    """A model folder; keyword `pooling` becomes `1_Pooling/config.json`, others `<name>.json`."""
    (folder / "onnx").mkdir(parents=True)
    (folder / "onnx" / "model.onnx").write_bytes(published(of))
    (folder / "tokenizer.json").write_text(of.tokenizer)
    configurations.setdefault("config", {"hidden_size": HIDDEN, "max_position_embeddings": PLACES})
    for name, content in configurations.items():
        path = "1_Pooling/config.json" if name == "pooling" else f"{name}.json"
        (folder / path).parent.mkdir(exist_ok=True)
        (folder / path).write_text(json.dumps(content))
    return folder
