"""Open libraries in Qdrant and compare them with a rebuild and with the memory engine."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from marklight import engines
from marklight.engines.server.postgres.engine import PostgresEngine
from marklight.engines.server.postgres.session import PostgresSession
from marklight.engines.server.qdrant import shipper
from marklight.engines.server.qdrant.cluster import Cluster
from marklight.engines.server.qdrant.outbox import read_state
from marklight.ports import FIELD_BOOSTS, Engine
from marklight.query import Filters
from tests.contracts.builders import vector
from tests.oracle import MemoryEngine


@contextmanager
def opened(address: str) -> Iterator[PostgresEngine]:
    engine = engines.open(address)
    assert isinstance(engine, PostgresEngine)
    try:
        yield engine
    finally:
        engine.close()


@contextmanager
def session_of(engine: PostgresEngine) -> Iterator[PostgresSession]:
    with engine.maintenance.connection() as connection:
        yield PostgresSession(engine.maintenance, connection)


def nodes_of(engine: PostgresEngine) -> Cluster:
    return Cluster(engine.address.vectors, engine.settings.qdrant)


def statistics(engine: PostgresEngine) -> dict[str, Any]:
    """Return everything that a rebuild computes anew."""
    with session_of(engine) as session:
        state = read_state(session)
        assert state is not None
        return {
            "generation": state.generation,
            "passages": state.passages,
            "lengths": state.lengths.tolist(),
            "frequencies": dict(
                session.all("SELECT dimension, passages FROM term_frequencies WHERE passages <> 0")
            ),
        }


def equals_a_rebuild(engine: PostgresEngine) -> None:
    """Compare the collections with PostgreSQL, and the statistics with those of a rebuild."""
    assert engine.check() == []
    before = statistics(engine)
    with session_of(engine) as session:
        shipper.rebuild(session, nodes_of(engine))
    assert statistics(engine) == before


def same_searches(engine: Engine, memory: MemoryEngine) -> None:
    with engine.snapshot() as actual, memory.snapshot() as expected:
        assert actual.generation == expected.generation
        for terms in (["appl"], ["pear", "plum"], ["quinc", "medlar", "cherri"]):
            found, wanted = (
                each.lexical.search(terms, FIELD_BOOSTS, Filters(), 50)
                for each in (actual, expected)
            )
            assert [each.score for each in found] == pytest.approx(
                [each.score for each in wanted], abs=2e-4
            )
        found, wanted = (
            each.vectors.search(vector("q"), "m", Filters(), 50) for each in (actual, expected)
        )
        assert [each.chunk_id for each in found] == [each.chunk_id for each in wanted]


@contextmanager
def opened_for_reading(address: str) -> Iterator[PostgresEngine]:
    """Open an engine that does not ship what it finds in the outbox."""
    with opened(address) as engine:
        engine.lexical.prepare = lambda connections: None  # type: ignore[method-assign]
        yield engine
