"""Persistent state of a model server: info about its model, its last failure, and whether the user was notified."""

from __future__ import annotations

import json
import os
import tempfile
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from threading import Lock
from typing import Any

from marklight.errors import ModelServerError
from marklight.models.remote.server import Server
from marklight.models.store import cache_folder
from marklight.text import digest

RETRY_AFTER_SECONDS = 30.0
"""Time without requests after a slow failure (circuit breaker); else every query would wait again."""
SLOW_SECONDS = 1.0
"""Faster failures are not remembered: trying again costs less than ignoring a server that is back."""


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """Properties of a model as its server reports them."""

    dimension: int
    token_limit: int = 0
    """0 if not reported."""
    digest: str = ""
    """Digest of the weights, if reported."""


class ServerState:
    """Small files in the cache folder; if it cannot be written, the state lasts for this process."""

    def __init__(self, server: Server, cache_dir: Path | None = None) -> None:
        self.server = server
        key = digest(server.kind, server.base, server.model, str(server.dimension), size=8)
        self._path = cache_folder(cache_dir) / "models" / "remote" / key
        self._lock = Lock()
        self._info: ModelInfo | None = None
        self._failed: tuple[float, str] | None = None
        self._loaded_failure = False

    @property
    def info(self) -> ModelInfo | None:
        """Return the stored model info; None if there is none."""
        with self._lock:
            if self._info is None:
                stored = self._load(".json")
                with suppress(TypeError, ValueError, KeyError):
                    info = ModelInfo(
                        int(stored["dimension"]), int(stored["token_limit"]), str(stored["digest"])
                    )
                    self._info = info if info.dimension > 0 else None
            return self._info

    def store_info(self, info: ModelInfo) -> None:
        """Store what the server reports now."""
        with self._lock:
            changed, self._info = info != self._info, info
        if changed:
            self._store(".json", {"server": str(self.server), **asdict(info)})

    def check_available(self) -> None:
        """Raise the last failure if it is recent; afterwards let one caller try again."""
        with self._lock:
            self._load_failure()
            if self._failed is None:
                return
            at, reason = self._failed
            past = time.time() - at
            if 0 <= past < RETRY_AFTER_SECONDS:
                raise ModelServerError(
                    f"{reason} ({past:.0f} s ago)",
                    f"The next attempt is in {RETRY_AFTER_SECONDS - past:.0f} s",
                )
            self._failed = time.time(), reason

    def record_failure(self, reason: str, seconds: float) -> None:
        """Record that the server failed after this many seconds."""
        with self._lock:
            if seconds < SLOW_SECONDS:
                self._failed = None
                return
            self._failed, self._loaded_failure = (time.time(), reason), True
        self._store(".failed", {"at": time.time(), "why": reason})

    def record_success(self) -> None:
        """Clear the recorded failure."""
        with self._lock:
            self._load_failure()
            was, self._failed = self._failed, None
        if was is not None:
            with suppress(OSError):
                self._file(".failed").unlink(missing_ok=True)

    def _load_failure(self) -> None:
        """Load the failure that another process stored, once."""
        if self._loaded_failure:
            return
        self._loaded_failure = True
        stored = self._load(".failed")
        with suppress(TypeError, ValueError, KeyError):
            self._failed = float(stored["at"]), str(stored["why"])

    def first_use(self) -> bool:
        """Return True once per server, for the notice that texts are sent to it."""
        file = self._file(".told")
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            os.close(os.open(file, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
        except FileExistsError:
            return False
        except OSError:
            pass  # a notice twice rather than never
        return True

    def _file(self, ending: str) -> Path:
        return self._path.with_name(self._path.name + ending)

    def _load(self, ending: str) -> Any:
        try:
            content = json.loads(self._file(ending).read_bytes())
        except (OSError, ValueError, RecursionError):
            return {}
        return content if isinstance(content, dict) else {}

    def _store(self, ending: str, values: dict[str, Any]) -> None:
        file = self._file(ending)
        with suppress(OSError):
            file.parent.mkdir(parents=True, exist_ok=True)
            number, draft = tempfile.mkstemp(prefix=".draft-", dir=file.parent)
            with os.fdopen(number, "w") as opened:
                json.dump(values, opened)
            Path(draft).replace(file)
