"""Finds the model that a name or a folder stands for, and makes an embedder of it."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from marklight.errors import ModelError
from marklight.models.cache import ConvertedModel, cache_folder
from marklight.models.convert import convert, package_folder
from marklight.models.folder import describe, file_digest
from marklight.models.onnx import OnnxEmbedder
from marklight.models.record import KNOWN, ModelRecord
from marklight.models.store import missing, stored_folder, stored_record


def embedder(name: str, *, cache_dir: Path | None, threads: int | None) -> OnnxEmbedder:
    """An embedder for a known model, one that was pulled or imported, or a folder."""
    known = KNOWN.get(name)
    if known is not None and known.package:
        return _converted(known, cache_dir, threads)
    if (folder := stored_folder(name, cache_dir)) is not None:
        return _published(stored_record(folder), folder, threads)
    if known is None and Path(name).expanduser().is_dir():
        folder = Path(name).expanduser()
        return _published(describe(folder), folder, threads)
    raise missing(name, cache_dir)


def _converted(record: ModelRecord, cache_dir: Path | None, threads: int | None) -> OnnxEmbedder:
    package_folder(record)  # Says at once which package is missing.
    place = f"{record.name}-{record.fingerprint[:16]}"
    kept = ConvertedModel(
        cache_folder(cache_dir) / "models" / "converted" / place, partial(convert, record)
    )
    return OnnxEmbedder(record, kept.model, kept.tokenizer, threads)


def _published(record: ModelRecord, folder: Path, threads: int | None) -> OnnxEmbedder:
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

    return OnnxEmbedder(
        record,
        lambda: str(checked(record.files[0].path)),
        lambda: checked("tokenizer.json").read_bytes(),
        threads,
    )
