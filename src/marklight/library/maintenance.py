"""Maintenance of an installation: the self-test of all parts, which repairs derived indexes, and the places of all data and their removal."""

from __future__ import annotations

import os
import platform
import re
import shutil
import time
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from marklight import engines
from marklight.errors import Busy, MarklightError, NotFound, StoreError, UsageError
from marklight.formatting import counted, flat
from marklight.library import Library
from marklight.place import (
    STORE,
    complete_commands,
    index_folder,
    needs_record,
    orphaned_records,
    recorded_ids,
    recorded_indexes,
    release,
)
from marklight.private_files import cache_folder, data_folder, is_plain_folder, remove, state_folder
from marklight.settings import user_file

if TYPE_CHECKING:
    from marklight.models.remote import Server


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
        _checked("SQLite", engines.check_sqlite),
        _checked("tantivy", engines.check_tantivy),
        _checked("numpy", engines.check_numpy),
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
    state = flat(library.engine.server()).items()
    shown = (f"{key} {value}" for key, value in state if value not in ("", None, []))
    return f"{library.engine.describe()}: " + ", ".join(shown)


def _check_library(library: Library) -> str:
    read_only = library.engine.read_only()
    repairs = ["not checked, as you may only read it"] if read_only else library.engine.check()
    with library.engine.snapshot() as snapshot:
        counts = snapshot.status.counts("")
    result = "; ".join(repairs) or "nothing to repair"
    return f"{library.engine.describe()}: {counted(counts.documents, 'document')}; {result}"


def _data(library: Library) -> Finding:
    """Return where the data of Marklight is on this machine; `marklight clean` removes it."""
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


WAIT_SECONDS = 1.0
"""Time for another process to finish its commit."""
_PARTS = re.compile(
    r"library\.db.*|lock|lexical.*|vectors|(refresh|progress)\.json.*|scan\.record.*|history|\.gitignore"
)
"""Names of files and folders that Marklight makes in the folder of an index."""


class DataPlace(NamedTuple):
    """A folder with data of Marklight."""

    what: str
    path: Path
    size: int

    @classmethod
    def of(cls, what: str, path: Path) -> DataPlace:
        """Measure a folder."""
        total = 0
        for root, _, names in os.walk(path):
            for name in names:
                with suppress(OSError):  # deleted meanwhile
                    total += os.lstat(os.path.join(root, name)).st_size
        return cls(what, path, total)


def places(library: Library) -> list[DataPlace]:
    """Return the index of a library and the folders with other data of this user, as far as they exist."""
    index = [("index", library.address.folder)] if library.address.folder else []
    folders = [*index, ("settings", user_file().parent), *_user_folders()]
    return [DataPlace.of(what, path) for what, path in folders if path.is_dir()]


def library_data(library: Library) -> list[DataPlace]:
    """Return the index of a library, to be removed; raise UsageError if this user did not make it on this machine."""
    index = library.address.folder
    if index is None:
        raise UsageError(
            f"The index of {library.place.folder} is {library.address}, not a folder",
            "Delete it on its server",
        )
    folders = {index, index_folder(library.place.folder)}
    present = [folder for folder in sorted(folders) if os.path.lexists(folder)]
    for folder in present:
        recorded = not needs_record(folder) or recorded_ids(folder)
        if not is_plain_folder(folder) or not recorded:
            raise UsageError(
                f"{folder} was not made by you on this machine", "Delete the folder by hand"
            )
    if not present:
        raise NotFound(f"{library.place.folder} has no index on this machine")
    return [DataPlace.of("index", folder) for folder in present]


def orphans() -> list[DataPlace]:
    """Return the indexes of folders that no longer exist."""
    return [DataPlace.of(f"index of {record.path}", index) for index, record in orphaned_records()]


def all_data() -> list[DataPlace]:
    """Return all indexes of this user, then the folders of data, cached files and state; not the settings."""
    indexes = [("index", index) for index in recorded_indexes()]
    folders = [(what, path) for what, path in _user_folders() if path.is_dir()]
    return [DataPlace.of(what, path) for what, path in (*indexes, *folders)]


def delete(places: Sequence[DataPlace]) -> None:
    """Delete folders of this user, unless another process writes to an index there; files of the user beside an index are kept."""
    for place in places:
        for store in (place.path / STORE, *place.path.glob(f"libraries/*/{STORE}")):
            if store.exists():
                _check_unused(store.parent)
    for place in places:
        if not is_plain_folder(place.path):
            raise StoreError(f"{place.path} is not a folder of yours", "Delete it by hand")
        for index in (place.path, *place.path.glob("libraries/*")):
            # First: derived parts without a database would be reported as damage if this is interrupted.
            for part in ("lexical", "vectors"):
                remove(index / part)
        if not (place.path / STORE).exists() or not needs_record(place.path):
            remove(place.path)
        else:
            for name in filter(_PARTS.fullmatch, os.listdir(place.path)):
                remove(place.path / name)
            with suppress(OSError):  # other files of the user are there
                os.rmdir(place.path)
            for index in (place.path, place.path / engines.HISTORY):
                release(index)
        if place.path.is_dir() and any(map(_PARTS.fullmatch, os.listdir(place.path))):
            raise StoreError(f"{place.path} could not be deleted completely", "Delete it by hand")


def _check_unused(index: Path) -> None:
    """Raise `Busy` if another process writes to an index; a damaged one is not in use."""
    try:
        with closing(engines.open(f"file:{index}")) as engine, engine.writing(WAIT_SECONDS):
            pass
    except Busy as error:
        raise Busy(
            f"Nothing was removed: another process is writing to {index}",
            "Wait until it has finished, or end it",
        ) from error
    except StoreError:
        pass


def _user_folders() -> list[tuple[str, Path]]:
    return [
        ("data", data_folder()),
        ("cached models and evaluations", cache_folder()),
        ("state of daemons", state_folder()),
    ]
