"""Parse ahead in a second process: it reads, parses and chunks parts of the next batches while this one commits the last.

Both take the next part when they are free, so that two cores are busy to the end. One process is enough: commits take
nearly as long as parsing. It is started with pipes and not by `multiprocessing`, which would run the script of a user
of the library again. It ends with its input, so also when this process is killed.
"""

from __future__ import annotations

import gc
import os
import pickle
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import replace
from itertools import islice
from queue import SimpleQueue
from threading import Lock, Thread
from typing import IO, Any, NamedTuple

from marklight.ingest.boilerplate import Estimate
from marklight.ingest.discover import ScannedFile
from marklight.ingest.file_batch import BATCH_BYTES, FileBatch
from marklight.ingest.recipe import Chunker
from marklight.lazy import dataclass
from marklight.levels import encoded_levels
from marklight.lexical import entry_terms
from marklight.model import Entry
from marklight.text.analyzer import vocabulary_terms

_PROGRAM = (sys.executable, "-P", "-c", "from marklight.ingest.parse_process import main; main()")

PART_BYTES, MIN_FILE_BYTES = 64_000, 1_000
"""Text of a part, some 25 ms of work, and the size that a small file counts as: reading it takes time too."""
_PARTS_AHEAD = BATCH_BYTES // PART_BYTES
"""Parts that are read ahead: as many as the process needs during a commit."""
_PIPE_BYTES = 1 << 20
"""Size of the pipes, where it can be set: a part with its passages, so that the process need not wait until it is read."""


@dataclass(frozen=True, slots=True)
class BatchReader:
    """Reads, parses and chunks batches of files."""

    empty: FileBatch
    """A batch with the settings and without files."""
    chunker: Chunker
    estimate: Estimate
    rebuild: bool

    def __call__(self, files: Sequence[ScannedFile]) -> FileBatch:
        """Return a batch whose documents are chunked by the estimate of what is boilerplate."""
        batch = self.select(files)
        entries: list[Entry] = []
        for file in files:
            batch.read(file, rebuild=self.rebuild)
            likely = self.estimate.of(key for _, digests in batch.blocks() for key in digests)
            for entry in batch.chunk(self.chunker, likely):
                vocabulary, levels = vocabulary_terms(entry.document.text), [*encoded_levels(entry)]
                terms = [*entry_terms(entry)]
                entries.append(replace(entry, vocabulary=vocabulary, levels=levels, terms=terms))
            batch.parsed.clear()  # a parsed text takes far more memory than its passages
        batch.entries = entries
        return batch

    def select(self, files: Sequence[ScannedFile]) -> FileBatch:
        """Return an empty batch with what the index has of these files."""
        empty = self.empty
        return FileBatch(
            empty.parsers,
            empty.recipe,
            empty.max_bytes,
            {file.id: empty.indexed[file.id] for file in files if file.id in empty.indexed},
            {file.id: empty.failed[file.id] for file in files if file.id in empty.failed},
        )


class _Part(NamedTuple):
    """Some files of a batch, and the process's result for them."""

    files: list[ScannedFile]
    result: Future[FileBatch | None]
    batch: list[ScannedFile]
    """All files of the batch, in its last part."""


def _parts(
    batches: Iterable[list[ScannedFile]],
) -> Iterator[tuple[list[ScannedFile], list[ScannedFile]]]:
    """Yield the parts of batches, the last one of each with all files of the batch."""
    for batch in batches:
        first, size = 0, 0
        for index, scanned in enumerate(batch, 1):
            size += max(MIN_FILE_BYTES, scanned.file.size)
            if index == len(batch) or size >= PART_BYTES:
                yield batch[first:index], batch if index == len(batch) else []
                first, size = index, 0


def read_ahead(
    batches: Iterable[list[ScannedFile]], reader: BatchReader, process: ParseProcess
) -> Iterator[tuple[list[ScannedFile], FileBatch]]:
    """Yield batches of files with their documents, in order; parts of others are read meanwhile.

    Without a second core, and if the process fails, all parts are read here.
    """
    process.send(replace(reader, empty=reader.select(())))
    parts, ahead, read = _parts(batches), deque[_Part](), list[FileBatch]()
    # Two threads: the process has a part that it reads, and one that waits.
    with ThreadPoolExecutor(2) as pool, closing(process):
        while True:
            for files, batch in islice(parts, _PARTS_AHEAD - len(ahead)):
                result = pool.submit(process.read, (files, reader.select(files)))
                ahead.append(_Part(files, result, batch))
            if not ahead:
                return
            # The first part that the process has not begun with is taken from it.
            free = (index for index, part in enumerate(ahead) if part.result.cancel())
            if not ahead[0].result.done() and (taken := next(free, None)) is not None:
                done = Future[FileBatch | None]()
                done.set_result(reader(ahead[taken].files))
                ahead[taken] = ahead[taken]._replace(result=done)
                continue
            part = ahead.popleft()
            read.append(part.result.result() or reader(part.files))
            if part.batch:
                yield part.batch, reader.select(part.batch).joined(read)
                read.clear()


class ParseProcess:
    """The other process; after a failure, or on one core, nothing is sent and received."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._sending, self._receiving = Lock(), Lock()
        if (os.cpu_count() or 1) > 1:
            with suppress(OSError):
                self._process = subprocess.Popen(
                    _PROGRAM,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,
                    pipesize=_PIPE_BYTES,
                    creationflags=getattr(subprocess, "CREATE_NO_WINDOW", 0),
                )

    def read(self, request: tuple[Sequence[ScannedFile], FileBatch]) -> FileBatch | None:
        """Return the result of a request; requests of several threads are answered in order."""
        with self._sending:
            self.send(request)
            self._receiving.acquire()
        try:
            return self.receive()
        finally:
            self._receiving.release()

    def send(self, value: object) -> None:
        """Write a value, which the process reads as soon as it has started."""
        process = self._process  # another thread may close it
        if process and process.stdin:
            try:
                pickle.dump(value, process.stdin, pickle.HIGHEST_PROTOCOL)
                process.stdin.flush()
            except (OSError, ValueError):
                self.close()

    def receive(self) -> FileBatch | None:
        """Return the next result; None after a failure."""
        process = self._process
        if process and process.stdout:
            try:
                batch: FileBatch = pickle.load(process.stdout)
                return batch
            except (OSError, EOFError, ValueError, pickle.UnpicklingError):
                self.close()
        return None

    def close(self) -> None:
        """End the process."""
        process, self._process = self._process, None
        if process:
            with suppress(OSError), process:  # closes the pipes and waits for its end
                process.kill()


def main() -> None:
    """Answer batches of files with batches of documents, until the input ends."""
    # Ctrl-C reaches the parent, which ends this process.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    gc.disable()
    target, requests = sys.stdout.buffer, SimpleQueue[Any]()
    # In a thread: else each process could wait for ever until the other one reads.
    Thread(target=_read_all, args=(sys.stdin.buffer, requests), daemon=True).start()
    reader: BatchReader = requests.get()
    with suppress(OSError):
        while request := requests.get():
            files, empty = request
            pickle.dump(replace(reader, empty=empty)(files), target, pickle.HIGHEST_PROTOCOL)
            target.flush()
            gc.collect(0)  # only what this batch made


def _read_all(source: IO[bytes], values: SimpleQueue[Any]) -> None:
    """Add all values of a stream to a queue, and None at its end."""
    with suppress(EOFError, OSError, pickle.UnpicklingError):
        while True:
            values.put(pickle.load(source))
    values.put(None)
