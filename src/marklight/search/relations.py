"""What a document has to do with others: links both ways, and what is related and why."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from marklight.answer import Filters
from marklight.model import Document, DocumentId, LinkType, ResolvedLink
from marklight.ports import Snapshot
from marklight.report import Links, Related, Relative

MOST_COUNTED = 10_000
"""Backlinks of a hub are counted up to here, not to their end."""
MOST_SHARING = 1_000
"""A tag of more documents than this says too little about any of them."""
LINKED = 0.4
"""What one way of linking tells: both ways are 0.64, and with a near meaning it is all but certain."""
LEAST = 0.1
"""Less is no relation: a cosine of 0.56, which most models give to texts of one language."""

Exists = Callable[[DocumentId], bool]
Value = TypeVar("Value")


def links(
    document: DocumentId,
    snapshot: Snapshot,
    limit: int,
    exists: Exists,
    most_counted: int = MOST_COUNTED,
) -> Links:
    """A document's links to others, those of others to it, and those that lead nowhere."""
    out: list[ResolvedLink] = []
    nowhere: list[ResolvedLink] = []
    for link in snapshot.links.outgoing(document):
        if link.target is None or not exists(link.target):
            nowhere.append(replace(link, target=None))
        elif link.target != document:
            out.append(link)
    leading_here = snapshot.links.incoming(document, most_counted)
    back = [link for link in leading_here if link.source != document and exists(link.source)]
    more: dict[str, int] = {}
    uncounted = f"{most_counted:,} links lead here, or more: they are counted up to there"
    return Links(
        document=document,
        out=_first(out, limit, "out", more),
        back=_first(back, limit, "in", more),
        unresolved=_first(nowhere, limit, "unresolved", more),
        more=more,
        notices=(uncounted,) if len(leading_here) == most_counted else (),
    )


def loose_ends(snapshot: Snapshot, limit: int, exists: Exists) -> Links:
    """Of the whole library: links that lead nowhere, and documents without any link."""
    nowhere = [link for link in snapshot.links.unresolved() if exists(link.source)]
    alone = [id for id in snapshot.links.orphans() if exists(id)]
    more: dict[str, int] = {}
    return Links(
        document=None,
        unresolved=_first(nowhere, limit, "unresolved", more),
        orphans=_first(alone, limit, "orphans", more),
        more=more,
    )


def related(
    document: Document, snapshot: Snapshot, model: str, limit: int, exists: Exists
) -> Related:
    """Other documents by how likely they belong to this one, each with the reasons for it."""
    reasons: dict[DocumentId, list[str]] = defaultdict(list)
    doubt: dict[DocumentId, float] = defaultdict(lambda: 1.0)
    for found in (
        _by_links(document.id, snapshot),
        _by_tags(document, snapshot),
        _by_meaning(document.id, snapshot, model, limit),
    ):
        for id, (belief, reason) in found.items():
            # Reasons add up without ever reaching certainty: each takes its share of what is in doubt.
            doubt[id] *= 1 - belief
            reasons[id].append(reason)
    scores = {id: 1 - left for id, left in doubt.items() if id != document.id}
    relatives: list[Relative] = []
    for id in sorted(scores, key=lambda each: (-scores[each], each)):
        if len(relatives) == limit or scores[id] < LEAST:
            break
        other = snapshot.documents.get(id) if exists(id) else None
        if other:
            relatives.append(Relative(id, other.title, scores[id], tuple(reasons[id])))
    return Related(document.id, tuple(relatives))


Found = Mapping[DocumentId, tuple[float, str]]
"""Documents with how far a reason goes, 0 to 1, and the reason in words."""


def _by_links(id: DocumentId, snapshot: Snapshot) -> Found:
    out = _ends((link.target, link.link.type) for link in snapshot.links.outgoing(id))
    back = _ends(
        (link.source, link.link.type) for link in snapshot.links.incoming(id, MOST_COUNTED)
    )
    found: dict[DocumentId, tuple[float, str]] = {}
    for other in {*out, *back}:
        said = [
            f"{name}{_types(ends[other])}"
            for name, ends in (("links here", back), ("linked from here", out))
            if other in ends
        ]
        found[other] = (1 - (1 - LINKED) ** len(said), ", ".join(said))
    return found


def _ends(
    ends: Iterable[tuple[DocumentId | None, LinkType]],
) -> Mapping[DocumentId, Counter[LinkType]]:
    found: dict[DocumentId, Counter[LinkType]] = defaultdict(Counter)
    for id, type in ends:
        if id is not None:
            found[id][type] += 1
    return found


def _types(types: Counter[LinkType]) -> str:
    """What the links say beside that they are there."""
    named = sorted(type.value for type in types if type is not LinkType.LINKS_TO)
    return f" ({', '.join(named)})" if named else ""


def _by_tags(document: Document, snapshot: Snapshot) -> Found:
    everything = snapshot.status.counts("").documents
    shared: dict[DocumentId, list[str]] = defaultdict(list)
    weight: dict[str, float] = {}
    for tag in document.tags:
        having = snapshot.metadata.matching_documents(Filters(tags=(tag,)), MOST_SHARING + 1)
        weight[tag] = math.log(max(1.0, everything / max(1, len(having))))
        if len(having) <= MOST_SHARING:
            for other in having:
                shared[other].append(tag)
    whole = sum(weight.values())
    return {
        id: (
            LINKED * sum(weight[tag] for tag in tags) / whole if whole else 0.0,
            f"{len(tags)} shared tag{'s' if len(tags) > 1 else ''}: {', '.join(map(_within_list, tags))}",
        )
        for id, tags in shared.items()
    }


def _within_list(tag: str) -> str:
    """Escape what separates tags and reasons where they are listed, so that no tag can pose as a reason."""
    return tag.replace(";", r"\x3b").replace(",", r"\x2c")


def _by_meaning(id: DocumentId, snapshot: Snapshot, model: str, limit: int) -> Found:
    """By the passage of each other document that is nearest to the middle of all of this one's."""
    import numpy as np

    own = (
        snapshot.vectors.get(model, [chunk.id for chunk in snapshot.documents.chunks_of(id)])
        if model
        else {}
    )
    if not own:
        return {}
    middle = np.mean(np.stack(list(own.values())), axis=0)
    # Its own passages are likely to come first, and others may have several.
    nearest = snapshot.vectors.search(middle, model, Filters(), len(own) + 10 * limit)
    chunks = {
        chunk.id: chunk for chunk in snapshot.documents.chunks([each.chunk_id for each in nearest])
    }
    found: dict[DocumentId, tuple[float, str]] = {}
    for each in nearest:
        if each.chunk_id in chunks and each.score > 0:
            # Unrelated texts have cosines of 0.6 and more: the fourth power leaves little of those.
            found.setdefault(
                chunks[each.chunk_id].document,
                (min(1.0, each.score) ** 4, f"meaning {each.score:.2f}"),
            )
    return found


def _first(
    values: Sequence[Value], limit: int, name: str, more: dict[str, int]
) -> tuple[Value, ...]:
    """The first of these; how many are left out is noted."""
    if len(values) > limit:
        more[name] = len(values) - limit
    return tuple(values[:limit])
