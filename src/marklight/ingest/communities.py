"""Communities of linked documents, by Louvain's method: groups of nodes in a weighted graph of high modularity.

Blondel, Guillaume, Lambiotte and Lefebvre, Fast unfolding of communities in large networks, 2008.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from itertools import islice

from marklight.model import Batch, DocumentId
from marklight.ports import WRITER_SECONDS, Engine, Snapshot

MAX_PAIRS = 200_000
"""Above this number of linked pairs no communities are computed: 100,000 take 5 seconds, and time grows faster."""
GROUPED = "communities"
"""Manifest key: generation of the links from which communities were last computed."""
_ROUNDING = 1e-9
"""Gains below this are rounding errors, and nodes that follow them may never come to rest."""

Neighbours = list[dict[int, float]]
"""The weights of the edges of each node, by the node at the other end."""


def update_communities(engine: Engine) -> None:
    """Compute communities again, if links changed since the last time."""
    with engine.snapshot() as snapshot:
        linked = str(snapshot.links.last_changed())
        if snapshot.status.manifest().get(GROUPED) == linked:
            return
        communities = find_communities(snapshot, MAX_PAIRS) or {}
    with engine.writing(WRITER_SECONDS):
        engine.commit(Batch(communities=communities, manifest={GROUPED: linked}))


def find_communities(snapshot: Snapshot, max_pairs: int) -> Mapping[DocumentId, int] | None:
    """Return the community number of each document by Louvain's method; a document without links has none.

    Return None if there are more linked pairs than `max_pairs`.
    """
    pairs = list(islice(snapshot.links.edges(), max_pairs + 1))
    if len(pairs) > max_pairs:
        return None
    ids = sorted({id for pair in pairs for id in pair})
    # Numbers, since the order of a set of strings changes from process to process.
    number = {id: index for index, id in enumerate(ids)}
    # Two documents that link to each other have an edge of weight 2.
    weights = Counter(tuple(sorted((number[source], number[target]))) for source, target in pairs)
    edges = {
        (first, second): float(weights[first, second])
        for first, second in sorted(weights)
        if first != second
    }
    groups = sorted(sorted(group) for group in louvain(edges, len(ids)) if len(group) > 1)
    return {ids[node]: index for index, group in enumerate(groups) for node in group}


def louvain(edges: Mapping[tuple[int, int], float], count: int) -> list[list[int]]:
    """Return the communities of the nodes 0 to `count` - 1, the same ones in every run; one edge per pair of nodes."""
    neighbours: Neighbours = [{} for _ in range(count)]
    for (first, second), weight in edges.items():
        neighbours[first][second] = neighbours[second][first] = weight
    loops = [0.0] * count
    """Weight of the edges inside each node, which is a community of the level below."""
    members = [[node] for node in range(count)]
    total = sum(edges.values())
    gain = 1.0
    while total and gain > _ROUNDING:
        labels, gain = _move_nodes(neighbours, loops, total)
        order = {label: number for number, label in enumerate(dict.fromkeys(labels))}
        labels = [order[label] for label in labels]
        merged: list[list[int]] = [[] for _ in order]
        for nodes, label in zip(members, labels, strict=True):
            merged[label].extend(nodes)
        members = merged
        neighbours, loops = _merge_edges(neighbours, loops, labels, len(order))
    return members


def _move_nodes(
    neighbours: Neighbours, loops: list[float], total: float
) -> tuple[list[int], float]:
    """Move each node to the community next to it that adds most modularity, until none moves; return labels and the gain."""
    degrees = [
        sum(edges.values()) + 2 * loop for edges, loop in zip(neighbours, loops, strict=True)
    ]
    labels, sizes = list(range(len(neighbours))), list(degrees)
    gain, moved = 0.0, True
    while moved:
        moved = False
        for node, edges in enumerate(neighbours):
            degree, label = degrees[node], labels[node]
            weights: defaultdict[int, float] = defaultdict(float)
            for other, weight in edges.items():
                weights[labels[other]] += weight
            sizes[label] -= degree
            gain_here = best_gain = weights[label] - sizes[label] * degree / (2 * total)
            for candidate, weight in weights.items():
                candidate_gain = weight - sizes[candidate] * degree / (2 * total)
                if candidate_gain > best_gain + _ROUNDING:
                    label, best_gain = candidate, candidate_gain
            sizes[label] += degree
            if label != labels[node]:
                labels[node], moved = label, True
                gain += (best_gain - gain_here) / total
    return labels, gain


def _merge_edges(
    neighbours: Neighbours, loops: list[float], labels: list[int], count: int
) -> tuple[Neighbours, list[float]]:
    """Return the graph whose nodes are the communities of this one."""
    merged: list[defaultdict[int, float]] = [defaultdict(float) for _ in range(count)]
    merged_loops = [0.0] * count
    for node, edges in enumerate(neighbours):
        label = labels[node]
        merged_loops[label] += loops[node]
        for other, weight in edges.items():
            if labels[other] == label:
                merged_loops[label] += weight / 2  # each edge is listed at both of its ends
            else:
                merged[label][labels[other]] += weight
    return list(map(dict, merged)), merged_loops
