"""A library whose files are followed, and a model that can be made to wait."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import field
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any
from unittest import mock

import marklight
from marklight.lazy import dataclass
from marklight.library.configuration import Index
from marklight.library.watching import Watcher
from marklight.models.fake import FakeEmbedder
from marklight.report import Report
from tests.making import library
from tests.waiting import PATIENCE_SECONDS

if TYPE_CHECKING:
    from marklight.model import Matrix

SECONDS = PATIENCE_SECONDS
"""Longer than anything here takes; only a test that fails waits for so long."""
QUICK = mock.patch.multiple(Index, debounce_ms=100.0, poll_seconds=0.1)
"""Short times of a watcher, but long enough that a busy machine reports simultaneous changes in one batch."""


@dataclass(frozen=True, slots=True)
class Gated(FakeEmbedder):
    """The fake model, with a gate before every passage; open from the start unless it is shut."""

    gate: Event = field(default_factory=Event)

    def embed_passages(self, texts: Sequence[str]) -> Matrix:
        assert self.gate.wait(SECONDS)
        return FakeEmbedder.embed_passages(self, texts)

    def embed_query(self, text: str) -> Any:
        return FakeEmbedder.embed_passages(self, [text])[0]


@contextmanager
def following(
    folder: Path, engine: str, debounce_ms: float = 100.0, **settings: Any
) -> Iterator[tuple[marklight.Library, Watcher, list[Report]]]:
    limits = mock.patch.multiple(Index, debounce_ms=debounce_ms, poll_seconds=0.1)
    with limits, library(folder, engine=engine, **settings) as lib:
        follower = Watcher(lib)
        reports: list[Report] = []
        follower.listeners.append(reports.append)
        follower.start()
        try:
            yield lib, follower, reports
        finally:
            follower.close()


def settled(lib: marklight.Library, follower: Watcher) -> bool:
    """All is read and embedded, and somebody listens."""
    return follower.progress is None and follower.watching and not lib.ingest.has_pending()
