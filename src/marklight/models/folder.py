"""Read a model's record from its folder: an ONNX file, `tokenizer.json` and configuration files."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields, replace
from hashlib import sha256
from pathlib import Path
from typing import Any, get_args

from marklight import toml_values
from marklight.errors import ModelError
from marklight.models.record import KINDS, KNOWN, File, Kind, ModelRecord, Pooling

DESCRIPTION = "marklight-model.toml"
"""Our own description file; its values override all other files."""
CONFIGURATION = (
    "config.json",
    "modules.json",
    "1_Pooling/config.json",
    "sentence_bert_config.json",
    "config_sentence_transformers.json",
    "tokenizer_config.json",
    DESCRIPTION,
)
"""Small files that describe how to use a model."""
_MODELS = ("onnx/model.onnx", "model.onnx", "onnx/model_quantized.onnx", "model_quantized.onnx")
_PAIRS = "ForSequenceClassification"
"""Suffix of the architecture name of cross-encoders."""
_SETTABLE = {field.name for field in fields(ModelRecord)} - {
    "files",
    "package",
    "install",
    "weights",
}


def describe(
    folder: Path, name: str | None = None, digests: Mapping[str, str] | None = None
) -> ModelRecord:
    """Return the record of the model in a folder; digests that are not given are computed."""
    digests = digests or {}
    own = _description(folder)
    model = str(own.pop("model", "")) or _model_file(folder)
    pooling = _read(folder, "1_Pooling/config.json")
    config = _read(folder, "config.json")
    prompts = _read(folder, "config_sentence_transformers.json").get("prompts") or {}
    name = name or str(own.get("name") or folder.resolve().name)
    record = ModelRecord(
        name=name,
        files=tuple(
            File(path, digests.get(path) or file_digest(folder / path))
            for path in needed_files(folder, model)
        ),
        kind=own.get("kind") or _kind(folder, name, config),
        pooling=_pooling(folder, pooling),
        dimension=int(pooling.get("word_embedding_dimension") or config.get("hidden_size") or 0),
        token_limit=_token_limit(folder, config),
        query_prefix=str(prompts.get("query") or _known_prefix(name)),
        passage_prefix=str(prompts.get("passage") or prompts.get("document") or ""),
        source=str(folder),
    )
    if name in KNOWN:  # pulled by its name: the built-in record takes precedence
        known = KNOWN[name]
        if record.kind != known.kind:
            raise ModelError(
                f"The folder {folder} contains {KINDS[record.kind]}, but {name} is {KINDS[known.kind]}",
                "Use another name",
            )
        record = replace(known, files=record.files, source=known.source or record.source)
    record = replace(record, **{**own, "name": name})
    if record.kind == "reranker":
        return replace(record, dimension=0)
    if record.dimension < 1:
        raise ModelError(
            f"The configuration in {folder} does not contain the dimension of the vectors",
            f"Add `dimension = …` to {folder / DESCRIPTION}, or `kind = "
            '"reranker"` for a cross-encoder',
        )
    return record


def needed_files(folder: Path, model: str) -> list[str]:
    """Return the paths of the weights, including external data files, and of the tokenizer."""
    path = folder / model
    beside = [
        found.relative_to(folder).as_posix()
        for found in sorted(path.parent.glob("*"))
        if found.name.startswith(path.name) and found.name != path.name and "data" in found.name
    ]
    for required in (model, "tokenizer.json"):
        if not (folder / required).is_file():
            raise ModelError(
                f"The folder {folder} is not a model: {required} is missing",
                "It needs an ONNX file and the tokenizer.json that goes with it",
            )
    return [model, *beside, "tokenizer.json"]


def file_digest(path: Path) -> str:
    """Return the SHA-256 of a file."""
    try:
        hasher = sha256()
        with path.open("rb") as file:
            while block := file.read(1 << 20):
                hasher.update(block)
        return hasher.hexdigest()
    except OSError as error:
        raise ModelError(f"The model file {path} cannot be read: {error}") from error


def _model_file(folder: Path) -> str:
    for name in _MODELS:
        if (folder / name).is_file():
            return name
    others = sorted(folder.glob("*.onnx")) + sorted(folder.glob("onnx/*.onnx"))
    if len(others) == 1:
        return others[0].relative_to(folder).as_posix()
    if others:
        raise ModelError(
            f"The folder {folder} contains {len(others)} ONNX files",
            f'Choose one: add `model = "{others[0].name}"` to {folder / DESCRIPTION}',
        )
    raise ModelError(
        f"The folder {folder} is not a model: it has no ONNX file",
        "It needs an ONNX file and the tokenizer.json that goes with it",
    )


def _description(folder: Path) -> dict[str, Any]:
    path = folder / DESCRIPTION
    if not path.is_file():
        return {}
    try:
        own = toml_values.load(path)
    except (OSError, ValueError) as error:
        raise ModelError(f"{path} cannot be read: {error}") from error
    known = {*_SETTABLE, "model"}
    if unknown := sorted(set(own) - known):
        raise ModelError(
            f"{path}: unknown key {unknown[0]!r}", f"Known keys: {', '.join(sorted(known))}"
        )
    if own.get("pooling", "cls") not in get_args(Pooling):
        raise ModelError(f"{path}: unknown pooling {own['pooling']!r}", "Use mean or cls")
    if own.get("kind", "embedder") not in KINDS:
        raise ModelError(f"{path}: unknown kind {own['kind']!r}", f"Use {' or '.join(KINDS)}")
    return own


def _read(folder: Path, name: str) -> dict[str, Any]:
    try:
        found = json.loads((folder / name).read_bytes())
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise ModelError(f"{folder / name} cannot be read: {error}") from error
    return found if isinstance(found, dict) else {}


def _kind(folder: Path, name: str, config: dict[str, Any]) -> Kind:
    architectures = config.get("architectures") or []
    if not architectures:
        return KNOWN[name].kind if name in KNOWN else "embedder"
    if not any(str(each).endswith(_PAIRS) for each in architectures):
        return "embedder"
    labels = int(config.get("num_labels") or len(config.get("id2label") or {}) or 1)
    if labels > 2:
        raise ModelError(
            f"The model in {folder} classifies texts into {labels} classes; it is not a cross-encoder",
            "A cross-encoder returns one or two numbers per pair",
        )
    return "reranker"


def _pooling(folder: Path, config: dict[str, Any]) -> Pooling:
    mode = config.get("pooling_mode")
    if config.get("pooling_mode_cls_token") or mode == "cls":
        return "cls"
    if not config or config.get("pooling_mode_mean_tokens") or mode == "mean":
        return "mean"
    raise ModelError(
        f"The model in {folder} uses an unsupported kind of pooling",
        "Supported: mean, and the first token (cls)",
    )


def _token_limit(folder: Path, config: dict[str, Any]) -> int:
    limit = _read(folder, "sentence_bert_config.json").get("max_seq_length")
    if limit is None:
        limit = _read(folder, "tokenizer_config.json").get("model_max_length")
    places = int(config.get("max_position_embeddings") or 512)
    if config.get("model_type") in ("roberta", "xlm-roberta", "camembert", "mpnet"):
        places -= 2  # these count positions from 2
    # Tokenizers without a limit have 1e30 here.
    return min(int(limit or places), places)


def _known_prefix(name: str) -> str:
    """Return the query prefix of a known model with the same last name: bge folders do not contain it."""
    last = name.rsplit("/", 1)[-1]
    return next(
        (known.query_prefix for known in KNOWN.values() if known.name.rsplit("/", 1)[-1] == last),
        "",
    )
