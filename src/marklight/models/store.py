"""Models on this machine: those in packages, pulled and imported ones; and the record of a model in a folder."""

from __future__ import annotations

import glob
import hashlib
import json
import re
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, get_args

import msgspec
from msgspec import Struct

from marklight import toml_values
from marklight.errors import ModelError, UsageError
from marklight.lazy import dataclass
from marklight.models.record import (
    DEFAULT,
    KINDS,
    KNOWN,
    File,
    Kind,
    ModelRecord,
    Pooling,
    package_folder,
)
from marklight.private_files import cache_folder, lock_file

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
MODEL_FILES = ("onnx/model.onnx", "model.onnx", "onnx/model_quantized.onnx", "model_quantized.onnx")
_PAIRS = "ForSequenceClassification"
"""Suffix of the architecture name of cross-encoders."""
_SETTABLE = {field.name for field in fields(ModelRecord)} - {
    "files",
    "package",
    "install",
    "weights",
}
ABANDONED_SECONDS = 86_400
"""Drafts older than a day were left by a process that was killed."""
MANIFEST = "marklight-manifest.json"
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*(/[A-Za-z0-9_][A-Za-z0-9._-]*)?")


@dataclass(frozen=True, slots=True)
class ModelRow:
    """One line of `models list`."""

    name: str
    kind: Kind
    state: str
    """`bundled`, `pulled`, `imported`, or the command that installs it."""
    usable: bool
    default: bool
    dimension: int
    """Numbers in a vector; 0 for a reranker."""
    token_limit: int
    licence: str
    path: str = ""


class _Manifest(Struct):
    """Record stored beside a pulled or imported model."""

    name: str
    files: dict[str, str]
    """SHA-256 by path."""
    state: str = "imported"


def list_models(cache_dir: Path | None = None) -> list[ModelRow]:
    """List all known and stored models: the default, other embedding models, then cross-encoders."""
    rows = {}
    for record in KNOWN.values():
        state, path = _state(record)
        rows[record.name] = _row(record, state, path)
    for path in sorted(store_folder(cache_dir).glob("*/" + MANIFEST)):
        folder = path.parent
        if folder.name.startswith("."):  # a draft
            continue
        try:
            record = stored_record(folder)
            rows[record.name] = _row(record, _manifest(folder).state, folder)
        except ModelError:  # one damaged model must not hide the others
            name = folder.name.replace("--", "/", 1)
            kind = KNOWN[name].kind if name in KNOWN else "embedder"
            state = "damaged: pull or import it again"
            rows[name] = ModelRow(name, kind, state, False, False, 0, 0, "", str(folder))
    return sorted(rows.values(), key=lambda row: (row.kind, not row.default, row.name))


def verify(name: str, cache_dir: Path | None = None) -> list[str]:
    """Return the problems of a model's files; empty when every SHA-256 matches."""
    if (folder := stored_folder(name, cache_dir)) is not None:
        try:
            files = [File(path, digest) for path, digest in _manifest(folder).files.items()]
        except ModelError as error:
            return [str(error)]
    elif (record := KNOWN.get(name)) is not None and record.package:
        try:
            folder, files = package_folder(record), list(record.files)
        except ModelError as error:
            return [str(error)]
    else:
        raise missing(name, cache_dir)
    return [problem for file in files if (problem := file_problem(folder, file))]


def file_problem(folder: Path, file: File) -> str:
    """Return why a file of a model cannot be used; empty when its SHA-256 matches."""
    path = folder / file.path
    if not path.is_file():
        return f"{path} is missing"
    if (actual := file_digest(path)) != file.sha256:
        return f"{path} has changed: its SHA-256 is {actual[:12]}…, not {file.sha256[:12]}…"
    return ""


def import_folder(
    path: Path, name: str | None = None, cache_dir: Path | None = None
) -> ModelRecord:
    """Copy a model into the store, so that it can be used by name from anywhere."""
    if not path.is_dir():
        raise UsageError(
            f"No such folder: {path}", "Give the folder that contains the model's files"
        )
    record = describe(path, name)
    check_name(record.name)
    check_tokenizers(record.name)
    files = [file.path for file in record.files]
    with locked_place(record.name, cache_dir) as target:
        draft = Path(tempfile.mkdtemp(prefix=".draft-", dir=target.parent))
        try:
            configuration = [name for name in CONFIGURATION if (path / name).is_file()]
            for name in [*files, *configuration]:
                (draft / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(path / name, draft / name)
            source = {"state": "imported", "source": str(path.resolve())}
            finish(draft, target, record.name, {f.path: f.sha256 for f in record.files}, source)
        finally:
            shutil.rmtree(draft, ignore_errors=True)
    return stored_record(target)


@contextmanager
def locked_place(name: str, cache_dir: Path | None) -> Iterator[Path]:
    """Yield the folder for a model of this name while holding its lock."""
    target = _place(name, cache_dir)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with _lock(target, name):
            for draft in target.parent.glob(".draft-*"):
                with suppress(OSError):  # deleted meanwhile
                    if time.time() - draft.stat().st_mtime > ABANDONED_SECONDS:
                        shutil.rmtree(draft, ignore_errors=True)
            yield target
    except OSError as error:
        raise ModelError(
            f"The model {name} cannot be stored in {target.parent}: {error}"
        ) from error


def _lock(target: Path, name: str) -> AbstractContextManager[object]:
    """Lock the place of a model; a timeout of what is done meanwhile has nothing to do with it."""
    try:
        return closing(lock_file(target.parent.resolve() / f".{target.name}.lock", 1.0))
    except TimeoutError as error:
        raise ModelError(
            f"Another process is pulling or importing {name}", "Wait for it to finish"
        ) from error


def finish(
    draft: Path, target: Path, name: str, digests: Mapping[str, str], more: Mapping[str, str]
) -> None:
    """Write the manifest and rename the draft into place; the old model is removed afterwards."""
    manifest = {"name": name, **more, "files": dict(digests)}
    (draft / MANIFEST).write_text(json.dumps(manifest, indent=2) + "\n")
    aside = Path(tempfile.mkdtemp(prefix=".draft-", dir=target.parent))
    old = aside / "old"
    try:
        if target.exists():
            target.rename(old)
        try:
            draft.rename(target)
        except OSError:
            if old.exists():
                old.rename(target)
            raise
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def store_folder(cache_dir: Path | None = None) -> Path:
    """Return the folder of pulled and imported models."""
    return (cache_dir or cache_folder()) / "models" / "store"


def stored_folder(name: str, cache_dir: Path | None = None) -> Path | None:
    """Return the folder of the pulled or imported model of this name, or None."""
    folder = _place(name, cache_dir) if _NAME.fullmatch(name) else None
    return folder if folder is not None and (folder / MANIFEST).is_file() else None


def stored_record(folder: Path) -> ModelRecord:
    """Return the record of a stored model, with the digests from its manifest."""
    manifest = _manifest(folder)
    return describe(folder, manifest.name, manifest.files)


def check_name(name: str) -> str:
    """Return the name if it is valid as a folder name and not that of a bundled model; else raise."""
    if not _NAME.fullmatch(name) or name == "fake":
        raise UsageError(f"{name!r} is not a valid model name", "Use letters, digits and . _ -")
    if name in KNOWN and KNOWN[name].package:
        raise UsageError(f"{name!r} is the name of a bundled model", "Use another name")
    return name


def check_tokenizers(name: str) -> None:
    """Raise if the package that reads the tokenizers of models other than the bundled one is not installed."""
    try:
        import tokenizers  # noqa: F401
    except ModuleNotFoundError:
        raise ModelError(
            f"The model {name} needs the package tokenizers, which is not installed",
            'Install it: pip install "marklight[models]"',
        ) from None


def missing(name: str, cache_dir: Path | None = None, kind: Kind | None = None) -> ModelError:
    """Return the error for a name that matches no model, or none of this kind."""
    if name in KNOWN:
        setting = "reranker.name" if KNOWN[name].kind == "reranker" else "model.name"
        return ModelError(
            f"The model {name} is not installed",
            f"Download it: marklight models pull {name}; or import a copy: marklight models import "
            f"FOLDER; or set {setting} to a folder",
        )
    names = ", ".join(row.name for row in list_models(cache_dir) if kind in (None, row.kind))
    return ModelError(
        f"There is no {'cross-encoder' if kind == 'reranker' else 'model'} named {name!r}",
        f"Known: {names}, a folder with an ONNX file and tokenizer.json, or a model on a server: "
        "openai:NAME or ollama:NAME",
    )


def _place(name: str, cache_dir: Path | None) -> Path:
    return store_folder(cache_dir) / name.replace("/", "--")


def _manifest(folder: Path) -> _Manifest:
    try:
        return msgspec.json.decode((folder / MANIFEST).read_bytes(), type=_Manifest)
    except (OSError, ValueError) as error:
        raise ModelError(
            f"The model in {folder} is damaged: {error}", "Pull or import it again"
        ) from error


def _state(record: ModelRecord) -> tuple[str, Path | None]:
    if not record.package:
        return f"marklight models pull {record.name}", None
    try:
        return "bundled", package_folder(record)
    except ModelError:
        return f"pip install {record.install}", None


def _row(record: ModelRecord, state: str, path: Path | None) -> ModelRow:
    return ModelRow(
        name=record.name,
        kind=record.kind,
        state=state,
        usable=path is not None,
        default=record.name == DEFAULT,
        dimension=record.dimension,
        token_limit=record.token_limit,
        licence=record.licence,
        path=str(path or ""),
    )


def describe(
    folder: Path, name: str | None = None, digests: Mapping[str, str] | None = None
) -> ModelRecord:
    """Return the record of the model in a folder; digests that are not given are computed."""
    digests = digests or {}
    described = _description(folder)
    model = str(described.pop("model", "")) or _model_file(folder)
    pooling = _read(folder, "1_Pooling/config.json")
    config = _read(folder, "config.json")
    prompts = _read(folder, "config_sentence_transformers.json").get("prompts") or {}
    name = name or str(described.get("name") or folder.resolve().name)
    record = ModelRecord(
        name=name,
        files=tuple(
            File(path, digests.get(path) or file_digest(folder / path))
            for path in needed_files(folder, model)
        ),
        kind=described.get("kind") or _kind(folder, name, config),
        pooling=_pooling(folder, pooling),
        dimension=int(pooling.get("word_embedding_dimension") or config.get("hidden_size") or 0),
        token_limit=_token_limit(folder, config),
        query_prefix=str(prompts.get("query") or _known_prefix(name)),
        passage_prefix=str(prompts.get("passage") or prompts.get("document") or ""),
        source=str(folder),
    )
    if name in KNOWN:  # pulled by its name: the built-in record takes precedence
        published = KNOWN[name]
        if record.kind != published.kind:
            raise ModelError(
                f"The folder {folder} contains {KINDS[record.kind]}, but {name} is {KINDS[published.kind]}",
                "Use another name",
            )
        record = replace(published, files=record.files, source=published.source or record.source)
    record = replace(record, **{**described, "name": name})
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
        other.relative_to(folder).as_posix()
        for other in sorted(path.parent.glob(f"{glob.escape(path.name)}?*"))
        if "data" in other.name
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
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise ModelError(f"The model file {path} cannot be read: {error}") from error


def _model_file(folder: Path) -> str:
    for name in MODEL_FILES:
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
        values = toml_values.load(path)
    except (OSError, ValueError) as error:
        raise ModelError(f"{path} cannot be read: {error}") from error
    keys = {*_SETTABLE, "model"}
    if unknown := sorted(set(values) - keys):
        raise ModelError(
            f"{path}: unknown key {unknown[0]!r}", f"Known keys: {', '.join(sorted(keys))}"
        )
    if values.get("pooling", "cls") not in get_args(Pooling):
        raise ModelError(f"{path}: unknown pooling {values['pooling']!r}", "Use mean or cls")
    if values.get("kind", "embedder") not in KINDS:
        raise ModelError(f"{path}: unknown kind {values['kind']!r}", f"Use {' or '.join(KINDS)}")
    return values


def _read(folder: Path, name: str) -> dict[str, Any]:
    try:
        content = json.loads((folder / name).read_bytes())
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise ModelError(f"{folder / name} cannot be read: {error}") from error
    return content if isinstance(content, dict) else {}


def _kind(folder: Path, name: str, config: dict[str, Any]) -> Kind:
    architectures = config.get("architectures") or []
    if not architectures:
        return KNOWN[name].kind if name in KNOWN else "embedder"
    if not any(str(name).endswith(_PAIRS) for name in architectures):
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
        (model.query_prefix for model in KNOWN.values() if model.name.rsplit("/", 1)[-1] == last),
        "",
    )
