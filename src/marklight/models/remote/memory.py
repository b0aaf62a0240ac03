"""What is remembered of a server from one process to the next: what it told, when it failed, what was said of it."""

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
from marklight.models.converted import cache_folder
from marklight.models.remote.server import Server
from marklight.text import digest

REST_SECONDS = 30.0
"""How long a server that kept us waiting in vain is left alone: else each question would wait again."""
SLOW_SECONDS = 1.0
"""A failure that came sooner costs less than not asking a server that is back."""


@dataclass(frozen=True, slots=True)
class Facts:
    """What a server tells about its model."""

    dimension: int
    token_limit: int = 0
    """0 where it does not say."""
    digest: str = ""
    """Of the weights, where it says."""


class Memory:
    """Small files in the cache folder; where it cannot be written, this process remembers alone."""

    def __init__(self, server: Server, cache_dir: Path | None = None) -> None:
        self.server = server
        named = digest(server.kind, server.base, server.model, str(server.dimension), size=8)
        self._place = cache_folder(cache_dir) / "models" / "remote" / named
        self._guard = Lock()
        self._facts: Facts | None = None
        self._failed: tuple[float, str] | None = None
        self._looked = False

    @property
    def facts(self) -> Facts | None:
        """What the server told before; None if it was never asked."""
        with self._guard:
            if self._facts is None:
                found = self._load(".json")
                with suppress(TypeError, ValueError, KeyError):
                    facts = Facts(
                        int(found["dimension"]), int(found["token_limit"]), str(found["digest"])
                    )
                    self._facts = facts if facts.dimension > 0 else None
            return self._facts

    def learn(self, facts: Facts) -> None:
        """Keep what the server told now."""
        with self._guard:
            changed, self._facts = facts != self._facts, facts
        if changed:
            self._keep(".json", {"server": str(self.server), **asdict(facts)})

    def demand_rested(self) -> None:
        """Raises what the server did last if that was a moment ago; after the rest one caller tries."""
        with self._guard:
            self._look()
            if self._failed is None:
                return
            at, why = self._failed
            past = time.time() - at
            if 0 <= past < REST_SECONDS:
                raise ModelServerError(
                    f"{why} ({past:.0f} s ago)", f"It is asked again in {REST_SECONDS - past:.0f} s"
                )
            self._failed = time.time(), why

    def failed(self, why: str, seconds: float) -> None:
        """The server gave no answer, and that took so long."""
        with self._guard:
            if seconds < SLOW_SECONDS:
                self._failed = None
                return
            self._failed, self._looked = (time.time(), why), True
        self._keep(".failed", {"at": time.time(), "why": why})

    def answered(self) -> None:
        """The server is well."""
        with self._guard:
            self._look()
            was, self._failed = self._failed, None
        if was is not None:
            with suppress(OSError):
                self._file(".failed").unlink(missing_ok=True)

    def _look(self) -> None:
        """Once a process: what happened to the one before."""
        if self._looked:
            return
        self._looked = True
        found = self._load(".failed")
        with suppress(TypeError, ValueError, KeyError):
            self._failed = float(found["at"]), str(found["why"])

    def first_use(self) -> bool:
        """Whether nobody was told yet that texts go there; asking counts as telling."""
        file = self._file(".told")
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            os.close(os.open(file, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
        except FileExistsError:
            return False
        except OSError:
            pass  # Rather told twice than never.
        return True

    def _file(self, ending: str) -> Path:
        return self._place.with_name(self._place.name + ending)

    def _load(self, ending: str) -> Any:
        try:
            found = json.loads(self._file(ending).read_bytes())
        except (OSError, ValueError, RecursionError):
            return {}
        return found if isinstance(found, dict) else {}

    def _keep(self, ending: str, values: dict[str, Any]) -> None:
        file = self._file(ending)
        with suppress(OSError):
            file.parent.mkdir(parents=True, exist_ok=True)
            number, draft = tempfile.mkstemp(prefix=".draft-", dir=file.parent)
            with os.fdopen(number, "w") as opened:
                json.dump(values, opened)
            Path(draft).replace(file)
