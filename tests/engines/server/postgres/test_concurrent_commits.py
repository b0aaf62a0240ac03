"""Commits of several writers at once have the same effect as one after the other, in the order of their generations."""

from __future__ import annotations

import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from marklight import engines
from marklight.model import Batch, DocumentId, FileState
from tests.contracts.builders import commit, entry, link, names_of, vectors
from tests.contracts.test_engine_agreement import same_tables
from tests.oracle import MemoryEngine
from tests.servers.postgres import new_library

WRITERS, COMMITS = 4, 12
PATHS = [f"{folder}{name}.md" for folder in ("", "guide/") for name in "abcd"]
TEXTS = ["apple pear", "plum", "zebra run", "apple plum zebra"]


@pytest.fixture
def address() -> Iterator[str]:
    with new_library() as address:
        yield address


def random_batch(chance: random.Random) -> Batch:
    """Return a change of few documents that others change too, with texts, names and vectors that they share."""
    entries = [
        entry(
            path,
            *chance.sample(TEXTS, chance.randint(0, 3)),
            title=chance.choice(TEXTS),
            links=tuple(link(key) for key in chance.sample("abcdx", 2)),
            names=names_of(path, *chance.sample("xyz", 1)),
        )
        for path in chance.sample(PATHS, chance.randint(0, 3))
    ]
    removed = [DocumentId("docs", path) for path in chance.sample(PATHS, chance.randint(0, 2))]
    digests = [chunk.digest for each in entries for chunk in each.chunks]
    return Batch(
        entries=tuple(entries),
        removed=tuple(removed),
        touched=((DocumentId("docs", chance.choice(PATHS)), FileState(1, chance.randint(1, 9))),),
        vectors=vectors(digests) if digests and chance.random() < 0.5 else None,
        concepts=vectors(["apple", "pear"]) if chance.random() < 0.2 else None,
        communities={DocumentId("docs", path): at for at, path in enumerate(PATHS)}
        if chance.random() < 0.2
        else None,
        manifest={chance.choice("kl"): str(chance.randint(0, 9))},
    )


@pytest.mark.parametrize("seed", range(3))
def test_concurrent_commits_are_serialisable(address: str, seed: int) -> None:
    writers = [engines.open(address) for _ in range(WRITERS)]
    commit(writers[0], Batch(manifest={"k": "0"}))

    def write(number: int) -> list[tuple[int, Batch]]:
        chance = random.Random(f"{seed} {number}")
        done = []
        with writers[number].writing(60):
            for _ in range(COMMITS):
                batch = random_batch(chance)
                done.append((writers[number].commit(batch), batch))
        return done

    with ThreadPoolExecutor(WRITERS) as threads:
        done = [each for own in threads.map(write, range(WRITERS)) for each in own]
    done.sort(key=lambda each: each[0])
    assert [generation for generation, _ in done] == list(range(2, WRITERS * COMMITS + 2))
    memory = MemoryEngine()
    commit(memory, Batch(manifest={"k": "0"}))
    for generation, batch in done:
        assert commit(memory, batch) == generation
    with memory.snapshot() as expected, writers[0].snapshot() as actual:
        same_tables(expected, actual)
    assert memory.count_unused_vectors() == writers[0].count_unused_vectors()
    assert writers[0].check() == []
    for writer in writers:
        writer.close()
