"""Run the layers of a BERT-family encoder in PyTorch, with bfloat16 products, so that they can be trained."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.nn import functional

from scripts.build_model import Shape

PAD = 1


class TorchEncoder:
    """Tensors by the names of `scripts.build_model.Weights`, and the operations of a layer on them."""

    def __init__(self, shape: Shape, tensors: Mapping[str, Any]) -> None:
        self.shape = shape
        self.tensors = dict(tensors)

    def embedded(self, ids: Any) -> Any:
        """Return the sum of word, position and type embeddings, normalised."""
        value = self.tensors["word_emb"][ids] + self.tensors["pos_emb"][: ids.shape[1]]
        return self._normalised("emb_ln", value + self.tensors["type_emb"][0])

    def layer(self, number: int, value: Any, mask: Any, *, first_only: bool = False) -> Any:
        """Return the output of a layer for all tokens, or for the first one alone."""
        name, heads = f"l{number}", self.shape.heads
        rows, length, hidden = value.shape
        qkv = self._product(f"{name}.qkv", value).view(rows, length, 3, heads, hidden // heads)
        query, key, content = qkv.permute(2, 0, 3, 1, 4)
        if first_only:
            query, value = query[:, :, :1], value[:, :1]
        attended = functional.scaled_dot_product_attention(query, key, content, attn_mask=mask)
        attended = attended.transpose(1, 2).reshape(value.shape)
        value = self._normalised(f"{name}.aln", value + self._product(f"{name}.ao", attended))
        wide = functional.gelu(self._product(f"{name}.f1", value))
        return self._normalised(f"{name}.fln", value + self._product(f"{name}.f2", wide))

    def _product(self, name: str, value: Any) -> Any:
        return functional.linear(value, self.tensors[f"{name}.w"], self.tensors[f"{name}.b"])

    def _normalised(self, name: str, value: Any) -> Any:
        scale, shift = self.tensors[f"{name}.w"], self.tensors[f"{name}.b"]
        size = (self.shape.hidden,)
        return functional.layer_norm(value.float(), size, scale, shift, self.shape.layer_norm_eps)


def padded(rows: Sequence[Sequence[int]]) -> tuple[Any, Any]:
    """Return token ids as one tensor, and the attention mask of their padding."""
    longest = max(map(len, rows))
    ids = torch.tensor([[*row, *[PAD] * (longest - len(row))] for row in rows])
    return ids, (ids != PAD)[:, None, None]
