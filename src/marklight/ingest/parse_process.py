"""Parse ahead in a second process: it reads, parses and chunks the next batches of files while this one commits the last.

Where it is slower, this process parses a batch itself, so that two cores are busy. One process is enough: commits take
nearly as long as parsing. It is started with pipes and not by `multiprocessing`, which would run the script of a user
of the library again. It ends with its input, so also when this process is killed.
"""

from __future__ import annotations

import gc
import os
import pickle
import select
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from itertools import islice
from queue import SimpleQueue
from threading import Thread
from typing import IO, Any

from marklight.ingest.boilerplate import Estimate
from marklight.ingest.discover import ScannedFile
from marklight.ingest.file_batch import FileBatch
from marklight.ingest.recipe import Chunker
from marklight.lazy import dataclass
from marklight.levels import entry_levels
from marklight.model import Entry
from marklight.text.analyzer import vocabulary_terms

_PROGRAM = (sys.executable, "-P", "-c", "from marklight.ingest.parse_process import main; main()")

_SENT_AHEAD = 2
"""Batches that the process has: one that it parses, and one that waits, so that it need not wait for a commit."""


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
                terms, levels = vocabulary_terms(entry.document.text), list(entry_levels(entry))
                entries.append(replace(entry, vocabulary=terms, levels=levels))
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


def read_ahead(
    batches: Iterator[list[ScannedFile]], reader: BatchReader
) -> Iterator[tuple[list[ScannedFile], FileBatch]]:
    """Yield batches of files with their documents, in order; others are parsed meanwhile.

    Without a second core, and if the process fails, all batches are parsed here.
    """
    ahead: deque[tuple[list[ScannedFile], FileBatch | None]] = deque()
    batch: FileBatch | None
    with closing(_Process(replace(reader, empty=reader.select(())))) as process:
        while True:
            sent = sum(batch is None for _, batch in ahead)
            for files in islice(batches, _SENT_AHEAD - sent):
                process.send((files, reader.select(files)))
                ahead.append((files, None))
            if not ahead:
                return
            files, batch = ahead[0]
            all_sent = all(batch is None for _, batch in ahead)
            if all_sent and not process.has_result() and (other := next(batches, None)):
                ahead.append((other, reader(other)))
                continue
            ahead.popleft()
            if batch is None:
                batch = process.receive() or reader(files)
            yield files, batch
            batch = None  # freed before the next one is received


class _Process:
    """The other process; after a failure, or on one core, nothing is sent and received."""

    def __init__(self, reader: BatchReader) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        if (os.cpu_count() or 1) > 1:
            with suppress(OSError):
                self._process = subprocess.Popen(
                    _PROGRAM,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,
                    creationflags=getattr(subprocess, "CREATE_NO_WINDOW", 0),
                )
        self.send(reader)

    def send(self, value: object) -> None:
        if self._process and self._process.stdin:
            try:
                pickle.dump(value, self._process.stdin, pickle.HIGHEST_PROTOCOL)
                self._process.stdin.flush()
            except OSError:
                self.close()

    def has_result(self) -> bool:
        """Return true if `receive` would not wait long, or if that cannot be found out, as with pipes of Windows."""
        if not self._process or not self._process.stdout or os.name == "nt":
            return True
        return bool(select.select([self._process.stdout], [], [], 0)[0])

    def receive(self) -> FileBatch | None:
        if self._process and self._process.stdout:
            try:
                batch: FileBatch = pickle.load(self._process.stdout)
                return batch
            except (OSError, EOFError, pickle.UnpicklingError):
                self.close()
        return None

    def close(self) -> None:
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
