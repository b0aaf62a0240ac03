"""Addresses of engines, and how little it takes to open one."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from marklight import engines
from marklight.errors import SettingsError, StoreError
from marklight.model import Batch
from tests.contracts.builders import embedding, entry

LOOK = """
import json, sys
from marklight import engines
engine = engines.open(sys.argv[1])
with engine.snapshot() as reader:
    reader.counts("m"), reader.files(), reader.failures(), reader.manifest(), reader.models()
with engine.writing(1), engine.snapshot() as reader:
    reader.unembedded("m", 5)
engine.waste(), engine.sizes(), engine.close()
print(json.dumps(sorted({name.partition(".")[0] for name in sys.modules})))
"""


def test_memory_and_folders_are_addresses(tmp_path: Path) -> None:
    assert engines.open("memory:").describe() == "memory:"
    for address in (f"file:{tmp_path}/a", tmp_path / "a", str(tmp_path / "a")):
        engine = engines.open(address)
        assert engine.describe() == f"file:{tmp_path}/a"
        engine.close()


def test_an_engine_that_is_not_there_yet_is_named() -> None:
    with pytest.raises(SettingsError, match="postgresql"):
        engines.open("postgresql://localhost/x")


def test_a_library_ignores_itself_in_git(tmp_path: Path) -> None:
    engines.open(tmp_path / "library").close()
    assert (tmp_path / "library" / ".gitignore").read_text() == "*\n"


def test_a_look_at_the_state_loads_nothing_heavy(tmp_path: Path) -> None:
    engine = engines.open(tmp_path)
    one = entry("a.md", "words")
    with engine.writing(1):
        engine.commit(Batch(entries=(one,)))
        engine.commit(embedding(one))
    engine.close()
    run = subprocess.run(
        [sys.executable, "-c", LOOK, str(tmp_path)], capture_output=True, check=True, text=True
    )
    assert not {"tantivy", "numpy", "filelock", "Stemmer"} & set(json.loads(run.stdout))


def test_a_file_in_the_way_is_an_error_that_says_so(tmp_path: Path) -> None:
    (tmp_path / "library").write_text("in the way")
    with pytest.raises(StoreError, match="library"):
        engines.open(tmp_path / "library")


def test_sizes_are_told_by_part(tmp_path: Path) -> None:
    engine = engines.open(tmp_path)
    one = entry("a.md", "words")
    with engine.writing(1):
        engine.commit(Batch(entries=(one,)))
        engine.commit(embedding(one))
    sizes = engine.sizes()
    assert set(sizes) == {"library", "words", "vectors"}
    assert sizes["vectors"] == 256 + 16 * 4
    engine.close()
