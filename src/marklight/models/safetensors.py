"""Reads a BERT encoder from a safetensors file as it is published on the hub."""

from __future__ import annotations

import json
import struct
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

from marklight.errors import ModelError
from marklight.models.weights import Shape, Weights

if TYPE_CHECKING:
    from marklight.model import Matrix

_LAYER = {
    "ao": "attention.output.dense",
    "aln": "attention.output.LayerNorm",
    "f1": "intermediate.dense",
    "f2": "output.dense",
    "fln": "output.LayerNorm",
}


def read_bert(folder: Path, digest: str, tokenizer_digest: str) -> Weights:
    """The weights beside `config.json` and `tokenizer.json`; both SHA-256 must be as given."""
    path = folder / "model.safetensors"
    try:
        data, tokenizer = path.read_bytes(), (folder / "tokenizer.json").read_bytes()
        config = json.loads((folder / "config.json").read_bytes())
        for content, expected in ((data, digest), (tokenizer, tokenizer_digest)):
            if (found := sha256(content).hexdigest()) != expected:
                raise ValueError(f"a SHA-256 is {found[:12]}…, not {expected[:12]}…")
        layers = int(config["num_hidden_layers"])
        tensors = _ours(_tensors(data), layers)
        shape = Shape(
            config["hidden_size"], layers, config["num_attention_heads"], config["layer_norm_eps"]
        )
    except (OSError, ValueError, KeyError, struct.error) as error:
        raise ModelError(
            f"The model file {path} cannot be used: {error}", "Install its package again"
        ) from error
    return Weights(shape, tensors, tokenizer.decode())


def _tensors(data: bytes) -> dict[str, Matrix]:
    import numpy as np

    start = 8 + int(struct.unpack("<Q", data[:8])[0])
    tensors: dict[str, Matrix] = {}
    for name, entry in json.loads(data[8:start]).items():
        if entry.get("dtype") == "F32":
            first, last = entry["data_offsets"]
            values = np.frombuffer(data[start + first : start + last], "<f4")
            tensors[name] = values.reshape(entry["shape"])
    return tensors


def _ours(found: dict[str, Matrix], layers: int) -> dict[str, Matrix]:
    import numpy as np

    tensors = {
        "word_emb": found["embeddings.word_embeddings.weight"],
        "pos_emb": found["embeddings.position_embeddings.weight"],
        "type_emb": found["embeddings.token_type_embeddings.weight"],
        "emb_ln.w": found["embeddings.LayerNorm.weight"],
        "emb_ln.b": found["embeddings.LayerNorm.bias"],
    }
    for layer in range(layers):
        theirs = f"encoder.layer.{layer}"
        for end, kind in (("w", "weight"), ("b", "bias")):
            tensors[f"l{layer}.qkv.{end}"] = np.concatenate(
                [
                    found[f"{theirs}.attention.self.{part}.{kind}"]
                    for part in ("query", "key", "value")
                ]
            )
            for ours, name in _LAYER.items():
                tensors[f"l{layer}.{ours}.{end}"] = found[f"{theirs}.{name}.{kind}"]
    return tensors
