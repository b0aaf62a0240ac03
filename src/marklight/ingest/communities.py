"""Documents that belong together by their links: communities by Louvain's method.

Blondel, Guillaume, Lambiotte and Lefebvre, Fast unfolding of communities in large networks, 2008.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from marklight.ingest.embed import COMMIT_SECONDS
from marklight.model import Batch, DocumentId
from marklight.ports import Engine, Snapshot

MOST_PAIRS = 200_000
"""Beyond this many linked pairs nothing is grouped: 100,000 take 5 seconds, and time grows faster."""
GROUPED = "communities"
"""Where the manifest keeps the generation of the links that documents were last grouped by."""
_SEED = 1
"""Any number: the same links must always give the same groups."""


def regroup(engine: Engine) -> None:
    """Find out anew which documents belong together, where links changed since it was last done."""
    with engine.snapshot() as snapshot:
        linked = str(snapshot.links.last_changed())
        if snapshot.status.manifest().get(GROUPED) == linked:
            return
        communities = group(snapshot)
    with engine.writing(COMMIT_SECONDS):
        engine.commit(Batch(communities=communities, manifest={GROUPED: linked}))


def group(snapshot: Snapshot) -> Mapping[DocumentId, int]:
    """The number of each document's community; those that belong to no other document have none."""
    pairs = list(snapshot.links.edges())
    if not pairs or len(pairs) > MOST_PAIRS:
        return {}
    import networkx

    ids = sorted({id for pair in pairs for id in pair})
    # Numbers, since the order of a set of texts changes from process to process.
    number = {id: at for at, id in enumerate(ids)}
    # Two documents that link to each other are tied twice.
    ties = Counter(tuple(sorted((number[source], number[target]))) for source, target in pairs)
    graph = networkx.Graph()
    graph.add_nodes_from(range(len(ids)))
    graph.add_weighted_edges_from((*pair, ties[pair]) for pair in sorted(ties))
    found = networkx.community.louvain_communities(graph, seed=_SEED)
    groups = sorted(sorted(each) for each in found if len(each) > 1)
    return {ids[node]: at for at, each in enumerate(groups) for node in each}
