"""Workers that embed the queued passages of a shared index: real server, real processes, kills, failures and restarts."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from threading import Lock, Thread
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from marklight import Library
from marklight.engines.server.postgres.engine import PostgresEngine
from marklight.errors import ModelServerError
from marklight.library import shared_index
from marklight.library.shared_index import NOT_FINITE, EmbeddingWorker
from marklight.models.fake import FakeEmbedder
from marklight.surfaces.cli import run
from tests.making import library, write
from tests.servers.postgres import new_library, new_server
from tests.waiting import PATIENCE_SECONDS, until

if TYPE_CHECKING:
    from marklight.model import Matrix

MODEL = FakeEmbedder().fingerprint
FILES = {
    f"note-{number}.md": f"# Note {number}\n\nIt is about thing{number}.\n" for number in range(12)
}
PROGRAM = """
import json, sys, time
from marklight.engines.server.postgres.jobs import JobQueue
from marklight.models.fake import FakeEmbedder
from marklight.surfaces.cli import run
embed = FakeEmbedder.embed_passages
def slowly(self, texts):
    print("embedding", flush=True)
    time.sleep(float(sys.argv[1]))
    return embed(self, texts)
FakeEmbedder.embed_passages = slowly
for name, value in json.loads(sys.argv[2]).items():
    setattr(JobQueue, name, value)
sys.exit(run(sys.argv[3:]))
"""
"""`marklight` with a model that takes a number of seconds for each batch, and a queue with other attributes."""


def open_shared(folder: Path, address: str, **queue: Any) -> Library:
    """Open a library whose queue has these attributes."""
    shared = library(folder, engine=address, queue={"embed": "workers"})
    assert isinstance(shared.engine, PostgresEngine)
    for name, value in queue.items():
        setattr(shared.engine.queue, name, value)
    return shared


@pytest.fixture(autouse=True)
def _poll_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_index, "POLL_SECONDS", 0.05)


@pytest.fixture
def address() -> Iterator[str]:
    with new_library() as made:
        yield made


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write(tmp_path / "docs", FILES)


def started(folder: Path, address: str, seconds: float, **queue: Any) -> subprocess.Popen[str]:
    """Start a worker process whose model is slow; return once it has texts in hand."""
    settings = {"model.name": "fake", "engine": address, "queue.embed": "workers"}
    options = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
    process = subprocess.Popen(
        [
            sys.executable,
            "-c",
            PROGRAM,
            str(seconds),
            json.dumps(queue),
            "worker",
            str(folder),
            *options,
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout
    assert process.stdout.readline().startswith("embedding for")
    assert process.stdout.readline() == "embedding\n"
    return process


def drain(shared: Library) -> EmbeddingWorker:
    worker = EmbeddingWorker(shared, lambda notice: None)
    worker.run(drain=True)
    return worker


def using(shared: Library, embed: Callable[[Sequence[str]], Matrix]) -> Library:
    """Let a library embed by a function."""

    class Model(FakeEmbedder):
        def embed_passages(self, texts: Sequence[str]) -> Matrix:
            return embed(texts)

    shared.models.__dict__["embedder"] = Model()
    return shared


def vectors_of(opened: Library) -> dict[str, bytes]:
    """Return the vectors of all passages by passage."""
    with opened.engine.snapshot() as snapshot:
        ids = [
            chunk.id
            for document in snapshot.documents.files()
            for chunk in snapshot.documents.chunks_of(document)
        ]
        found = snapshot.vectors.get(MODEL, ids)
        assert len(found) == len(ids)
        return {id: np.asarray(vector).tobytes() for id, vector in found.items()}


def equals_a_rebuild(shared: Library, folder: Path) -> None:
    """Compare the vectors with those of an index in files that was built in one go, which are quantised to 8 bits."""
    with library(folder) as alone:
        alone.index()
        expected = vectors_of(alone)
    vectors = vectors_of(shared)
    assert vectors.keys() == expected.keys()
    for id, stored in vectors.items():
        one, other = (np.frombuffer(data, np.float32) for data in (stored, expected[id]))
        assert np.allclose(one, other, atol=0.01)


def test_a_worker_that_is_killed_with_texts_in_hand_loses_nothing(
    folder: Path, address: str
) -> None:
    with open_shared(folder, address, lease_seconds=4, batch_passages=5) as shared:
        shared.index()
        process = started(folder, address, 60, lease_seconds=4, batch_passages=5)
        assert shared.status()["queue"]["leased"] == 5
        process.kill()
        process.communicate()
        assert drain(shared).embedded == 7  # the others are still leased
        time.sleep(4.1)
        assert drain(shared).embedded == 5
        status = shared.status()
        assert (status["pending"], status["queue"]["failed"]) == (0, 0)
        equals_a_rebuild(shared, folder)


def test_a_slow_worker_keeps_its_texts(folder: Path, address: str) -> None:
    with open_shared(folder, address, lease_seconds=1) as shared:
        shared.index()
        process = started(folder, address, 2.5, lease_seconds=1)
        time.sleep(1.5)
        assert drain(shared).embedded == 0
        process.terminate()
        assert process.wait(PATIENCE_SECONDS) == 0
        process.communicate()
        assert shared.status()["pending"] == 0


def test_a_worker_that_is_stopped_finishes_its_texts(folder: Path, address: str) -> None:
    with open_shared(folder, address) as shared:
        shared.index()
        process = started(folder, address, 1, batch_passages=4)
        process.send_signal(signal.SIGTERM)
        printed, errors = process.communicate(timeout=PATIENCE_SECONDS)
        assert (process.returncode, printed, errors) == (0, "embedded: 4\n", "")
        queue = shared.status()["queue"]
        assert (queue["waiting"], queue["leased"], queue["workers"]) == (8, 0, 0)


def test_the_second_signal_stops_a_worker_at_once_and_returns_its_texts(
    folder: Path, address: str
) -> None:
    with open_shared(folder, address) as shared:
        shared.index()
        process = started(folder, address, 60)
        process.send_signal(signal.SIGTERM)
        time.sleep(0.3)
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=PATIENCE_SECONDS)
        assert process.returncode != 0
        assert drain(shared).embedded == 12


def test_several_workers_never_embed_the_same_text_at_once(folder: Path, address: str) -> None:
    for number in range(100):
        (folder / f"more-{number}.md").write_text(f"# More {number}\n\nWord{number}.\n")
    counts: dict[str, int] = {}
    lock = Lock()

    def embed(texts: Sequence[str]) -> Matrix:
        with lock:
            for text in texts:
                counts[text] = counts.get(text, 0) + 1
        time.sleep(0.01)
        return FakeEmbedder().embed_passages(texts)

    with open_shared(folder, address) as indexing:
        indexing.index()
        opened = [using(open_shared(folder, address, batch_passages=4), embed) for _ in range(4)]
        threads = [Thread(target=drain, args=(shared,)) for shared in opened]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for shared in opened:
            shared.close()
        assert indexing.status()["pending"] == 0
    passages = {text: count for text, count in counts.items() if "\n" in text or "ote" in text}
    assert len(passages) >= 112
    assert set(passages.values()) == {1}


def test_a_text_that_the_model_cannot_embed_is_set_aside_and_shown(
    folder: Path, address: str
) -> None:
    def embed(texts: Sequence[str]) -> Matrix:
        if any("thing3." in text for text in texts):
            raise ValueError("a text like no other")
        return FakeEmbedder().embed_passages(texts)

    with using(open_shared(folder, address, attempts=2), embed) as shared:
        shared.index()
        drain(shared)
        status = shared.status()
        assert status["pending"] == 1
        (failure,) = status["queue"]["failures"]
        assert failure["path"] == "note-3.md"
        assert failure["reason"] == "ValueError: a text like no other"
        assert shared.search("thing3", mode="keyword").hits
    assert run_worker(folder, address, "--retry-failed") == 0
    with open_shared(folder, address) as shared:
        assert shared.status()["pending"] == 0


def run_worker(folder: Path, address: str, *options: str) -> int:
    settings = ("model.name=fake", f"engine={address}", "queue.embed=workers")
    assigned = [word for setting in settings for word in ("--set", setting)]
    return run(["worker", str(folder), "--drain", *options, *assigned])


def test_a_vector_with_numbers_that_are_not_finite_is_not_stored(
    folder: Path, address: str
) -> None:
    def embed(texts: Sequence[str]) -> Matrix:
        matrix = FakeEmbedder().embed_passages(texts)
        matrix[["thing5." in text for text in texts]] = np.nan
        return matrix

    with using(open_shared(folder, address), embed) as shared:
        shared.index()
        drain(shared)
        assert [each["reason"] for each in shared.status()["queue"]["failures"]] == [NOT_FINITE]
        assert shared.status()["embedded"] == 11


def test_texts_do_not_fail_while_the_server_of_the_model_is_away(
    folder: Path, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("marklight.library.shared_index.RETRY_SECONDS", 0.01)
    calls = 0

    def embed(texts: Sequence[str]) -> Matrix:
        nonlocal calls
        calls += 1
        if calls <= 10:
            raise ModelServerError("The server is away")
        return FakeEmbedder().embed_passages(texts)

    notices: list[str] = []
    with using(open_shared(folder, address, attempts=2), embed) as shared:
        shared.index()
        worker = EmbeddingWorker(shared, notices.append)
        thread = Thread(target=worker.run)
        thread.start()
        until(lambda: shared.status()["pending"] == 0)
        worker.stop()
        thread.join()
        assert shared.status()["queue"]["failed"] == 0
    assert notices == ["The server is away. Trying again"]


def test_a_worker_waits_for_a_database_that_restarts(folder: Path) -> None:
    with new_server() as server, open_shared(folder, server.address(library="l")) as shared:
        shared.index()
        notices: list[str] = []
        worker = EmbeddingWorker(shared, notices.append)
        thread = Thread(target=worker.run)
        thread.start()
        until(lambda: shared.status()["pending"] == 0)
        server.kill()
        until(lambda: notices)
        server.start()
        (folder / "late.md").write_text("# Late\n\nAfter the restart.\n")
        until(lambda: _indexed(shared) and shared.status()["pending"] == 0)
        worker.stop()
        thread.join()


def _indexed(shared: Library) -> bool:
    from marklight.errors import StoreError

    try:
        shared.index()
    except StoreError:
        return False
    return True


def test_passages_over_the_token_limit_are_cut_by_the_worker(folder: Path, address: str) -> None:
    (folder / "long.md").write_text("# Long\n\n" + "Donaudampfschifffahrtsgesellschaft " * 400)
    with open_shared(folder, address) as shared:
        shared.index()
        drain(shared)
        status = shared.status()
        assert (status["pending"], status["queue"]["failed"]) == (0, 0)
        equals_a_rebuild(shared, folder)


def test_deleted_vectors_are_queued_again(folder: Path, address: str) -> None:
    with open_shared(folder, address) as shared:
        shared.index()
        drain(shared)
        with shared.engine.writing(5):
            shared.engine.clean(keep=())
        assert shared.status()["embedded"] == 0
        drain(shared)
        assert shared.status()["pending"] == 0


def test_a_library_without_a_queue_has_no_workers(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["worker", str(folder), "--set", "model.name=fake"]) == 2
    assert "has no queue" in capsys.readouterr().err


def test_a_worker_needs_a_model(
    folder: Path, address: str, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--set", "model.name=none", "--set", f"engine={address}"]
    assert run(["worker", str(folder), *options]) == 2
    assert "needs a model" in capsys.readouterr().err


def test_workers_replace_documents_of_other_chunk_settings(folder: Path, address: str) -> None:
    small = {"max_chars": 100, "min_chars": 10}
    for name in FILES:
        (folder / name).write_text(
            "# Long\n\n" + "\n\n".join(f"{name} part {at} " * 4 for at in range(5))
        )
    with open_shared(folder, address) as shared:
        shared.index()
        drain(shared)
        old = vectors_of(shared)
    queue = {"embed": "workers"}
    with library(folder, engine=address, queue=queue, chunk=small) as shared:
        shared.index()
        assert shared.status()["outdated"] == len(FILES)
        assert vectors_of(shared) == old, (
            "the old passages answer until a worker has embedded the new ones"
        )
        with open_shared(folder, address) as other:
            drain(other)  # a worker with the old settings leaves them alone
        assert vectors_of(shared) == old
        drain(shared)
        assert "outdated" not in shared.status()
        assert shared.status()["pending"] == 0
        assert len(vectors_of(shared)) > len(old)
        shared.index()
        assert not shared.ingest.outdated
