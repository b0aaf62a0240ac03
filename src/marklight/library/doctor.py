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


class Finding(NamedTuple):
    """The result of one check."""

    part: str
    ok: bool
    detail: str

    def about(self, folder: Path) -> Finding:
        """Return the finding with the folder in the commands that it suggests."""
        return self._replace(detail=complete_commands(self.detail, folder))


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
            findings += [
                Finding("settings", True, _settings(library)),
                _checked("model", lambda: _check_model(library)),
                *_reranker(library),
                *_server(library),
                _checked("library", lambda: _check_library(library)).about(library.place.folder),
                _disk(library.place.folder),
                Finding("data", True, _data(library)),
            ]
    except MarklightError as error:
        findings.append(Finding("settings", False, str(error)))
    return findings


def _checked(part: str, check: Callable[[], str]) -> Finding:
    try:
        return Finding(part, True, check())
    except Exception as error:
        # A failure of a native library must not stop the other checks.
        return Finding(part, False, str(error) or type(error).__name__)


def _settings(library: Library) -> str:
    return "; ".join([f"{len(library.settings.values)} known", *library.settings.notices])


def _check_model(library: Library) -> str:
    model = library.models.embedder
    if model is None:
        return "none, as configured: keyword search only"
    if library.models.embedder_server:
        _query_server(library.models.embedder_server)
    query = model.embed_query("how do I undo a rollout")
    began = time.perf_counter()
    near, far = model.embed_passages(["undo a rollout of the app", "grind coffee beans finely"])
    took = (time.perf_counter() - began) * 1000
    if not query @ near > query @ far:
        raise RuntimeError(f"{model.name} ranks a passage about coffee above one about rollouts")
    where = (
        f" at {library.models.embedder_server.address}" if library.models.embedder_server else ""
    )
    return f"{model.name}{where}, {model.dimension} dimensions, two passages in {took:.0f} ms"


def _query_server(server: Server) -> None:
    """Query a server regardless of its cached state: it may be available again, or be another one."""
    from marklight.models.remote.embedder import RemoteEmbedder

    RemoteEmbedder(server).learn()


def _reranker(library: Library) -> list[Finding]:
    if library.settings["reranker.name"] in ("", "none"):
        return []
    return [_checked("reranker", lambda: _check_reranker(library))]


def _check_reranker(library: Library) -> str:
    model = library.models.any_reranker
    query, texts = "how do I undo a rollout", ["undo a rollout of the app", "grind coffee beans"]
    model.score(query, texts[:1], ENOUGH_MS)  # The first run loads the files.
    began = time.perf_counter()
    near, far = model.score(query, texts, ENOUGH_MS)
    took = (time.perf_counter() - began) * 1000
    if not near > far:
        raise RuntimeError(f"{model.name} ranks a passage about coffee above one about rollouts")
    server = library.models.reranker_server
    where = f" at {server.address}" if server else ""
    return f"{model.name}{where}, two passages in {took:.0f} ms"


def _server(library: Library) -> list[Finding]:
    return [_checked("server", lambda: _check_server(library))] if library.shared else []


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


def _data(library: Library) -> str:
    """Return where the data of Marklight is on this machine; `marklight clean` removes it."""
    from marklight.library.cleaning import places

    return ", ".join(
        f"{each.what} in {each.path} ({each.size / 1e6:.1f} MB)" for each in places(library)
    )


def _disk(folder: Path) -> Finding:
    free = shutil.disk_usage(folder).free
    return Finding("disk", free >= LOW_DISK_BYTES, f"{free / 1e9:.1f} GB free")
