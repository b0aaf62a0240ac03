"""Relations between documents: links and backlinks, related documents with reasons, the link graph."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import TypeVar

from marklight.model import Document, DocumentId, LinkType, ResolvedLink
from marklight.ports import Snapshot
from marklight.query import Filters
from marklight.report import Graph, Links, Node, Related, RelatedDocument

MAX_BACKLINKS = 10_000
"""Backlinks of one document that are read. Hand-set; not measured."""
MAX_TAGGED = 1_000
"""Documents of a tag up to which it is evidence that two of them are related. Hand-set; not measured."""
LINK_WEIGHT = 0.4
"""Weight of a link in one direction; both directions are 0.64. Hand-set; not measured."""
MIN_RELATED = 0.1
"""Lowest score of a related document: that of a cosine of 0.56, which most models give to any two texts of
one language. Hand-set; not measured."""
COSINE_POWER = 4
"""Power of the cosine: unrelated texts have 0.6 and more, of which the fourth power leaves little.
Hand-set; not measured."""
BACKGROUND_RANK, MIN_LEAD = 10, 0.05
"""A document that is related by meaning only has a cosine so far above that of the tenth nearest one. Of such pairs in
FastAPI's documentation and in the Blue Book, 25 % and 51 % link each other; of the others, 8 % and 3 %."""
MIN_BACKGROUND = 5
"""Other documents of a library from which on there is a background. Hand-set; not measured."""
PASSAGES_PER_RELATED = 10
"""Nearest passages that are fetched per related document, as several may be of one. Hand-set; not measured."""
MAX_DEPTH = 3
"""Links from the centre of a graph: with four nearly every document of a linked library is included."""
MAX_NEIGHBOURS = 1_000
"""Neighbours of one document that are read, in each direction. Hand-set; not measured."""

Exists = Callable[[DocumentId], bool]
Value = TypeVar("Value")


def links(
    document: DocumentId,
    snapshot: Snapshot,
    limit: int,
    exists: Exists,
    max_backlinks: int = MAX_BACKLINKS,
) -> Links:
    """Return a document's outgoing links, its backlinks and its unresolved links."""
    out: list[ResolvedLink] = []
    unresolved: list[ResolvedLink] = []
    for link in snapshot.links.outgoing(document):
        if link.target is None or not exists(link.target):
            unresolved.append(replace(link, target=None))
        elif link.target != document:
            out.append(link)
    incoming = snapshot.links.incoming(document, max_backlinks)
    back = [link for link in incoming if link.source != document and exists(link.source)]
    more: dict[str, int] = {}
    truncated = f"only the first {max_backlinks:,} backlinks are counted"
    return Links(
        document=document,
        out=_first(out, limit, "out", more),
        back=_first(back, limit, "in", more),
        unresolved=_first(unresolved, limit, "unresolved", more),
        more=more,
        notices=(truncated,) if len(incoming) == max_backlinks else (),
    )


def unresolved_and_orphans(snapshot: Snapshot, limit: int, exists: Exists) -> Links:
    """Return the unresolved links of the library and its orphans: documents without any link."""
    unresolved = [link for link in snapshot.links.unresolved() if exists(link.source)]
    orphans = [id for id in snapshot.links.orphans() if exists(id)]
    more: dict[str, int] = {}
    return Links(
        document=None,
        unresolved=_first(unresolved, limit, "unresolved", more),
        orphans=_first(orphans, limit, "orphans", more),
        more=more,
    )


def related(
    document: Document, snapshot: Snapshot, model: str, limit: int, exists: Exists
) -> Related:
    """Return the documents most related to this one by links, shared tags and embeddings, each with its reasons."""
    reasons: dict[DocumentId, list[str]] = defaultdict(list)
    unrelated: dict[DocumentId, float] = defaultdict(lambda: 1.0)
    links, tags = _by_links(document.id, snapshot), _by_tags(document, snapshot)
    nearest = _by_embedding(document.id, snapshot, model, max(limit, BACKGROUND_RANK))
    meaning = _above_background(nearest, {document.id}, {*links, *tags})
    for evidence in (links, tags, meaning):
        for id, (weight, reason) in evidence.items():
            # Noisy-or: reasons add up without ever reaching certainty.
            unrelated[id] *= 1 - weight
            reasons[id].append(reason)
    scores = {id: 1 - doubt for id, doubt in unrelated.items() if id != document.id}
    relatives: list[RelatedDocument] = []
    for id in sorted(scores, key=lambda other: (-scores[other], other)):
        if len(relatives) == limit or scores[id] < MIN_RELATED:
            break
        other = snapshot.documents.get(id) if exists(id) else None
        if other:
            relatives.append(RelatedDocument(id, other.title, scores[id], tuple(reasons[id])))
    return Related(document.id, tuple(relatives))


def _above_background(nearest: Evidence, own: set[DocumentId], known: set[DocumentId]) -> Evidence:
    """Drop documents that are near in meaning only, and hardly nearer than many others."""
    weights = sorted((weight for id, (weight, _) in nearest.items() if id not in own), reverse=True)
    if len(weights) < MIN_BACKGROUND:
        return nearest
    background = weights[: min(len(weights), BACKGROUND_RANK)][-1]
    lowest = (background ** (1 / COSINE_POWER) + MIN_LEAD) ** COSINE_POWER
    return {id: each for id, each in nearest.items() if id in known or each[0] >= lowest}


Evidence = Mapping[DocumentId, tuple[float, str]]
"""Related documents with the weight of a reason, 0 to 1, and the reason in words."""


def _by_links(id: DocumentId, snapshot: Snapshot) -> Evidence:
    out = _count_types((link.target, link.link.type) for link in snapshot.links.outgoing(id))
    back = _count_types(
        (link.source, link.link.type) for link in snapshot.links.incoming(id, MAX_BACKLINKS)
    )
    evidence: dict[DocumentId, tuple[float, str]] = {}
    for other in {*out, *back}:
        directions = [
            f"{name}{_special_types(types[other])}"
            for name, types in (("links here", back), ("linked from here", out))
            if other in types
        ]
        evidence[other] = (1 - (1 - LINK_WEIGHT) ** len(directions), ", ".join(directions))
    return evidence


def _count_types(
    links: Iterable[tuple[DocumentId | None, LinkType]],
) -> Mapping[DocumentId, Counter[LinkType]]:
    counts: dict[DocumentId, Counter[LinkType]] = defaultdict(Counter)
    for id, type in links:
        if id is not None:
            counts[id][type] += 1
    return counts


def _special_types(types: Counter[LinkType]) -> str:
    """List the link types other than a plain link."""
    names = sorted(type.value for type in types if type is not LinkType.LINKS_TO)
    return f" ({', '.join(names)})" if names else ""


def _by_tags(document: Document, snapshot: Snapshot) -> Evidence:
    """Weigh shared tags by their inverse document frequency."""
    total = snapshot.status.counts("").documents
    shared: dict[DocumentId, list[str]] = defaultdict(list)
    idf: dict[str, float] = {}
    for tag in document.tags:
        tagged = snapshot.metadata.matching_documents(Filters(tags=(tag,)), MAX_TAGGED + 1)
        idf[tag] = math.log(max(1.0, total / max(1, len(tagged))))
        if len(tagged) <= MAX_TAGGED:
            for other in tagged:
                shared[other].append(tag)
    all_tags = sum(idf.values())
    return {
        id: (
            LINK_WEIGHT * sum(idf[tag] for tag in tags) / all_tags if all_tags else 0.0,
            f"{len(tags)} shared tag{'s' if len(tags) > 1 else ''}: {', '.join(map(_escape_separators, tags))}",
        )
        for id, tags in shared.items()
    }


def _escape_separators(tag: str) -> str:
    """Escape what separates tags and reasons where they are listed, so that no tag can pose as a reason."""
    return tag.replace(";", r"\x3b").replace(",", r"\x2c")


def _by_embedding(id: DocumentId, snapshot: Snapshot, model: str, limit: int) -> Evidence:
    """Weigh each document by its passage nearest to the mean vector of this one's passages."""
    import numpy as np

    vectors = (
        snapshot.vectors.get(model, [chunk.id for chunk in snapshot.documents.chunks_of(id)])
        if model
        else {}
    )
    if not vectors:
        return {}
    mean = np.mean(np.stack(list(vectors.values())), axis=0)
    # The document's own passages are likely to come first.
    count = len(vectors) + PASSAGES_PER_RELATED * limit
    nearest = snapshot.vectors.search(mean, model, Filters(), count)
    ids = [passage.chunk_id for passage in nearest]
    chunks = {chunk.id: chunk for chunk in snapshot.documents.chunks(ids)}
    evidence: dict[DocumentId, tuple[float, str]] = {}
    for passage in nearest:
        if passage.chunk_id in chunks and passage.score > 0:
            evidence.setdefault(
                chunks[passage.chunk_id].document,
                (min(1.0, passage.score) ** COSINE_POWER, f"meaning {passage.score:.2f}"),
            )
    return evidence


def _first(
    values: Sequence[Value], limit: int, name: str, more: dict[str, int]
) -> tuple[Value, ...]:
    """Return the first values; store in `more` how many are left out."""
    if len(values) > limit:
        more[name] = len(values) - limit
    return tuple(values[:limit])


def graph_around(
    document: DocumentId, snapshot: Snapshot, depth: int, limit: int, exists: Exists
) -> Graph:
    """Return the documents within `depth` links of one, in either direction (breadth-first), the best linked first."""
    distance = {document: 0}
    frontier = [document]
    left_out = 0
    for step in range(1, depth + 1):
        neighbours = snapshot.links.neighbours(frontier, MAX_NEIGHBOURS)
        new = {other for other in chain.from_iterable(neighbours.values()) if other not in distance}
        existing = [other for other in new if exists(other)]
        degrees = snapshot.links.degrees(existing, MAX_NEIGHBOURS)
        frontier = _by_degree(degrees)[: limit - len(distance)]
        left_out += len(existing) - len(frontier)
        distance |= dict.fromkeys(frontier, step)
        if not frontier:
            break
    edges = (
        (source, link.target)
        for source in distance
        for link in snapshot.links.outgoing(source)
        if link.target is not None and link.target != source
    )
    return _graph(document, distance, edges, left_out, snapshot)


def graph_of_best_linked(snapshot: Snapshot, limit: int, exists: Exists) -> Graph:
    """Return the documents with the most links; those without any are left out."""
    degrees = Counter(chain.from_iterable(snapshot.links.edges()))
    chosen: dict[DocumentId, int | None] = {}
    for id in _by_degree(degrees):
        if len(chosen) == limit:
            break
        if exists(id):
            chosen[id] = None
    # A second pass over the links is cheaper than keeping all of them.
    return _graph(None, chosen, snapshot.links.edges(), len(degrees) - len(chosen), snapshot)


def _graph(
    centre: DocumentId | None,
    distance: Mapping[DocumentId, int | None],
    edges: Iterable[tuple[DocumentId, DocumentId]],
    left_out: int,
    snapshot: Snapshot,
) -> Graph:
    degrees = snapshot.links.degrees(list(distance), MAX_NEIGHBOURS)
    communities = snapshot.links.communities(distance)
    documents = {id: document for id in distance if (document := snapshot.documents.get(id))}
    nodes = tuple(
        Node(id, document.title, degrees.get(id, 0), communities.get(id), distance[id])
        for id, document in documents.items()
    )
    inner = sorted({edge for edge in edges if edge[0] in documents and edge[1] in documents})
    return Graph(centre, nodes, tuple(inner), {"nodes": left_out} if left_out else {})


def _by_degree(degrees: Mapping[DocumentId, int]) -> list[DocumentId]:
    return sorted(degrees, key=lambda document: (-degrees[document], document))
