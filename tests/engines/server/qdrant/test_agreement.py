"""Agreement with the in-memory engine: any filters, any commits, every snapshot; scores are exact in all of them."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from marklight import engines
from marklight.model import Batch
from marklight.ports import Snapshot
from marklight.query import Filters
from tests.contracts.builders import vectors
from tests.contracts.test_engine_agreement import filters, phrase_filters, same_results, steps
from tests.oracle import MemoryEngine
from tests.servers.qdrant import new_fleet_library


# Without shrinking: each example is a library on two servers.
@settings(
    max_examples=8,
    deadline=None,
    phases=(Phase.generate,),
    suppress_health_check=list(HealthCheck),
)
@given(
    steps=steps,
    query_filters=st.lists(filters | phrase_filters, min_size=4, max_size=4),
    limit=st.integers(1, 12),
)
def test_a_filtered_search_equals_brute_force_in_every_snapshot(
    steps: list[tuple[Batch, int]], query_filters: list[Filters], limit: int
) -> None:
    with new_fleet_library() as address, ExitStack() as stack:
        memory, engine = MemoryEngine(), engines.open(address)
        stack.callback(engine.close)
        snapshots: list[tuple[Snapshot, Snapshot]] = []
        with memory.writing(1), engine.writing(1):
            for step, embed in steps:
                last = {each.document.id: each for each in step.entries}
                batch = replace(step, entries=tuple(last.values()), failures=())
                assert memory.commit(batch) == engine.commit(batch)
                with memory.snapshot() as snapshot:
                    pending = [each.digest for each in snapshot.vectors.pending("m", embed)]
                if pending:
                    more = Batch(vectors=vectors(pending))
                    assert memory.commit(more) == engine.commit(more)
                pair = memory.snapshot(), engine.snapshot()
                snapshots.append((stack.enter_context(pair[0]), stack.enter_context(pair[1])))
        for expected, actual in snapshots:
            for each in (Filters(), *query_filters):
                same_results(expected, actual, each, limit, exact=True)
        assert engine.check() == []
        assert engine.take_notices() == []
