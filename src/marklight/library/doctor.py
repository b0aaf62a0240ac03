"""Try every part that the library rests on, and say in words what is well and what is not."""

from __future__ import annotations

import platform
import shutil
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from marklight.engines import self_test
from marklight.errors import MarklightError
from marklight.library import Library

if TYPE_CHECKING:
    from marklight.models.remote.server import Server

LOW_DISK_BYTES = 500_000_000
"""Less free room than this is said: an index of some thousand documents takes about as much."""

ENOUGH_MS = 60_000.0
"""Time for two short passages on any machine."""


class Finding(NamedTuple):
    """One part and how it is."""

    part: str
    ok: bool
    detail: str


def examine(folder: Path | None, assignments: Sequence[str] = ()) -> list[Finding]:
    """All parts, the ones that others rest on first; a derived index that is damaged is mended."""
    findings = [
        Finding("Python", True, f"{platform.python_version()} on {platform.platform()}"),
        _tried("SQLite", self_test.check_sqlite),
        _tried("tantivy", self_test.check_tantivy),
        _tried("numpy", self_test.check_numpy),
    ]
    try:
        with Library(folder, assignments=assignments) as library:
            findings += [
                Finding("settings", True, _settings(library)),
                _tried("model", lambda: _try_model(library)),
                *_reranker(library),
                _tried("library", lambda: _try_library(library)),
                _disk(library.place.folder),
            ]
    except MarklightError as error:
        findings.append(Finding("settings", False, str(error)))
    return findings


def _tried(part: str, attempt: Callable[[], str]) -> Finding:
    try:
        return Finding(part, True, attempt())
    except Exception as error:
        # Whatever a native part does, the other parts are still looked at.
        return Finding(part, False, str(error) or type(error).__name__)


def _settings(library: Library) -> str:
    return "; ".join([f"{len(library.settings.values)} known", *library.settings.notices])


def _try_model(library: Library) -> str:
    model = library.models.embedder
    if model is None:
        return "none, as the settings say: keyword search only"
    if library.models.embedder_server:
        _ask_anew(library.models.embedder_server)
    question = model.embed_query("how do I undo a rollout")
    began = time.perf_counter()
    near, far = model.embed_passages(["undo a rollout of the app", "grind coffee beans finely"])
    took = (time.perf_counter() - began) * 1000
    if not question @ near > question @ far:
        raise RuntimeError(f"{model.name} finds coffee nearer to a rollout than a rollout")
    where = (
        f" at {library.models.embedder_server.address}" if library.models.embedder_server else ""
    )
    return f"{model.name}{where}, {model.dimension} numbers, two passages in {took:.0f} ms"


def _ask_anew(server: Server) -> None:
    """A server is tried whatever is remembered of it: it may be back, or another."""
    from marklight.models.remote.embedder import RemoteEmbedder

    RemoteEmbedder(server).learn()


def _reranker(library: Library) -> list[Finding]:
    if library.settings["reranker.name"] in ("", "none"):
        return []
    return [_tried("reranker", lambda: _try_reranker(library))]


def _try_reranker(library: Library) -> str:
    model = library.models.any_reranker
    asked, texts = "how do I undo a rollout", ["undo a rollout of the app", "grind coffee beans"]
    model.score(asked, texts[:1], ENOUGH_MS)  # The first run opens the files.
    began = time.perf_counter()
    near, far = model.score(asked, texts, ENOUGH_MS)
    took = (time.perf_counter() - began) * 1000
    if not near > far:
        raise RuntimeError(f"{model.name} finds that coffee answers a question about a rollout")
    server = library.models.reranker_server
    where = f" at {server.address}" if server else ""
    return f"{model.name}{where}, two passages in {took:.0f} ms"


def _try_library(library: Library) -> str:
    found = library.engine.check()
    with library.engine.snapshot() as snapshot:
        counts = snapshot.status.counts("")
    said = "; ".join(found) or "nothing to repair"
    return f"{library.engine.describe()}: {counts.documents} documents; {said}"


def _disk(folder: Path) -> Finding:
    free = shutil.disk_usage(folder).free
    return Finding("disk", free >= LOW_DISK_BYTES, f"{free / 1e9:.1f} GB free")
