"""Documents and the links between them as a graph: around one document, or the best linked of all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from itertools import chain

from marklight.model import DocumentId
from marklight.ports import Snapshot
from marklight.report import Graph, Node

MOST_NODES = 500
"""Beyond it nobody sees anything in a picture."""
DEEPEST = 3
"""Links away: at four nearly every document of a linked library is there."""
MOST_NEAR = 1000
"""Neighbours of one document that are looked at, each way."""

Exists = Callable[[DocumentId], bool]


def around(
    document: DocumentId, snapshot: Snapshot, depth: int, limit: int, exists: Exists
) -> Graph:
    """What can be reached from a document in so many links, either way; the best linked come first."""
    distance = {document: 0}
    edge = [document]
    left_out = 0
    for step in range(1, depth + 1):
        near = snapshot.links.neighbours(edge, MOST_NEAR)
        new = {each for each in chain.from_iterable(near.values()) if each not in distance}
        there = [each for each in new if exists(each)]
        degrees = snapshot.links.degrees(there, MOST_NEAR)
        edge = _best(degrees)[: limit - len(distance)]
        left_out += len(there) - len(edge)
        distance |= dict.fromkeys(edge, step)
        if not edge:
            break
    pairs = (
        (source, link.target)
        for source in distance
        for link in snapshot.links.outgoing(source)
        if link.target is not None and link.target != source
    )
    return _graph(document, distance, pairs, left_out, snapshot)


def best_linked(snapshot: Snapshot, limit: int, exists: Exists) -> Graph:
    """The documents of a library with most links; those without any are left out."""
    degrees = Counter(chain.from_iterable(snapshot.links.edges()))
    chosen: dict[DocumentId, int | None] = {}
    for each in _best(degrees):
        if len(chosen) == limit:
            break
        if exists(each):
            chosen[each] = None
    # One more pass over the links costs less than to keep all of them.
    return _graph(None, chosen, snapshot.links.edges(), len(degrees) - len(chosen), snapshot)


def _graph(
    document: DocumentId | None,
    chosen: Mapping[DocumentId, int | None],
    pairs: Iterable[tuple[DocumentId, DocumentId]],
    left_out: int,
    snapshot: Snapshot,
) -> Graph:
    degrees = snapshot.links.degrees(list(chosen), MOST_NEAR)
    communities = snapshot.links.communities(chosen)
    known = {id: found for id in chosen if (found := snapshot.documents.get(id))}
    nodes = tuple(
        Node(id, each.title, degrees.get(id, 0), communities.get(id), chosen[id])
        for id, each in known.items()
    )
    edges = sorted({pair for pair in pairs if pair[0] in known and pair[1] in known})
    return Graph(document, nodes, tuple(edges), {"nodes": left_out} if left_out else {})


def _best(degrees: Mapping[DocumentId, int]) -> list[DocumentId]:
    return sorted(degrees, key=lambda each: (-degrees[each], each))
