"""Finds the model that a name or a folder stands for, and makes an embedder or a reranker of it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from marklight.errors import ModelError
from marklight.models.cache import ConvertedModel, cache_folder
from marklight.models.convert import convert, package_folder
from marklight.models.cross_encoder import CrossEncoder
from marklight.models.folder import describe, file_digest
from marklight.models.onnx import OnnxEmbedder
from marklight.models.record import KINDS, KNOWN, Kind, ModelRecord
from marklight.models.store import missing, stored_folder, stored_record

if TYPE_CHECKING:
    from marklight.models.remote.server import Server
    from marklight.ports import Embedder, Reranker


def embedder(name: str, *, cache_dir: Path | None, threads: int | None) -> OnnxEmbedder:
    """An embedder for a known model, one that was pulled or imported, or a folder."""
    known = KNOWN.get(name)
    if known is not None and known.package:
        return _converted(known, cache_dir, threads)
    record, folder = _published(name, "embedder", cache_dir)
    return OnnxEmbedder(record, *_checked(record, folder), threads)


def reranker(name: str, *, cache_dir: Path | None, threads: int | None) -> CrossEncoder:
    """A cross-encoder that was pulled or imported, or a folder."""
    record, folder = _published(name, "reranker", cache_dir)
    return CrossEncoder(record, *_checked(record, folder), threads)


def remote_embedder(name: str, server: Server | None, cache_dir: Path | None) -> Embedder:
    """The model on the server that the settings name."""
    from marklight.models.remote.embedder import RemoteEmbedder

    return RemoteEmbedder(_configured(name, server), cache_dir)


def remote_reranker(name: str, server: Server | None, cache_dir: Path | None) -> Reranker:
    """The cross-encoder on the server that the settings name."""
    from marklight.models.remote.reranker import RemoteReranker

    server = _configured(name, server)
    if server.kind == "ollama":
        raise ModelError(
            f"Ollama has no models that re-rank, so {name} cannot",
            "llama.cpp's server, vLLM, TEI and others have: reranker.name = openai:MODEL",
        )
    return RemoteReranker(server, cache_dir)


def _configured(name: str, server: Server | None) -> Server:
    # One that was configured before is not asked again: what is no longer named gets no texts.
    if server is None or server.name != name:
        raise ModelError(f"The settings name no server for {name}", "Name it in model.name")
    return server


def _converted(record: ModelRecord, cache_dir: Path | None, threads: int | None) -> OnnxEmbedder:
    package_folder(record)  # Says at once which package is missing.
    place = f"{record.name}-{record.fingerprint[:16]}"
    kept = ConvertedModel(
        cache_folder(cache_dir) / "models" / "converted" / place, partial(convert, record)
    )
    return OnnxEmbedder(record, kept.model, kept.tokenizer, threads)


def _published(name: str, kind: Kind, cache_dir: Path | None) -> tuple[ModelRecord, Path]:
    """The model of this name and its folder; one of another kind is refused."""
    folder = stored_folder(name, cache_dir)
    if folder is not None:
        record = stored_record(folder)
    elif name in KNOWN and KNOWN[name].kind != kind:
        raise _unfit(KNOWN[name])
    elif name not in KNOWN and Path(name).expanduser().is_dir():
        folder = Path(name).expanduser()
        record = describe(folder)
    else:
        raise missing(name, cache_dir, kind)
    if record.kind != kind:
        raise _unfit(record)
    return record, folder


def _unfit(record: ModelRecord) -> ModelError:
    if record.kind == "reranker":
        return ModelError(
            f"{record.name} is {KINDS['reranker']}: it gives no vectors",
            "Name it in reranker.name, and an embedding model in model.name",
        )
    return ModelError(
        f"{record.name} is {KINDS['embedder']}: it cannot re-rank",
        "Name it in model.name, and a cross-encoder in reranker.name",
    )


def _checked(
    record: ModelRecord, folder: Path
) -> tuple[Callable[[], bytes | str], Callable[[], bytes]]:
    """How the model and the tokenizer are opened, each held to its SHA-256 first."""

    def checked(path: str) -> Path:
        for file in record.files:
            # Weights may lie in several files; the tokenizer is opened, and checked, on its own.
            if (file.path == "tokenizer.json") == (path == "tokenizer.json") and file.sha256 != (
                found := file_digest(folder / file.path)
            ):
                raise ModelError(
                    f"The model file {folder / file.path} has changed: its SHA-256 is {found[:12]}…, "
                    f"not {file.sha256[:12]}…",
                    f"Pull or import {record.name} again",
                )
        return folder / path

    return (
        lambda: str(checked(record.files[0].path)),
        lambda: checked("tokenizer.json").read_bytes(),
    )
