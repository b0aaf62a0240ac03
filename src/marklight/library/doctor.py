"""Self-test of an installation and a library: runtimes, settings, models, index and disk; repairs derived indexes."""

from __future__ import annotations

import platform
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from marklight.engines import self_test
from marklight.errors import MarklightError
from marklight.formatting import counted
from marklight.library import Library
from marklight.place import complete_commands

if TYPE_CHECKING:
    from marklight.models.remote.server import Server

LOW_DISK_BYTES = 500_000_000
"""Minimum of free disk space: about the size of an index of some thousand documents."""

ENOUGH_MS = 60_000.0
"""Time limit that suffices for two short passages on any machine."""


QUERY = "how do I undo a rollout"
NEAR, FAR = "undo a rollout of the app", "grind coffee beans finely"


class Finding(NamedTuple):
    """The result of one check."""

    part: str
    ok: bool
    detail: str


def examine(folder: Path | None, assignments: Sequence[str] = ()) -> list[Finding]:
    """Run all checks, dependencies first; damaged derived indexes are repaired."""
    findings = [
        Finding("Python", True, f"{platform.python_version()} on {platform.platform()}"),
        _checked("SQLite", self_test.check_sqlite),
        _checked("tantivy", self_test.check_tantivy),
        _checked("numpy", self_test.check_numpy),
    ]
    try:
        with Library(folder, assignments=assignments) as library:
            known = f"{len(library.settings.values)} known"
            findings.append(
                Finding("settings", True, "; ".join([known, *library.settings.notices]))
            )
            findings.append(_checked("model", lambda: _check_model(library)))
            if library.settings["reranker.name"] not in ("", "none"):
                findings.append(_checked("reranker", lambda: _check_reranker(library)))
            if library.shared:
                findings.append(_checked("server", lambda: _check_server(library)))
            finding = _checked("library", lambda: _check_library(library))
            detail = complete_commands(finding.detail, library.place.folder)
            findings += [finding._replace(detail=detail), _disk(library), _data(library)]
    except MarklightError as error:
        findings.append(Finding("settings", False, str(error)))
    return findings


def _checked(part: str, check: Callable[[], str]) -> Finding:
    try:
        return Finding(part, True, check())
    except Exception as error:
        # A failure of a native library must not stop the other checks.
        return Finding(part, False, str(error) or type(error).__name__)


def _check_model(library: Library) -> str:
    model, server = library.models.embedder, library.models.embedder_server
    if model is None:
        return "none, as configured: keyword search only"
    if server:
        from marklight.models.remote.embedder import RemoteEmbedder

        # Regardless of its cached state: it may be available again, or be another one.
        RemoteEmbedder(server).learn()
    query = model.embed_query(QUERY)
    began = time.perf_counter()
    near, far = model.embed_passages([NEAR, FAR])
    name = f"{_named(model.name, server)}, {model.dimension} dimensions"
    return _compared(name, query @ near, query @ far, began)


def _check_reranker(library: Library) -> str:
    model, server = library.models.any_reranker, library.models.reranker_server
    model.score(QUERY, [NEAR], ENOUGH_MS)  # The first run loads the files.
    began = time.perf_counter()
    near, far = model.score(QUERY, [NEAR, FAR], ENOUGH_MS)
    return _compared(_named(model.name, server), near, far, began)


def _named(model: str, server: Server | None) -> str:
    return f"{model} at {server.address}" if server else model


def _compared(model: str, near: float, far: float, began: float) -> str:
    took_ms = (time.perf_counter() - began) * 1000
    if not near > far:
        raise RuntimeError(f"{model} ranks a passage about coffee above one about rollouts")
    return f"{model}, two passages in {took_ms:.0f} ms"


def _check_server(library: Library) -> str:
    """Connect to the server of the index and return its state in one line."""
    state = _flat(library.engine.server())
    return f"{library.engine.describe()}: " + ", ".join(f"{key} {text}" for key, text in state)


def _flat(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in values.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{key}.")
        elif value not in ("", None, []):
            yield prefix + key, value


def _check_library(library: Library) -> str:
    read_only = library.engine.read_only()
    repairs = ["not checked, as you may only read it"] if read_only else library.engine.check()
    with library.engine.snapshot() as snapshot:
        counts = snapshot.status.counts("")
    result = "; ".join(repairs) or "nothing to repair"
    return f"{library.engine.describe()}: {counted(counts.documents, 'document')}; {result}"


def _data(library: Library) -> Finding:
    """Return where the data of Marklight is on this machine; `marklight clean` removes it."""
    from marklight.library.cleaning import places

    sizes = (
        f"{place.what} in {place.path} ({place.size / 1e6:.1f} MB)" for place in places(library)
    )
    return Finding("data", True, ", ".join(sizes))


def _disk(library: Library) -> Finding:
    """Check the free space where the index is or will be."""
    folder = library.address.folder or library.place.folder
    folder = next(path for path in (folder, *folder.parents) if path.exists())
    free = shutil.disk_usage(folder).free
    return Finding("disk", free >= LOW_DISK_BYTES, f"{free / 1e9:.1f} GB free")
