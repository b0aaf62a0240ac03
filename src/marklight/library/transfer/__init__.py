"""Copy, export and import the index of a library: open both ends, move everything, and report what was moved."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from marklight import engines
from marklight.errors import NotFound, UsageError
from marklight.lazy import dataclass
from marklight.library.transfer.copying import Transfer, check_target, copy, snapshot_source
from marklight.place import machine_id
from marklight.ports import Engine, Progress, no_progress

if TYPE_CHECKING:
    from marklight.library import Library

OF_COMMITS = " of commits"
MAX_NAMED = 3
"""Collections that a notice names."""


@dataclass(frozen=True, slots=True)
class MoveReport:
    """The result of a copy, an export or an import."""

    source: str
    target: str
    documents: int
    chunks: int
    vectors: int
    models: tuple[str, ...]
    digest: str
    """Of a copy: equal for two indexes with equal content, whatever their engines. Of an archive: SHA-256 of its manifest."""
    written: int
    """Documents that were written: fewer than all if the target had some already."""
    removed: int = 0
    commits: int = 0
    size: int = 0
    """Bytes of the archive."""
    notices: tuple[str, ...] = ()
    took_ms: float = 0.0

    def to_dict(self) -> dict[str, Any]:
        """Return the report as JSON values."""
        values = {name: getattr(self, name) for name in self.__dataclass_fields__}
        return {**values, "models": list(self.models), "notices": list(self.notices)}


@dataclass(frozen=True, slots=True)
class End:
    """One end of a copy: the engine of an index, and its library if the index belongs to a folder."""

    engine: Engine
    open_history: Callable[[], Engine]
    library: Library | None = None

    @property
    def name(self) -> str:
        """Return the address of the index, without a password."""
        return self.engine.describe()


@contextmanager
def open_end(
    place: str | Path | Library, assignments: Sequence[str] = (), other: Library | None = None
) -> Iterator[End]:
    """Open an index by the folder of a library, or by an engine address with the settings of `other` or the user."""
    from marklight.library import Library
    from marklight.library.configuration import read_settings, server_settings

    if isinstance(place, Library):
        yield End(place.engine, lambda: place.commits_engine, place)
        return
    if not (isinstance(place, str) and engines.has_scheme(place)):
        with Library(place, assignments=assignments) as library:
            if library.place.part is not None:
                raise UsageError(
                    f"{library.place.part} is inside the library {library.place.folder}, which has one index",
                    f"Use the folder of the library: {library.place.folder}",
                )
            yield End(library.engine, lambda: library.commits_engine, library)
        return
    address, machine = engines.parse_address(place), machine_id()
    if address.folder is not None:
        address = address._replace(folder=address.folder.expanduser().resolve())
    values = other.settings if other else read_settings(None, assignments)
    settings = server_settings(values, machine)
    history: list[Engine] = []

    def open_history() -> Engine:
        history.append(engines.open(address.beside(engines.HISTORY), settings))
        return history[-1]

    engine = engines.open(address, settings)
    try:
        yield End(engine, open_history)
    finally:
        for opened in (engine, *history):
            opened.close()


def copy_index(
    source: str | Path | Library,
    target: str | Path | Library,
    *,
    replace: bool = False,
    assignments: Sequence[str] = (),
    progress: Progress = no_progress,
) -> MoveReport:
    """Copy an index, with that of the commits if there is one, and verify the copy."""
    started = time.perf_counter()
    with (
        open_end(source, assignments) as origin,
        open_end(target, assignments, origin.library) as other,
    ):
        if origin.name == other.name:
            raise UsageError(
                f"{origin.name} is both source and target", "Give two different indexes"
            )
        with origin.engine.snapshot() as snapshot:
            if snapshot.generation == 0:
                raise _nothing_indexed(origin)
            contents = snapshot_source(snapshot)
            transfer = copy(contents, other.engine, progress, replace_other=replace)
        commits = _copy_history(origin, other, replace, progress)
        notices = tuple(other.engine.take_notices())
        return _report(origin.name, other.name, transfer, started, commits=commits, notices=notices)


def _copy_history(origin: End, other: End, replace: bool, progress: Progress) -> int:
    """Copy the index of commits, if there is one; return how many."""
    with origin.open_history().snapshot() as snapshot:
        if snapshot.generation == 0:
            return 0
        transfer = copy(
            snapshot_source(snapshot),
            other.open_history(),
            replace_other=replace,
            progress=lambda phase, done, total: progress(phase + OF_COMMITS, done, total),
        )
    return transfer.summary.counts.get("documents", 0)


def export_index(
    source: str | Path | Library,
    path: str | Path,
    *,
    assignments: Sequence[str] = (),
    progress: Progress = no_progress,
) -> MoveReport:
    """Write the index of the documents into an archive."""
    from marklight.library.transfer.archive import write_archive

    started, path = time.perf_counter(), Path(path).expanduser()
    with open_end(source, assignments) as origin, origin.engine.snapshot() as snapshot:
        if snapshot.generation == 0:
            raise _nothing_indexed(origin)
        written, vectors = write_archive(snapshot_source(snapshot), path, progress)
        return MoveReport(
            source=origin.name,
            target=str(path),
            documents=written.manifest.documents,
            chunks=written.manifest.passages,
            vectors=vectors,
            models=tuple(written.models()),
            digest=written.digest,
            written=written.manifest.documents,
            size=path.stat().st_size,
            took_ms=(time.perf_counter() - started) * 1000,
        )


def import_index(
    path: str | Path,
    target: str | Path | Library,
    *,
    replace: bool = False,
    digest: str = "",
    assignments: Sequence[str] = (),
    progress: Progress = no_progress,
) -> MoveReport:
    """Verify an archive, then make an index equal to it; with a digest, refuse any other archive."""
    from marklight.library.transfer.archive import Archive

    started, path = time.perf_counter(), Path(path).expanduser()
    with open_end(target, assignments) as other, Archive(path) as archive:
        check_target(other.engine, replace_other=replace)
        archive.verify(progress)
        if digest and digest.lower() != archive.digest:
            raise UsageError(
                f"{path} has the digest {archive.digest}, not {digest}",
                "Get the archive again, or leave out --digest",
            )
        transfer = copy(archive.source, other.engine, progress, replace_other=replace)
        notices = list(_import_notices(other.library, transfer)) if other.library else []
        notices += other.engine.take_notices()
        report = _report(str(path), other.name, transfer, started, notices=tuple(notices))
        return dataclasses.replace(report, digest=archive.digest, size=path.stat().st_size)


def _import_notices(library: Library, transfer: Transfer) -> Iterator[str]:
    """Return what of an archive does not fit a library, and what the next run does about it."""
    unknown = sorted(transfer.collections - library.collections.keys())
    if unknown and not library.shared:
        names = ", ".join(unknown[:MAX_NAMED]) + " and others" * (len(unknown) > MAX_NAMED)
        yield (
            f"The archive has documents of collections that this library does not have: {names}."
            f" The next run removes them. Collections of this library: {', '.join(library.collections)}"
        )
    if transfer.recipes - {library.text_ingest.recipe}:
        yield (
            "The archive was made with other settings or by another version, so the next run reads all documents"
            " again; unchanged passages keep their vectors"
        )
    fingerprint, _ = library.models.fingerprint()
    models = transfer.models
    if fingerprint and models and fingerprint not in models:
        yield (
            "The vectors in the archive are those of another model than this library uses,"
            " so the next run embeds all passages"
        )


def _report(
    source: str, target: str, transfer: Transfer, started: float, **more: Any
) -> MoveReport:
    summary = transfer.summary
    return MoveReport(
        source=source,
        target=target,
        documents=summary.counts.get("documents", 0),
        chunks=summary.counts.get("passages", 0),
        vectors=summary.total("vectors"),
        models=transfer.models,
        digest=summary.digest(),
        written=transfer.written_documents,
        removed=transfer.removed_documents,
        took_ms=(time.perf_counter() - started) * 1000,
        **more,
    )


def _nothing_indexed(end: End) -> NotFound:
    place = end.library.place.folder if end.library else end.name
    return NotFound(f"Nothing is indexed in {place} yet", "Run `marklight index` first")
