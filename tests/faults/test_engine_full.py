"""A full disk: one error, no loss of data, and commits work again when space is free."""

from __future__ import annotations

import errno
import os
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from marklight import engines
from marklight.errors import StoreError
from marklight.model import Batch
from marklight.ports import Engine, Snapshot
from marklight.query import Filters
from tests.contracts.builders import entry, vectors
from tests.faults.committing import answers, batches
from tests.oracle import MemoryEngine

ROOT = Path(__file__).parents[2]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Mount a file system of eight megabytes."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(folder)]
    if sys.platform != "linux" or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("only root may mount; the test with a limit on file sizes covers this")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def results(snapshot: Snapshot) -> set[str]:
    return {
        candidate.chunk_id
        for candidate in snapshot.lexical.search(["plum"], {"body": 1.0}, Filters(), 999)
    }


def large(number: int) -> Batch:
    """Return a batch of about two megabytes that do not compress well."""
    chance = random.Random(number)
    entries = [
        entry(f"large/{at}.md", *(chance.randbytes(900).hex() for _ in range(9)))
        for at in range(30)
    ]
    digests = [chunk.digest for item in entries for chunk in item.chunks]
    return Batch(entries=tuple(entries), vectors=vectors(digests, size=400, model="large"))


def commit_large(engine: Engine) -> None:
    with engine.writing(1):
        for number in range(99):
            engine.commit(large(number))


def fill(path: Path, spare: int) -> None:
    """Fill the disk but for this many bytes."""
    with path.open("wb", buffering=0) as file:
        try:
            while file.write(b"x" * 65536) == 65536:
                pass
        except OSError:
            pass
        file.truncate(max(0, file.tell() - spare))


@pytest.mark.parametrize("spare", [0, 40_000, 400_000, 800_000, 1_200_000, 1_600_000, 2_400_000])
def test_a_full_disk_loses_nothing(small_disk: Path, spare: int) -> None:
    engine = engines.open(small_disk / "library")
    steps = list(batches())[:12]
    memory = MemoryEngine()
    with engine.writing(1), memory.writing(1):
        for batch in steps[:6]:
            engine.commit(batch)
            memory.commit(batch)
    with memory.snapshot() as snapshot:
        before = answers(snapshot)
    fill(small_disk / "filler", spare)
    with pytest.raises(StoreError, match="No space left"):
        commit_large(engine)
    with engine.snapshot() as snapshot:
        seen = snapshot.generation
        assert answers(snapshot) == before or seen > 6
    engine.close()
    reopened = engines.open(small_disk / "library")
    with reopened.snapshot() as snapshot:
        assert snapshot.generation == seen
        assert answers(snapshot) == before or seen > 6
    (small_disk / "filler").unlink()
    gone = tuple(entry(f"large/{at}.md").document.id for at in range(30))
    with reopened.writing(1), memory.writing(1):
        reopened.commit(Batch(removed=gone))
        for batch in steps[6:]:
            reopened.commit(batch)
            memory.commit(batch)
    with reopened.snapshot() as snapshot, memory.snapshot() as oracle:
        assert [snapshot.documents.chunks_of(id) for id in sorted(snapshot.documents.files())] == [
            oracle.documents.chunks_of(id) for id in sorted(oracle.documents.files())
        ]
        assert results(snapshot) == results(oracle)
    # A file that an aborted commit began may be left; it is deleted.
    assert reopened.check() in ([], ["Deleted leftover files or folders of the index: 1"])
    assert reopened.check() == []
    reopened.close()


def test_an_index_on_a_full_disk_can_be_searched(small_disk: Path) -> None:
    engine = engines.open(small_disk / "library")
    with engine.writing(1):
        engine.commit(Batch(entries=(entry("a.md", "plum"),)))
    engine.close()
    fill(small_disk / "filler", 0)
    engine = engines.open(small_disk / "library")
    with engine.snapshot() as snapshot:
        assert len(results(snapshot)) == 1
    with pytest.raises(StoreError, match="No space left"):
        commit_large(engine)
    (small_disk / "filler").unlink()
    # An engine opened on a full disk sees commits of others as soon as space is free.
    other = engines.open(small_disk / "library")
    with other.writing(1):
        other.commit(Batch(entries=(entry("b.md", "plum"),)))
    with engine.snapshot() as snapshot:
        assert len(results(snapshot)) == 2
    other.close()
    engine.close()


LIMITED = """
import resource, sys
from pathlib import Path
from marklight import engines
from marklight.errors import StoreError
from tests.faults.committing import answers, batches
from tests.faults.test_engine_full import large

folder = Path(sys.argv[1])
engine = engines.open(folder)
with engine.writing(1):
    for batch in list(batches())[:6]:
        engine.commit(batch)
with engine.snapshot() as snapshot:
    before = answers(snapshot)
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), resource.RLIM_INFINITY))
try:
    with engine.writing(1):
        for number in range(99):
            engine.commit(large(number))
except StoreError as error:
    print(error)
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
engine.close()
engine = engines.open(folder)
with engine.snapshot() as snapshot:
    assert answers(snapshot) == before
with engine.writing(1):
    engine.commit(large(1))
with engine.snapshot() as snapshot:
    assert snapshot.status.counts("large").embedded == 270
assert engine.check() == []
"""


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no limit on file sizes")
@pytest.mark.parametrize("limit", [20_000, 300_000, 500_000])
def test_a_file_size_limit_loses_nothing(tmp_path: Path, limit: int) -> None:
    run = subprocess.run(
        [sys.executable, "-c", LIMITED, str(tmp_path / "library"), str(limit)],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout


def test_a_draft_that_cannot_be_deleted_does_not_hide_why_it_was_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(code: int) -> Callable[..., None]:
        def raise_error(*_: object, **__: object) -> None:
            raise OSError(code, os.strerror(code))

        return raise_error

    engine = engines.open(f"file:{tmp_path / 'index'}")
    monkeypatch.setattr("marklight.engines.embedded.store.replace_file", fail(errno.ENOSPC))
    monkeypatch.setattr("os.unlink", fail(errno.EIO))
    with pytest.raises(StoreError, match="No space left on the disk"), engine.writing(1):
        pass
    engine.close()
