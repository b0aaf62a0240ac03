"""Describes a model by its folder: an ONNX file, `tokenizer.json`, and what stands beside them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields, replace
from hashlib import sha256
from pathlib import Path
from typing import Any, get_args

from marklight import bounded_toml
from marklight.errors import ModelError
from marklight.models.record import KINDS, KNOWN, File, Kind, ModelRecord, Pooling

DESCRIPTION = "marklight-model.toml"
"""Our own description; what it says wins over all other files."""
CONFIGURATION = (
    "config.json",
    "modules.json",
    "1_Pooling/config.json",
    "sentence_bert_config.json",
    "config_sentence_transformers.json",
    "tokenizer_config.json",
    DESCRIPTION,
)
"""Small files that say how a model wants to be used."""
_MODELS = ("onnx/model.onnx", "model.onnx", "onnx/model_quantized.onnx", "model_quantized.onnx")
_PAIRS = "ForSequenceClassification"
"""How the architecture of a model ends that gives numbers for a pair of texts, as cross-encoders do."""
_SETTABLE = {field.name for field in fields(ModelRecord)} - {"form", "files", "package", "extra"}


def describe(
    folder: Path, name: str | None = None, digests: Mapping[str, str] | None = None
) -> ModelRecord:
    """The record of the model in a folder; digests that are not given are taken from the files."""
    digests = digests or {}
    own = _own(folder)
    model = str(own.pop("model", "")) or _model_file(folder)
    pooling = _read(folder, "1_Pooling/config.json")
    config = _read(folder, "config.json")
    prompts = _read(folder, "config_sentence_transformers.json").get("prompts") or {}
    name = name or str(own.get("name") or folder.resolve().name)
    record = ModelRecord(
        name=name,
        form="onnx",
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
    if name in KNOWN:  # Pulled by its name: what we know about it is not worth less.
        known = KNOWN[name]
        if record.kind != known.kind:
            raise ModelError(
                f"The folder {folder} holds {KINDS[record.kind]}, but {name} is {KINDS[known.kind]}",
                "Give it another name",
            )
        record = replace(known, files=record.files, source=known.source or record.source)
    record = replace(record, **{**own, "name": name})
    if record.kind == "reranker":
        return replace(record, dimension=0)
    if record.dimension < 1:
        raise ModelError(
            f"The folder {folder} does not say how many numbers its vectors have",
            f"Write `dimension = …` into {folder / DESCRIPTION}, or `kind = "
            '"reranker"` for a cross-encoder',
        )
    return record


def needed_files(folder: Path, model: str) -> list[str]:
    """The weights, with those that lie in files of their own, and the tokenizer."""
    path = folder / model
    beside = [
        found.relative_to(folder).as_posix()
        for found in sorted(path.parent.glob("*"))
        if found.name.startswith(path.name) and found.name != path.name and "data" in found.name
    ]
    for wanted in (model, "tokenizer.json"):
        if not (folder / wanted).is_file():
            raise ModelError(
                f"The folder {folder} is not a model: {wanted} is missing",
                "It needs an ONNX file and the tokenizer.json that goes with it",
            )
    return [model, *beside, "tokenizer.json"]


def file_digest(path: Path) -> str:
    """SHA-256 of a file."""
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
            f"The folder {folder} has {len(others)} ONNX files",
            f'Write `model = "{others[0].name}"` into {folder / DESCRIPTION}',
        )
    raise ModelError(
        f"The folder {folder} is not a model: it has no ONNX file",
        "It needs an ONNX file and the tokenizer.json that goes with it",
    )


def _own(folder: Path) -> dict[str, Any]:
    path = folder / DESCRIPTION
    if not path.is_file():
        return {}
    try:
        own = bounded_toml.load(path)
    except (OSError, ValueError) as error:
        raise ModelError(f"{path} cannot be read: {error}") from error
    known = {*_SETTABLE, "model"}
    if unknown := sorted(set(own) - known):
        raise ModelError(
            f"{path} has the unknown key {unknown[0]!r}", f"Known keys: {', '.join(sorted(known))}"
        )
    if own.get("pooling", "cls") not in get_args(Pooling):
        raise ModelError(f"{path} wants pooling {own['pooling']!r}", "Use mean or cls")
    if own.get("kind", "embedder") not in KINDS:
        raise ModelError(f"{path} wants the kind {own['kind']!r}", f"Use {' or '.join(KINDS)}")
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
            f"The model in {folder} sorts texts into {labels} classes; it is no cross-encoder",
            "A cross-encoder gives one number for a pair, or two",
        )
    return "reranker"


def _pooling(folder: Path, config: dict[str, Any]) -> Pooling:
    mode = config.get("pooling_mode")
    if config.get("pooling_mode_cls_token") or mode == "cls":
        return "cls"
    if not config or config.get("pooling_mode_mean_tokens") or mode == "mean":
        return "mean"
    raise ModelError(
        f"The model in {folder} pools its tokens in a way that is not supported",
        "Models that take the mean or the first token are",
    )


def _token_limit(folder: Path, config: dict[str, Any]) -> int:
    limit = _read(folder, "sentence_bert_config.json").get("max_seq_length")
    if limit is None:
        limit = _read(folder, "tokenizer_config.json").get("model_max_length")
    places = int(config.get("max_position_embeddings") or 512)
    if config.get("model_type") in ("roberta", "xlm-roberta", "camembert", "mpnet"):
        places -= 2  # They count positions from 2.
    # Tokenizers without a limit say 1e30.
    return min(int(limit or places), places)


def _known_prefix(name: str) -> str:
    """Folders of bge models do not tell their prefix; a clone is known by its name."""
    last = name.rsplit("/", 1)[-1]
    return next(
        (known.query_prefix for known in KNOWN.values() if known.name.rsplit("/", 1)[-1] == last),
        "",
    )
