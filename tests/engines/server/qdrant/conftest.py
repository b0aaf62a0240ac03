"""Qdrant servers for tests: one node for a test process; a cluster of three only where a module requests it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.servers.qdrant import Node, Unavailable, new_fleet_library, running_nodes, shared_node


@pytest.fixture
def node() -> Node:
    """Return a running node that no test kills."""
    return shared_node()


@pytest.fixture(scope="module")
def cluster() -> Iterator[list[Node]]:
    """Return three running nodes of one cluster; a test that kills one starts it again."""
    try:
        with running_nodes(3) as nodes:
            yield nodes
    except Unavailable as reason:
        pytest.skip(str(reason))


@pytest.fixture
def address() -> Iterator[str]:
    """Return the address of an empty library in PostgreSQL and Qdrant."""
    with new_fleet_library() as address:
        yield address
