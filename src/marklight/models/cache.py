"""Keeps models that were converted once, under a lock, each under the digest of what it was made of."""

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
from pathlib import Path

_LOCK_SECONDS = 120
"""Converting takes seconds; a holder that needs longer is stuck, and we can do without it."""

_ABANDONED_SECONDS = 86_400
"""No draft is worked on for a day: what is older was left by a process that was killed."""

_log = logging.getLogger("marklight.models")


@dataclass(frozen=True, slots=True)
class Artefact:
    """What a conversion gives: an ONNX file and its tokenizer."""

    model: bytes
    tokenizer: bytes


def cache_folder(chosen: Path | None = None) -> Path:
    """Where models are kept: the caller's choice, MARKLIGHT_CACHE_DIR, or the user's cache folder."""
    if chosen is not None:
        return chosen
    if from_environment := os.environ.get("MARKLIGHT_CACHE_DIR"):
        return Path(from_environment)
    import platformdirs

    return Path(platformdirs.user_cache_dir("marklight", appauthor=False))


def sweep(folder: Path, pattern: str) -> None:
    """Drop the drafts in a folder that nobody works on any more."""
    for draft in folder.glob(pattern):
        try:
            abandoned = time.time() - draft.stat().st_mtime > _ABANDONED_SECONDS
        except OSError:  # Gone by now.
            continue
        if abandoned:
            shutil.rmtree(draft, ignore_errors=True)


class ConvertedModel:
    """One converted model on disk; made when it is first asked for, made again when damaged.

    Where the folder cannot be written (read-only, full), the model is converted in memory for each
    process: a search that takes two seconds longer is better than none, and the log says why.
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
        found = None if self._in_memory else self._read(name)
        if found is None:
            made = self._in_memory or self._make()
            found = made.model if name == "model" else made.tokenizer
        return found

    def _read(self, name: str) -> bytes | None:
        """A part whose SHA-256 is the recorded one; None when it is missing or damaged."""
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
            with FileLock(f"{self._folder}.lock", timeout=_LOCK_SECONDS):
                sweep(self._folder.parent, "draft-*")
                # Another process may have made it while this one waited.
                model, tokenizer = self._read("model"), self._read("tokenizer")
                if model is not None and tokenizer is not None:
                    return Artefact(model, tokenizer)
                made = self._convert()
                self._place(made)
                return made
        except (OSError, Timeout) as error:
            _log.warning(
                "The converted model cannot be kept in %s (%s): it is made again in every run",
                self._folder.parent,
                error,
            )
            self._in_memory = made or self._convert()
            return self._in_memory

    def _place(self, made: Artefact) -> None:
        """All parts at once: a folder is filled beside the place and then renamed into it."""
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
