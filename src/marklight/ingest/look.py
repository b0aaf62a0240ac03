"""One comparison of disk and index, and the portions in which its files are read."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace

from marklight.errors import Refused
from marklight.ingest.discover import Discovery, Found
from marklight.ingest.plan import Plan, plan
from marklight.ingest.read import read
from marklight.ingest.walk import DENIED
from marklight.model import DocumentId, Failure
from marklight.ports import Engine, IndexedFile, PathRange, Progress

BATCH_BYTES = 2_000_000
"""Of files in one commit: few enough to bound memory, enough that a commit's own cost vanishes."""
BATCH_FILES = 500
HURRIED_BYTES, HURRIED_FILES = 200_000, 50
"""The same for a caller with little time, a tenth of a second, and for the first of a library: each after it is
four times as large, so that a question is answered soon and the commits more are only a few."""
TRIED = "failures_recipe"
"""Under this key the index notes by which recipe its failures were tried; another may do better."""


@contextmanager
def uncollected() -> Iterator[None]:
    """Without the collector of cycles, which finds none among the states of files.

    It would look at all of them again and again: a quarter of the time at 16,000 files.
    """
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()


@dataclass(frozen=True, slots=True)
class Look:
    """One comparison of disk and index."""

    generation: int
    """Of the index that was compared: with another one there may be other things to do."""
    found: Mapping[DocumentId, Found]
    known: Mapping[DocumentId, IndexedFile]
    failed: Mapping[DocumentId, Failure]
    tried: str
    """The recipe by which failures were last tried."""
    plan: Plan
    unreadable: tuple[Failure, ...]
    """What could not be looked at and is not known as such yet."""
    rebuild: bool
    spans: tuple[PathRange, ...] | None = None
    """What was compared; None is everything."""
    stopped: PathRange | None = None
    """What comes next, where there was no time for everything."""
    folders: tuple[str, ...] = ()
    """That were listed."""
    denied: tuple[DocumentId, ...] = ()
    """Folders that this user may not list; what is indexed of them stays in the index."""

    def __bool__(self) -> bool:
        return bool(self.plan or self.unreadable)


@uncollected()
def compare(
    engine: Engine, walk: Callable[[], Discovery], recipe: str, max_bytes: int, *, rebuild: bool
) -> Look:
    """What differs between disk and index."""
    # The view of the index is older than the walk: what another process adds after that would seem gone.
    with engine.snapshot() as snapshot:
        generation, tried = snapshot.generation, snapshot.status.manifest().get(TRIED, "")
        disk = walk()
        known, failures = snapshot.documents.files(disk.spans), snapshot.status.failures()
    if disk.spans is not None:
        within = disk.spans
        failures = [one for one in failures if any(span.contains(one.document) for span in within)]
    files = {id: found.file for id, found in disk.found.items()}
    standing = [_standing(one, disk.found, tried == recipe, max_bytes) for one in failures]
    steps = plan(files, known, standing, disk.unreadable, recipe, rebuild=rebuild)
    failed, leaving = {one.document: one for one in failures}, set(steps.removed)
    news = tuple(
        failure
        for failure in disk.unreadable
        if failure.document in leaving or failed.get(failure.document) != failure
    )
    return Look(
        generation,
        disk.found,
        known,
        failed,
        tried,
        steps,
        news,
        rebuild,
        disk.spans,
        disk.stopped,
        disk.folders,
        tuple(each.document for each in disk.unreadable if each.reason == DENIED),
    )


def _standing(
    failure: Failure, found: Mapping[DocumentId, Found], same_recipe: bool, max_bytes: int
) -> Failure:
    """A failure with its file's state where reading again changes nothing, else without one."""
    here = found.get(failure.document)
    if here is None:
        return failure
    if failure.file:
        return failure if same_recipe else replace(failure, file=None)
    try:
        read(here.path, max_bytes, here.identity)
    except Refused as refused:
        if str(refused) == failure.reason:
            return replace(failure, file=here.file)
    return failure


def batches(look: Look, progress: Progress, until: float | None) -> Iterator[list[Found]]:
    """The files to read, in portions bounded by bytes and number, until a `time.monotonic`; never none."""
    hurried = until is not None or not look.known
    most_bytes, most_files = (
        (HURRIED_BYTES, HURRIED_FILES) if hurried else (BATCH_BYTES, BATCH_FILES)
    )
    batch: list[Found] = []
    size = 0
    for done, id in enumerate(look.plan.read):
        progress("Reading text", done, len(look.plan.read))
        batch.append(look.found[id])
        size += look.found[id].file.size
        if size >= most_bytes or len(batch) >= most_files:
            yield batch
            batch, size = [], 0
            if until is None:
                most_bytes = min(4 * most_bytes, BATCH_BYTES)
                most_files = min(4 * most_files, BATCH_FILES)
            elif time.monotonic() >= until:
                return
    if batch:
        yield batch
