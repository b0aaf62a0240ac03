"""The weights of a BERT-family encoder, under one set of names whatever file they came from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from marklight.model import Matrix


@dataclass(frozen=True, slots=True)
class Shape:
    """How an encoder is built."""

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
