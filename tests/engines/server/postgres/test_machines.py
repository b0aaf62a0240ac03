"""Several machines share a library: each has its own file states and failures of the same documents."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from marklight.engines import ServerSettings, parse_address
from marklight.engines.server.postgres.engine import PostgresEngine
from marklight.model import Batch, DocumentId, Failure, FileState
from marklight.ports import Engine
from marklight.query import Filters
from tests.contracts.builders import commit, entry, id_of, put
from tests.oracle import MemoryEngine
from tests.servers.postgres import PostgresServer, new_library

A = id_of("a.md")


@pytest.fixture
def machines(server: PostgresServer) -> Iterator[list[PostgresEngine]]:
    with new_library(server) as address:
        parsed = parse_address(address)
        opened = [PostgresEngine(parsed, ServerSettings(machine=name)) for name in ("one", "two")]
        yield opened
        for engine in opened:
            engine.close()


def state(engine: Engine) -> FileState:
    with engine.snapshot() as snapshot:
        (indexed,) = snapshot.documents.files_of([A]).values()
        assert snapshot.documents.files() == {A: indexed}
        return indexed.file


def modified(engine: Engine) -> int:
    with engine.snapshot() as snapshot:
        return snapshot.documents.modified_times([A])[A]


def test_a_document_of_another_machine_has_a_state_that_equals_no_stat(
    machines: list[PostgresEngine],
) -> None:
    one, two = machines
    put(one, entry("a.md", "apple", mtime_ns=1000))
    assert state(one) == FileState(5, 1000)
    assert state(two).is_elsewhere
    commit(two, Batch(touched=((A, FileState(5, 2000)),)))
    assert (state(one), state(two)) == (FileState(5, 1000), FileState(5, 2000))
    assert modified(one) == 1000  # a clone has other times, which say nothing about the document
    commit(two, Batch(touched=((A, FileState(5, 3000)),)))
    assert state(one) == FileState(5, 1000)
    assert modified(one) == 3000


def test_a_document_that_one_machine_replaces_is_unknown_to_the_others(
    machines: list[PostgresEngine],
) -> None:
    one, two = machines
    put(one, entry("a.md", "apple"))
    commit(two, Batch(touched=((A, FileState(5, 2000)),)))
    put(one, entry("a.md", "pear"))
    assert not state(one).is_elsewhere
    assert state(two).is_elsewhere


def test_failures_are_those_of_the_machine(machines: list[PostgresEngine]) -> None:
    one, two = machines
    commit(one, Batch(failures=(Failure(A, "not text"),)))
    commit(two, Batch(failures=(Failure(A, "unreadable", FileState(1, 2)),)))
    put(one, entry("a.md", "apple"))
    with one.snapshot() as snapshot:
        assert (snapshot.status.failures(), snapshot.status.counts("m").failed) == ([], 0)
    with two.snapshot() as snapshot:
        assert snapshot.status.failures() == [Failure(A, "unreadable", FileState(1, 2))]
        assert snapshot.status.counts("m").failed == 1


def test_a_path_that_is_too_long_is_left_out_with_a_notice(machines: list[PostgresEngine]) -> None:
    engine = machines[0]
    long = entry("/".join("é" * 200 for _ in range(6)) + ".md", "apple")
    put(engine, long, entry("a.md", "apple"))
    assert [each for each in engine.take_notices() if "paths are too long" in each]
    with engine.snapshot() as snapshot:
        assert list(snapshot.documents.files()) == [A]


HOSTILE = [
    "'; DROP TABLE documents; --",
    '"; DROP SCHEMA public CASCADE; --',
    "$1 %s %(x)s ? :x {x} \\",
    "E'\\'' || (SELECT current_user) || '",
    "\x00\ud800\ue000\x01",
    "a\tb\n\\.\n\\N",
    '{"a": [1}',
    "ARRAY[1]::text[]",
]


@pytest.mark.parametrize("text", HOSTILE)
def test_no_text_is_read_as_sql(machines: list[PostgresEngine], text: str) -> None:
    engine = machines[0]
    hostile = entry(
        text,
        text,
        collection=text,
        title=text,
        headings=(text,),
        code=text,
        languages=(text,),
        tags=(text,),
        aliases=(text,),
        author=text,
        keywords=(text,),
        metadata={"key": text, text: text},
        remarks=(text,),
    )
    hostile = replace(hostile, document=replace(hostile.document, recipe=text))
    failure = Failure(id_of(text + "2", text), text)
    commit(engine, Batch(entries=(hostile,), failures=(failure,), manifest={text: text}))
    with engine.snapshot() as snapshot:
        id = hostile.document.id
        assert snapshot.documents.get(id) == hostile.document
        assert snapshot.documents.chunks_of(id) == list(hostile.chunks)
        assert snapshot.documents.find_by_path(text) == [id]
        assert snapshot.status.failures() == [failure]
        assert snapshot.status.manifest() == {text: text}
        assert snapshot.status.remarks() == [(id, text)]
        assert snapshot.documents.find_by_title(text, filters_of(text), 5) is not None
        assert snapshot.metadata.matching_documents(filters_of(text), 5) == [id]
        assert snapshot.lexical.search([text], {"body": 1.0}, filters_of(text), 5) == []
        memory = MemoryEngine()
        commit(memory, Batch(entries=(hostile,)))
        with memory.snapshot() as expected:
            for filters in each_filter(text):
                found, right = (
                    each.metadata.matching_documents(filters, 5) for each in (snapshot, expected)
                )
                assert (filters, found) == (filters, right)
    assert engine.check() == []


def each_filter(text: str) -> Iterator[Filters]:
    """Yield a filter for each field that contains text of users, alone and beside another."""
    one, pair = (text,), ((text, text),)
    yield Filters(collections=one, paths=one, also=Filters(exclude=one))
    yield Filters(tags=one, languages=one)
    yield Filters(files=one)
    yield Filters(authors=one)
    yield Filters(phrases=one, also=Filters(phrases=(f"a {text}",)))
    yield Filters(phrases=one)
    yield Filters(without=(f"a {text}",), also=Filters(without=one))
    yield Filters(where=pair, also=Filters(within=pair))
    yield Filters(within=pair, documents=(DocumentId(text, text), DocumentId("docs", text)))


def filters_of(text: str) -> Filters:
    """Return filters with the text in every place that users control."""
    return Filters(
        collections=(text,),
        paths=(text,),
        exclude=("nothing", text + "/never"),
        tags=(text,),
        where=(("key", text), (text, text)),
        languages=(text,),
    )
