"""Concurrency: one writer, many readers, in several threads and processes of one library."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from threading import Thread

import pytest

from marklight import engines
from marklight.engines.embedded import lexical_index
from marklight.errors import Busy, StoreError
from marklight.model import Batch
from marklight.ports import Engine
from marklight.query import Filters
from tests.contracts.builders import entry
from tests.faults.committing import (
    answers,
    batches,
    check_snapshot,
    expected_answers,
    in_child,
    in_memory,
    resume,
    watch,
)

Opened = Callable[[Path], Engine]
ROOT = Path(__file__).parents[2]
HOLD_LOCK = """
import sys, time
from marklight import engines
engine = engines.open(sys.argv[1])
with engine.writing(5):
    print("held", flush=True)
    time.sleep(60)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    with in_memory(tmp_path) as place:
        yield place / "library"


@pytest.fixture
def opened() -> Iterator[Opened]:
    """Return a function that opens engines, which are closed after the test."""
    with ExitStack() as closing:

        def open_engine(folder: Path) -> Engine:
            engine = engines.open(folder)
            closing.callback(engine.close)
            return engine

        yield open_engine


@pytest.fixture
def holder(folder: Path) -> Iterator[subprocess.Popen[str]]:
    """Start another process that holds the writer lock."""
    with subprocess.Popen(
        [sys.executable, "-c", HOLD_LOCK, str(folder)], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


def test_a_second_writer_waits_and_then_fails_with_busy(
    folder: Path, holder: subprocess.Popen[str], opened: Opened
) -> None:
    engine = opened(folder)
    began = time.monotonic()
    with pytest.raises(Busy, match="Another process is writing") as caught, engine.writing(0.3):
        pass
    assert 0.25 < time.monotonic() - began < 30
    assert caught.value.hint
    with engine.snapshot() as snapshot:
        assert snapshot.generation == 0


def test_the_writer_lock_of_a_killed_process_is_free_at_once(
    folder: Path, holder: subprocess.Popen[str], opened: Opened
) -> None:
    holder.kill()
    holder.wait()
    engine = opened(folder)
    with engine.writing(0):
        assert engine.commit(Batch(entries=(entry("a.md", "x"),))) == 1


def test_threads_of_one_process_write_one_after_the_other(folder: Path, opened: Opened) -> None:
    engine, other = opened(folder), opened(folder)

    def write(other: Engine) -> None:
        with other.writing(0.05):
            pass

    with engine.writing(1), engine.writing(1), ThreadPoolExecutor() as pool:
        for contender in (engine, other):
            with pytest.raises(Busy):
                pool.submit(write, contender).result()
    with other.writing(1), engine.snapshot():
        pass


def test_the_next_writer_sees_the_commits_of_the_last(folder: Path, opened: Opened) -> None:
    one, two = opened(folder), opened(folder)
    for number, batch in enumerate(batches()):
        engine = (one, two)[number % 2]
        with engine.writing(1):
            engine.commit(batch)
    expected = expected_answers()[-1]
    for engine in (one, two):
        with engine.snapshot() as snapshot:
            assert answers(snapshot) == expected
    assert one.check() == []


def test_readers_in_threads_see_complete_commits_only(folder: Path) -> None:
    expected = expected_answers()
    engines.open(folder).close()
    with ThreadPoolExecutor(max_workers=3) as pool:
        watching = [pool.submit(watch, folder, expected) for _ in range(3)]
        resume(folder)
        assert min(reader.result() for reader in watching) > 0


def test_many_threads_share_one_engine(folder: Path, opened: Opened) -> None:
    expected = expected_answers()
    engine = opened(folder)
    failures: list[BaseException] = []

    def read() -> None:
        try:
            for _ in range(12):
                with engine.snapshot() as snapshot:
                    assert answers(snapshot) == expected[snapshot.generation]
        except BaseException as error:
            failures.append(error)

    threads = [Thread(target=read) for _ in range(6)]
    for thread in threads:
        thread.start()
    with engine.writing(1):
        for batch in batches():
            engine.commit(batch)
    for thread in threads:
        thread.join()
    assert not failures


def test_readers_in_processes_see_complete_commits_only(folder: Path, opened: Opened) -> None:
    engines.open(folder).close()
    command = [sys.executable, "-m", "tests.faults.committing", "watch", str(folder)]
    watching = [
        subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        for _ in range(2)
    ]
    engine = opened(folder)
    with engine.writing(1):
        for batch in batches():
            time.sleep(0.02)
            engine.commit(batch)
    for process in watching:
        out, error = process.communicate(timeout=60)
        assert process.returncode == 0, error.decode()
        assert int(out) > 0


def test_a_snapshot_that_opens_the_index_late_still_finds_deleted_passages(
    folder: Path, monkeypatch: pytest.MonkeyPatch, opened: Opened
) -> None:
    resume(folder)
    reading, writing = opened(folder), opened(folder)
    with reading.snapshot() as late, writing.writing(1):
        writing.commit(
            Batch(entries=(entry("x.md", "plum"),), removed=tuple(late.documents.files()))
        )
        monkeypatch.setattr(lexical_index, "GRACE_SECONDS", -1.0)
        writing.commit(Batch(entries=(entry("y.md", "plum"),)))
        assert answers(late) == expected_answers()[-1]
    with writing.snapshot() as snapshot:
        assert len(snapshot.lexical.search(["plum"], {"body": 1.0}, Filters(), 99)) == 2


def test_tombstones_are_purged_after_the_grace_period(
    folder: Path, monkeypatch: pytest.MonkeyPatch, opened: Opened
) -> None:
    monkeypatch.setattr(lexical_index, "GRACE_SECONDS", 0.0)
    engine = opened(folder)
    with engine.writing(1):
        for number in range(12):
            engine.commit(Batch(entries=(entry("a.md", *[f"version {number}"] * 5),)))
    import tantivy

    index = tantivy.Index.open(str(next((folder / "lexical").iterdir())))
    assert index.searcher().num_docs <= 10  # the five that exist and the five deleted last
    assert engine.check() == []


def commit_and_exit(folder: Path) -> None:
    """Commit in a process that exits without closing, so that the commit stays in the WAL of SQLite."""
    engine = engines.open(folder)
    with engine.writing(1):
        engine.commit(Batch(manifest={"key": "value"}))
        os._exit(0)


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="Windows has other rights")
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
@pytest.mark.parametrize(
    "harm", ["nothing", "lexical/*/meta.json", "vectors/*", "exit without closing"]
)
def test_a_read_only_folder_can_be_searched(harm: str) -> None:
    expected = expected_answers()
    with in_memory(Path(tempfile.gettempdir())) as place:
        resume(place / "another")
        check_snapshot(
            place / "another", expected
        )  # imports everything while this process still has the permission
        folder = place / "library"
        if os.geteuid() == 0:
            os.chown(place, 65534, 65534)

        def without_permission() -> None:
            if os.geteuid() == 0:
                os.setgid(65534)
                os.setuid(65534)
            os.environ["MARKLIGHT_DATA_DIR"] = str(place / "data")
            resume(folder)
            if harm == "exit without closing":
                os.waitpid(in_child(lambda: commit_and_exit(folder)), 0)
                assert (folder / "library.db-wal").stat().st_size
            for path in folder.glob(harm):
                path.unlink()
            for path in (place, folder, *folder.rglob("*")):
                path.chmod(0o555 if path.is_dir() else 0o444)
            engine = engines.open(folder)
            with engine.snapshot() as snapshot:
                assert snapshot.generation == len(expected) - (harm != "exit without closing")
                known = len(expected[-1]) - (harm == "vectors/*")  # type: ignore[arg-type]
                assert (
                    harm == "exit without closing"
                    or answers(snapshot)[:known] == expected[-1][:known]  # type: ignore[index]
                )
            with pytest.raises(StoreError), engine.writing(0.1):
                engine.commit(Batch(entries=(entry("a.md", "x"),)))
            engine.close()

        code = os.waitpid(in_child(without_permission), 0)[1]
        for path in (place, folder, *folder.rglob("*")):
            path.chmod(0o755)
        assert code == 0
