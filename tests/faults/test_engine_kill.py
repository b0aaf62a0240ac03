"""kill -9 of a committing process, at random times and at each critical point."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from marklight import engines
from marklight.engines.embedded import lexical_index, lexical_writer, session, vector_files
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
    "while the lexical index is committed": (lexical_writer, "add", killing(before=False)),
    "after the lexical index is committed": (lexical_writer, "make_private", killing(before=True)),
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


REBUILD = {
    "before the folder is made": (
        lexical_writer,
        "make_private_folder",
        killing(True, call_number=1),
    ),
    "before the stamp is written": (
        lexical_index.LexicalIndex,
        "write_stamp",
        killing(True, call_number=1),
    ),
    "before the tables name it": (session.SqliteSession, "run", killing(True, is_commit, 1)),
    "after the tables name it": (session.SqliteSession, "run", killing(False, is_commit, 1)),
    "before the old one is deleted": (lexical_writer, "remove", killing(True, call_number=1)),
}


@pytest.mark.parametrize("harm", ["damaged", "deleted passages"])
@pytest.mark.parametrize("point", REBUILD)
def test_a_kill_while_the_lexical_index_is_rebuilt_loses_nothing(
    point: str, harm: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    resume(folder)
    if harm == "damaged":
        next(folder.glob("lexical/*/meta.json")).write_text("{}")
    owner, name, wrap = REBUILD[point]

    def doomed() -> None:
        monkeypatch.setattr(owner, name, wrap(getattr(owner, name)))
        engine = engines.open(folder)
        if harm == "damaged":
            with engine.snapshot() as snapshot:
                answers(snapshot)
        else:
            monkeypatch.setattr(lexical_index.LexicalIndex, "has_many_deleted", lambda *_: True)
            with engine.writing(1):
                pass

    child = in_child(doomed)
    assert os.WIFSIGNALED(os.waitpid(child, 0)[1])
    assert_complete(folder)


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
