"""An upgrade that is killed, watched, raced, or not allowed: the library is one format or the other, whole."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import pytest

from marklight import engines
from marklight.answer import Filters
from marklight.engines.embedded import upgrade
from marklight.engines.embedded.schema import VERSION
from marklight.engines.embedded.session import Session, Turns
from marklight.errors import StoreError
from marklight.model import Counts
from marklight.models.fake import FakeEmbedder
from marklight.ports import FIELD_BOOSTS, Reader
from marklight.text import words
from tests.engines.format2 import MODEL, format_of, lay_down
from tests.faults.committing import in_child, in_memory

ROOT = Path(__file__).parents[2]

pytestmark = [
    pytest.mark.skipif(sys.platform == "win32", reason="Windows has no kill -9 and other rights"),
    pytest.mark.filterwarnings("ignore:This process:DeprecationWarning"),
]


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    with in_memory(tmp_path) as folder:
        yield folder


def answers(reader: Reader) -> object:
    """What must not change, whatever happens to the format."""
    question = FakeEmbedder().embed_query("undo a deployment")
    return (
        reader.files(),
        reader.models(),
        [each.chunk for each in reader.keyword(words("token"), FIELD_BOOSTS, Filters(), 9)],
        reader.semantic(question, MODEL, Filters(), 9),
    )


def expected(folder: Path) -> object:
    engine = engines.open(folder)
    with engine.snapshot() as reader:
        told = answers(reader)
    engine.close()
    return told


@contextmanager
def dying_at(call_number: int) -> Iterator[None]:
    """The process dies instead of its so-manieth statement of an upgrade."""
    calls = count(1)
    real, real_upgrade = Turns.__enter__, upgrade.upgrade

    def enter(self: Turns) -> None:
        if next(calls) == call_number:
            os.kill(os.getpid(), signal.SIGKILL)
        real(self)

    def doomed(session: Session) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Turns, "__enter__", enter)
            real_upgrade(session)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("marklight.engines.embedded.store.upgrade", doomed)
        yield


def upgrade_in_child(folder: Path, call_number: int) -> bool:
    """Whether it lived."""

    def work() -> None:
        with dying_at(call_number), engines.open(folder).writing(1):
            os._exit(0)

    return not os.WIFSIGNALED(os.waitpid(in_child(work), 0)[1])


def test_a_death_at_any_statement_leaves_one_format_whole(place: Path) -> None:
    told = expected(lay_down(place / "told"))
    deaths = 0
    for number in count(1):
        folder = lay_down(place / str(number))
        if upgrade_in_child(folder, number):
            break
        deaths += 1
        connection = sqlite3.connect(folder / "library.db")
        format = connection.execute("PRAGMA user_version").fetchone()[0]
        names = {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert connection.execute("SELECT count(*) FROM vectors").fetchone() == (5,)
        connection.close()
        assert format == 2
        assert not names & {"callings", "concepts", "concept_vectors", "edges"}
    # Statements that change the tables, fill them and note the format; and then it lived.
    assert deaths > 20
    assert format_of(folder) == VERSION
    for each in (place / "7", place / str(deaths), folder):
        assert expected(each) == told
        engine = engines.open(each)
        with engine.writing(1), engine.snapshot() as reader:
            assert reader.counts(MODEL) == Counts(4, 5, 5, 1, 5, MODEL)
            assert answers(reader) == told
        engine.close()


RACE = """
import sys
from marklight import engines
from marklight.answer import Filters
engine = engines.open(sys.argv[1])
seen = set()
while 5 not in seen:
    with engine.snapshot() as reader:
        counts = reader.counts("fake-64")
        assert (counts.documents, counts.chunks, counts.embedded) == (4, 5, 5)
        assert len(reader.named("scaling", Filters(), 9)) == 1
        assert bool(reader.unembedded_concepts("fake-64", 9)) == (counts.generation == 5)
        seen.add(counts.generation)
    if sys.argv[2] == "write":
        with engine.writing(30):
            pass
assert seen <= {4, 5}
engine.close()
"""


def test_processes_that_come_at_once_upgrade_once_and_see_one_format_or_the_other(
    place: Path,
) -> None:
    folder = lay_down(place / "library")
    racing = [
        subprocess.Popen(
            [sys.executable, "-c", RACE, str(folder), way],
            cwd=ROOT,
            stderr=subprocess.PIPE,
            text=True,
        )
        for way in ("read", "write", "write", "read")
    ]
    errors = [each.communicate(timeout=120)[1] for each in racing]
    assert [each.returncode for each in racing] == [0, 0, 0, 0], errors
    assert format_of(folder) == VERSION


def test_a_folder_that_may_not_be_written_is_read_in_its_old_format() -> None:
    with in_memory(Path(tempfile.gettempdir())) as place:
        told = expected(lay_down(place / "other"))
        folder = lay_down(place / "library")
        for path in (place, folder, *folder.rglob("*")):
            path.chmod(0o555 if path.is_dir() else 0o444)

        def powerless() -> None:
            if os.geteuid() == 0:
                os.setgid(65534)
                os.setuid(65534)
            engine = engines.open(folder)
            with engine.snapshot() as reader:
                assert answers(reader) == told
                assert reader.generation == 4
            with pytest.raises(StoreError), engine.writing(0.1):
                pass
            engine.close()

        code = os.waitpid(in_child(powerless), 0)[1]
        for path in (place, folder, *folder.rglob("*")):
            path.chmod(0o755)
        assert code == 0
        assert format_of(folder) == 2
