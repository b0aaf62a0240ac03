"""kill -9 of a committing process, at random times and at each critical point."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from marklight import engines
from marklight.batch import Batch
from marklight.engines.embedded import lexical_index, lexical_writer, session, vector_files
from tests.contracts.builders import entry
from tests.faults.committing import answers, batches, in_child, in_memory, resume
from tests.oracle import MemoryEngine

ROOT = Path(__file__).parents[2]


pytestmark = [
    pytest.mark.skipif(sys.platform == "win32", reason="Windows has no kill -9"),
    pytest.mark.filterwarnings("ignore:This process:DeprecationWarning"),
]


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    with in_memory(tmp_path) as place:
        yield place / "library"


def test_a_run_that_is_killed_repeatedly_ends_like_an_undisturbed_one(folder: Path) -> None:
    run = subprocess.run(
        [sys.executable, "-m", "tests.faults.committing", folder, "30", "20261115"],
        cwd=ROOT,
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout.startswith("30 kills")


def kill_self(*_: object, **__: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def killing(
    before: bool, when: Callable[[object], bool] = lambda _: True, call_number: int = 3
) -> Callable[..., object]:
    """Wrap a function so that the process is killed before or after one of its calls."""
    calls = iter(range(1, 99))

    def wrap(real: Callable[..., object]) -> Callable[..., object]:
        def call(*args: object, **named: object) -> object:
            fatal = when(args) and next(calls) == call_number
            if fatal and before:
                kill_self()
            result = real(*args, **named)
            if fatal:
                kill_self()
            return result

        return call

    return wrap


def is_commit(args: object) -> bool:
    return isinstance(args, tuple) and len(args) > 1 and args[1] == "COMMIT"


CRITICAL_POINTS = {
    "before passages are added": (lexical_writer, "add", killing(before=True)),
    "after the lexical index is committed": (lexical_writer, "add", killing(before=False)),
    "after the vector file is written": (vector_files.VectorFile, "append", killing(before=False)),
    "before the tables are committed": (session.SqliteSession, "run", killing(True, is_commit)),
    "after the tables are committed": (session.SqliteSession, "run", killing(False, is_commit)),
    "before merges end": (lexical_writer, "finish", killing(before=True, call_number=1)),
}


@pytest.mark.parametrize("point", CRITICAL_POINTS)
def test_a_kill_at_a_critical_point_loses_nothing(
    point: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner, name, wrap = CRITICAL_POINTS[point]

    def doomed() -> None:
        monkeypatch.setattr(owner, name, wrap(getattr(owner, name)))
        resume(folder)

    child = in_child(doomed)
    assert os.WIFSIGNALED(os.waitpid(child, 0)[1])
    assert_complete(folder)


@pytest.mark.parametrize("name, last_call", [("rename", 1), ("rmtree", 0)])
def test_a_kill_while_the_lexical_index_is_rebuilt_loses_nothing(
    name: str, last_call: int, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    resume(folder)
    (folder / "words" / "meta.json").write_text("{}")

    def doomed() -> None:
        calls = iter(range(9))
        owner = os if name == "rename" else shutil
        real = getattr(owner, name)
        monkeypatch.setattr(
            owner, name, lambda *a, **k: kill_self() if next(calls) == last_call else real(*a, **k)
        )
        engine = engines.open(folder)
        with engine.snapshot() as snapshot:
            answers(snapshot)

    child = in_child(doomed)
    assert os.WIFSIGNALED(os.waitpid(child, 0)[1])
    assert_complete(folder)


COMPACTION = {
    "before the stamp is written": (
        lexical_index.LexicalIndex,
        "write_stamp",
        killing(True, call_number=1),
    ),
    "after the stamp is written": (
        lexical_index.LexicalIndex,
        "write_stamp",
        killing(False, call_number=1),
    ),
    "after the lexical index is committed": (
        lexical_index.LexicalIndex,
        "opstamp",
        killing(True, call_number=1),
    ),
    "before the stamp is completed": (
        lexical_index.LexicalIndex,
        "write_stamp",
        killing(True, call_number=2),
    ),
}


@pytest.mark.parametrize("point", COMPACTION)
def test_a_kill_during_a_compaction_loses_nothing(
    point: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    resume(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lexical_index.LexicalIndex, "needs_compaction", lambda *_: False)
        engine = engines.open(folder)
        with engine.writing(1):
            engine.commit(Batch(entries=(entry("x.md", "durian"),)))
            engine.commit(Batch(removed=(entry("x.md").document.id,)))
        engine.close()
    owner, name, wrap = COMPACTION[point]

    def doomed() -> None:
        monkeypatch.setattr(owner, name, wrap(getattr(owner, name)))
        monkeypatch.setattr(lexical_index.LexicalIndex, "needs_compaction", lambda *_: True)
        with engines.open(folder).writing(1):
            pass

    child = in_child(doomed)
    assert os.WIFSIGNALED(os.waitpid(child, 0)[1])
    engine = engines.open(folder)
    with engine.snapshot() as snapshot:
        content = answers(snapshot)
    assert engine.check() == []
    with engine.snapshot() as snapshot:
        assert answers(snapshot) == content
    engine.close()
    memory = MemoryEngine()
    with memory.writing(0):
        for batch in batches():
            memory.commit(batch)
    with memory.snapshot() as oracle:
        assert content[2:] == answers(oracle)[2:]  # type: ignore[index]


def assert_complete(folder: Path) -> None:
    """Check that the last commit is readable, and that the rest can be committed with the expected result."""
    memory = MemoryEngine()
    with memory.writing(0):
        for batch in batches():
            memory.commit(batch)
    engine = engines.open(folder)
    with engine.snapshot() as snapshot:
        done = snapshot.generation
        answers(snapshot)
    engine.close()
    assert 0 <= done <= memory.state.generation
    resume(folder)
    engine = engines.open(folder)
    with engine.snapshot() as snapshot, memory.snapshot() as oracle:
        assert answers(snapshot) == answers(oracle)
    # Files that a kill left are deleted, and nothing else is reported.
    assert engine.check() in ([], ["Deleted leftover files or folders of the index: 1"])
    assert engine.check() == []
    engine.close()
