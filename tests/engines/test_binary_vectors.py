"""Binary vectors: candidates by Hamming distance, and the file with the sign bits."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from marklight.engines.embedded.engine import EmbeddedEngine
from marklight.engines.embedded.vector_files import HEADER_BYTES
from marklight.model import Batch, Entry, Vectors
from marklight.ports import ScoredChunk
from marklight.query import Filters
from marklight.vector_math import MIN_CANDIDATES, hamming_candidates, sign_bits
from tests.contracts.builders import entry

SIZE = 384
ALWAYS, NEVER = 0, 10**9


def made(count: int, start: int = 0, part: str = "a") -> Entry:
    return entry(f"{part}/{start}.md", *(f"text {start + at}" for at in range(count)))


def near_topics(count: int, seed: int = 0) -> np.ndarray:
    """Return vectors that are distributed like those of texts: clustered around a few hundred topics."""
    chance = np.random.default_rng(seed)
    topics = np.random.default_rng(99).normal(size=(300, SIZE))
    rows = topics[chance.integers(0, 300, count)] + 0.8 * chance.normal(size=(count, SIZE))
    return rows.astype(np.float32)


def put(engine: EmbeddedEngine, *entries: Entry, seed: int = 0) -> None:
    digests = [chunk.digest for each in entries for chunk in each.chunks]
    with engine.writing(1):
        engine.commit(Batch(entries=entries))
        engine.commit(Batch(vectors=Vectors("m", tuple(digests), near_topics(len(digests), seed))))


def bits_file(folder: Path) -> Path:
    (path,) = (folder / "vectors").glob("*.bits")
    return path


def ask(
    engine: EmbeddedEngine, question: np.ndarray, query: Filters, limit: int
) -> list[ScoredChunk]:
    with engine.snapshot() as snapshot:
        return snapshot.vectors.search(question, "m", query, limit)


def test_vectors_are_quantised_to_sign_bits() -> None:
    rows = np.full((2, 66), -1.0, dtype=np.float32)
    rows[0, [0, 1, 65]] = 0.5  # 11000000 in the first byte, 01000000 in the ninth
    assert sign_bits(rows).tolist() == [[0b11000000, 0b01000000], [0, 0]]


def test_candidates_have_the_smallest_distances_with_all_ties() -> None:
    rows = np.full((MIN_CANDIDATES + 50, 64), -1.0, dtype=np.float32)
    question = np.full(64, -1.0, dtype=np.float32)
    rows[: MIN_CANDIDATES - 5, 0] = 1  # differ in one sign
    rows[MIN_CANDIDATES - 5 : MIN_CANDIDATES + 5, :2] = (
        1  # in two: the last that are needed, and as many again
    )
    rows[MIN_CANDIDATES + 5 :, :3] = 1
    assert hamming_candidates(sign_bits(rows), question, 1).tolist() == list(
        range(MIN_CANDIDATES + 5)
    )
    some = np.arange(4, MIN_CANDIDATES + 50)
    assert hamming_candidates(sign_bits(rows), question, 1, some).tolist() == list(
        range(4, MIN_CANDIDATES + 5)
    )


@pytest.mark.parametrize("query", [Filters(), Filters(paths=("a/**",))])
def test_nearly_all_of_the_best_are_found_with_their_exact_scores(
    tmp_path: Path, query: Filters
) -> None:
    put(EmbeddedEngine(tmp_path, ALWAYS), made(9000, part="a"), made(3000, 9000, part="b"))
    engine, exact = EmbeddedEngine(tmp_path, ALWAYS), EmbeddedEngine(tmp_path, NEVER)
    shares = []
    for question in near_topics(40, seed=7):
        best = dict(ask(exact, question, query, 20))
        found = dict(ask(engine, question, query, 20))
        assert len(found) == len(best) == 20
        both = best.keys() & found.keys()
        assert [found[id] for id in both] == pytest.approx([best[id] for id in both], abs=1e-6)
        shares.append(len(both) / 20)
    assert np.mean(shares) >= 0.98
    assert bits_file(tmp_path).exists()


def test_few_vectors_need_no_binary_vectors(tmp_path: Path) -> None:
    engine = EmbeddedEngine(tmp_path, max_exact_vectors=10)
    put(engine, made(10))
    assert not list((tmp_path / "vectors").glob("*.bits"))
    put(engine, made(1, 10))
    assert bits_file(tmp_path).stat().st_size == HEADER_BYTES + 11 * SIZE // 8


def test_new_vectors_are_appended_and_nothing_else_is_written(tmp_path: Path) -> None:
    engine = EmbeddedEngine(tmp_path, ALWAYS)
    put(engine, made(300))
    before, file = bits_file(tmp_path).read_bytes(), bits_file(tmp_path).stat().st_ino
    put(engine, made(20, 300), seed=1)
    after = bits_file(tmp_path)
    assert after.stat().st_ino == file
    assert after.read_bytes()[HEADER_BYTES : len(before)] == before[HEADER_BYTES:]
    assert after.stat().st_size == len(before) + 20 * SIZE // 8


@pytest.mark.parametrize("harm", ["missing", "short", "foreign", "wrong"])
def test_damaged_binary_vectors_are_rebuilt(tmp_path: Path, harm: str) -> None:
    engine = EmbeddedEngine(tmp_path, ALWAYS)
    put(engine, made(3 * MIN_CANDIDATES))
    right, path = bits_file(tmp_path).read_bytes(), bits_file(tmp_path)
    path.unlink()
    if harm == "short":
        path.write_bytes(right[:-1])
    elif harm == "foreign":
        path.write_bytes(right.replace(b"marklight", b"something"))
    elif harm == "wrong":
        path.write_bytes(right[:-8] + b"\x00" * 8)
    fresh = EmbeddedEngine(tmp_path, ALWAYS)
    if harm == "wrong":
        # Of the right length and with the right head: only a look at everything finds it.
        assert fresh.check() == ["The binary vectors of m were damaged and have been rebuilt"]
    else:
        assert len(ask(fresh, near_topics(1)[0], Filters(), 5)) == 5
    assert path.read_bytes()[HEADER_BYTES:] == right[HEADER_BYTES:]
    assert fresh.check() == []


def test_damaged_binary_vectors_are_not_used_while_another_process_writes(tmp_path: Path) -> None:
    put(EmbeddedEngine(tmp_path, ALWAYS), made(3 * MIN_CANDIDATES))
    bits_file(tmp_path).unlink()
    question = near_topics(1, seed=3)[0]
    best = ask(EmbeddedEngine(tmp_path, NEVER), question, Filters(), 20)
    with EmbeddedEngine(tmp_path).writing(1):
        results = ask(EmbeddedEngine(tmp_path, ALWAYS), question, Filters(), 20)
        assert [item.chunk_id for item in results] == [item.chunk_id for item in best]
    assert not list((tmp_path / "vectors").glob("*.bits"))


def test_binary_vectors_are_deleted_with_their_vector_file(tmp_path: Path) -> None:
    engine = EmbeddedEngine(tmp_path, ALWAYS)
    put(engine, made(30), made(100, 30, part="b"))
    old = bits_file(tmp_path)
    with engine.writing(1):
        engine.commit(Batch(removed=(made(100, 30, part="b").document.id,)))
    assert engine.clean(["m"]) == 100
    assert not old.exists()
    assert len(ask(engine, near_topics(1)[0], Filters(), 50)) == 30
    assert bits_file(tmp_path).stat().st_size == HEADER_BYTES + 30 * SIZE // 8
    assert engine.clean([]) == 30
    assert not list((tmp_path / "vectors").iterdir())
