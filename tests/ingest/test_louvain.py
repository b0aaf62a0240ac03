"""Communities by Louvain's method."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from marklight.ingest.communities import louvain

Edges = Mapping[tuple[int, int], float]


def modularity(edges: Edges, communities: list[list[int]]) -> float:
    """Compute modularity by its definition (Newman and Girvan, 2004)."""
    total = sum(edges.values())
    label = {node: number for number, nodes in enumerate(communities) for node in nodes}
    inside = sum(weight for (a, b), weight in edges.items() if label[a] == label[b])
    degrees = [0.0] * len(communities)
    for pair, weight in edges.items():
        for node in pair:
            degrees[label[node]] += weight
    return inside / total - sum((degree / (2 * total)) ** 2 for degree in degrees)


def test_cliques_in_a_ring_are_the_communities() -> None:
    cliques = [list(range(start, start + 5)) for start in range(0, 30, 5)]
    edges = {pair: 1.0 for clique in cliques for pair in combinations(clique, 2)}
    edges |= {(start, start + 5): 1.0 for start in range(0, 25, 5)} | {(0, 25): 1.0}
    assert louvain(edges, 30) == cliques
    # 60 edges in cliques, 6 between them; every clique has degree 22 of 132: 60/66 - 6/36.
    assert modularity(edges, cliques) == pytest.approx(60 / 66 - 6 / 36)


def test_weights_count() -> None:
    chain = {(0, 1): 9.0, (1, 2): 1.0, (2, 3): 9.0}
    assert louvain(chain, 4) == [[0, 1], [2, 3]]


def test_nodes_without_edges_stay_alone() -> None:
    assert louvain({}, 2) == [[0], [1]]
    assert louvain({(0, 2): 1.0}, 3) == [[0, 2], [1]]


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9), st.integers(1, 5)), max_size=30))
def test_each_node_is_in_one_community_and_modularity_does_not_fall(
    triples: list[tuple[int, int, int]],
) -> None:
    edges = {(min(a, b), max(a, b)): float(weight) for a, b, weight in triples if a != b}
    communities = louvain(edges, 10)
    assert sorted(node for nodes in communities for node in nodes) == list(range(10))
    if edges:
        alone = [[node] for node in range(10)]
        assert modularity(edges, communities) >= modularity(edges, alone) - 1e-9
