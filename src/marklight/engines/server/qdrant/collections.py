"""Collections: one with the terms of all passages, and one for each model with their vectors.

They are separate because a collection gets no further vectors once it exists, while keyword search must work before
there is any model, and a change of the model must not write the terms again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from qdrant_client import grpc as api

from marklight.engines.server.postgres.vector_table import unpack
from marklight.engines.server.qdrant.points import (
    COMPARED,
    LOOKED_UP,
    TERMS,
    Payload,
    dense_point,
    point_ids,
    portions,
    selector,
)
from marklight.engines.vector_math import unit_rows
from marklight.errors import StoreError

if TYPE_CHECKING:
    from marklight.engines.server.postgres.session import PostgresSession
    from marklight.engines.server.qdrant.cluster import Cluster

SHARDS_PER_NODE = 2
"""So that a cluster can grow to twice as many nodes without splitting shards."""
POINTS_PER_REQUEST = 250
"""Points written or read at once: some 600 KB."""
ROWS_PER_PAGE = 10_000
HNSW_M, HNSW_EF_CONSTRUCTION = 16, 100
"""Edges of a node, and candidates that are compared when a vector is added: the defaults of Qdrant."""
QUANTILE = 0.99
"""Share of the values that 8 bits represent; others are clipped."""


def create_terms(cluster: Cluster, name: str) -> None:
    """Create a collection for sparse vectors."""
    sparse = api.SparseVectorConfig(map={TERMS: api.SparseVectorParams()})
    _create(cluster, name, sparse_vectors_config=sparse)


def create_vectors(cluster: Cluster, name: str, dimension: int) -> None:
    """Create a collection for the vectors of a model."""
    settings = cluster.settings
    params = api.VectorParams(
        size=dimension,
        distance=api.Distance.Cosine,
        on_disk=settings.on_disk,
        hnsw_config=api.HnswConfigDiff(m=HNSW_M, ef_construct=HNSW_EF_CONSTRUCTION),
        quantization_config=_quantization(settings.quantization),
    )
    _create(cluster, name, vectors_config=api.VectorsConfig(params=params))


def _quantization(kind: str) -> Any:
    if kind == "scalar":
        scalar = api.ScalarQuantization(
            type=api.QuantizationType.Int8, quantile=QUANTILE, always_ram=True
        )
        return api.QuantizationConfig(scalar=scalar)
    if kind == "binary":
        return api.QuantizationConfig(binary=api.BinaryQuantization(always_ram=True))
    return None


def _create(cluster: Cluster, name: str, **config: Any) -> None:
    """Create a collection with a payload index for every key that filters compare; an existing one is replaced."""
    delete(cluster, name)
    shards = cluster.settings.shards
    if not shards:
        shards = SHARDS_PER_NODE * cluster.size if cluster.size > 1 else 1
    request = api.CreateCollection(
        collection_name=name,
        shard_number=shards,
        replication_factor=min(cluster.settings.replicas, cluster.size),
        **config,
    )
    try:
        cluster.write("Create", request, "collections")
    except StoreError:
        # A node that died before it answered may have created it.
        if not exists(cluster, name):
            raise
    for key in (*LOOKED_UP, *COMPARED):
        params = api.IntegerIndexParams(lookup=key in LOOKED_UP, range=key in COMPARED)
        cluster.write(
            "CreateFieldIndex",
            api.CreateFieldIndexCollection(
                collection_name=name,
                wait=True,
                field_name=key,
                field_type=api.FieldType.FieldTypeInteger,
                field_index_params=api.PayloadIndexParams(integer_index_params=params),
            ),
        )


def delete(cluster: Cluster, name: str) -> None:
    """Delete a collection; one that does not exist is no error."""
    cluster.write("Delete", api.DeleteCollection(collection_name=name), "collections")


def exists(cluster: Cluster, name: str) -> bool:
    """Return true if there is a collection of this name."""
    request = api.CollectionExistsRequest(collection_name=name)
    return bool(cluster.read("CollectionExists", request, "collections").result.exists)


def shard_states(cluster: Cluster, names: Iterable[str]) -> dict[str, int]:
    """Return the number of replicas of shards by their state, such as active or dead, over some collections."""
    states: Counter[str] = Counter()
    for name in names:
        request = api.CollectionClusterInfoRequest(collection_name=name)
        info = cluster.read("CollectionClusterInfo", request, "collections")
        for shard in (*info.local_shards, *info.remote_shards):
            states[api.ReplicaState.Name(shard.state).lower()] += 1
    return dict(sorted(states.items()))


def upsert(cluster: Cluster, name: str, points: Sequence[Any]) -> None:
    """Write points, and wait until searches find them; existing ones are replaced."""
    for part in portions(points, POINTS_PER_REQUEST):
        cluster.write("Upsert", api.UpsertPoints(collection_name=name, wait=True, points=part))


def delete_points(cluster: Cluster, name: str, rows: Sequence[int]) -> None:
    """Delete points; those that do not exist are no error."""
    for part in portions(rows, ROWS_PER_PAGE):
        request = api.DeletePoints(collection_name=name, wait=True, points=selector(part))
        cluster.write("Delete", request)


def get(cluster: Cluster, name: str, rows: Sequence[int], *, vectors: bool, payload: bool) -> Any:
    """Yield the points of these rows; missing ones are skipped."""
    for part in portions(rows, POINTS_PER_REQUEST):
        request = api.GetPoints(
            collection_name=name,
            ids=point_ids(part),
            with_payload=api.WithPayloadSelector(enable=payload),
            with_vectors=api.WithVectorsSelector(enable=vectors),
        )
        yield from cluster.read("Get", request).result


def rows_in(cluster: Cluster, name: str, condition: Any) -> Iterator[int]:
    """Yield the rows of all points that match a condition, ascending."""
    offset = None
    while True:
        request = api.ScrollPoints(
            collection_name=name,
            filter=condition,
            limit=ROWS_PER_PAGE,
            offset=offset,
            with_payload=api.WithPayloadSelector(enable=False),
            with_vectors=api.WithVectorsSelector(enable=False),
        )
        reply = cluster.read("Scroll", request)
        yield from (point.id.num for point in reply.result)
        if not reply.HasField("next_page_offset"):
            return
        offset = reply.next_page_offset


def new_name(session: PostgresSession) -> tuple[int, str]:
    """Return a number and the name of a collection that were never used before."""
    library, number = session.all("SELECT library, nextval('outbox_batches') FROM state")[0]
    return number, f"{_prefix(library)}{number}"


def names(cluster: Cluster, library: str) -> list[str]:
    """Return all collections of a library."""
    reply = cluster.read("List", api.ListCollectionsRequest(), "collections")
    found = [each.name for each in reply.collections]
    return [name for name in found if name.startswith(_prefix(library))]


def _prefix(library: str) -> str:
    return f"marklight_{library}_"


def of_models(session: PostgresSession) -> dict[int, str]:
    """Return the collections of models by the row of the model."""
    return dict(session.all("SELECT model, collection FROM qdrant_models"))


def upsert_vectors(
    cluster: Cluster,
    name: str,
    dimension: int,
    vectors: Sequence[tuple[int, bytes]],
    payloads: Mapping[int, Payload],
) -> None:
    """Write vectors of passages, given by row, as PostgreSQL stores them."""
    matrix = unit_rows(unpack([data for _, data in vectors], dimension))
    points = [
        dense_point(row, vector, payloads[row])
        for (row, _), vector in zip(vectors, matrix.tolist(), strict=True)
    ]
    upsert(cluster, name, points)
