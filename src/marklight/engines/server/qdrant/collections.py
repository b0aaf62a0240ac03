"""Collections in Qdrant, their points with the payload that filters compare, and filters as conditions.

There is one collection with the terms of all passages, and one for each model with their vectors: a collection gets no further
vectors once it exists, while keyword search must work before there is any model, and a change of the model must not write the terms
again. A point is a passage, its id is the row number. Globs, authors, phrases and dates are not in
Qdrant: PostgreSQL evaluates them, and the matching rows become the condition.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from qdrant_client import grpc as api

from marklight.engines.metadata_filters import (
    TAG,
    matching_languages,
    normalize_language,
    normalize_tag,
    required_pairs,
)
from marklight.engines.server.postgres.vector_index import unpack
from marklight.errors import StoreError
from marklight.model import DocumentId, digest
from marklight.query import Filters
from marklight.vector_math import unit_rows

if TYPE_CHECKING:
    from marklight.engines.metadata_filters import MetadataPair
    from marklight.engines.relational.filters import RowFilter
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
TERMS = "terms"
"""Name of the sparse vector."""
LABELS, DOCUMENT, ADDED, REMOVED = "labels", "document", "added", "removed"
"""Keys of the payload; `added` and `removed` are generations."""
LOOKED_UP, COMPARED = (LABELS, DOCUMENT), (ADDED, REMOVED)
"""Keys that filters compare for equality, and by range: each has a payload index."""


class Payload(NamedTuple):
    """Values that filters compare."""

    document: int
    labels: Sequence[int]
    added: int

    def fields(self) -> dict[str, Any]:
        """Return the payload of a message."""
        labels = [api.Value(integer_value=number) for number in self.labels]
        return {
            DOCUMENT: api.Value(integer_value=self.document),
            LABELS: api.Value(list_value=api.ListValue(values=labels)),
            ADDED: api.Value(integer_value=self.added),
        }


def label(*parts: str) -> int:
    """Return the label of a property, given by its kind and values: 63 bits of a hash."""
    return int(digest(*parts, size=8), 16) >> 1


def document_labels(document: DocumentId, pairs: Iterable[MetadataPair]) -> set[int]:
    """Return the labels that all passages of a document share; the empty folder is the whole collection."""
    collection, path = document
    folders = ["", *(path[:end] for end, character in enumerate(path) if character == "/")]
    return {
        label("document", collection, path),
        *(label("folder", collection, folder) for folder in folders),
        *(label("pair", *pair) for pair in pairs),
    }


def passage_labels(shared: set[int], languages: Iterable[str]) -> list[int]:
    """Return all labels of a passage, sorted."""
    names = map(normalize_language, languages)
    return sorted(shared.union(label("language", name) for name in names))


def sparse_point(row: int, indices: list[int], values: list[float], payload: Payload) -> Any:
    """Return the point of a passage in the collection of terms."""
    sparse = api.SparseVector(indices=indices, values=values)
    named = api.NamedVectors(vectors={TERMS: api.Vector(sparse=sparse)})
    return api.PointStruct(
        id=api.PointId(num=row), vectors=api.Vectors(vectors=named), payload=payload.fields()
    )


def dense_point(row: int, vector: list[float], payload: Payload) -> Any:
    """Return the point of a passage in the collection of a model."""
    dense = api.Vectors(vector=api.Vector(dense=api.DenseVector(data=vector)))
    return api.PointStruct(id=api.PointId(num=row), vectors=dense, payload=payload.fields())


def point_ids(rows: Iterable[int]) -> list[Any]:
    """Return rows as ids of points."""
    return [api.PointId(num=row) for row in rows]


def portions(rows: Sequence[Any], size: int) -> Iterator[Sequence[Any]]:
    """Yield parts of a list, none of them longer than `size`."""
    for start in range(0, len(rows), size):
        yield rows[start : start + size]


_NATIVE = ("documents", "collections", "within", "tags", "where", "languages")
"""Filters that `_conditions` evaluates."""


def is_native(filters: Filters) -> bool:
    """Return true if Qdrant can evaluate these filters without PostgreSQL."""
    no_values: dict[str, Any] = dict.fromkeys(_NATIVE, ())
    others = replace(filters, **no_values, also=None)
    return not others and (not filters.also or is_native(filters.also))


def living_filter(generation: int, must: Iterable[Any] = (), must_not: Iterable[Any] = ()) -> Any:
    """Return the condition of all passages of a generation, with further ones."""
    return api.Filter(
        must=[*must, _range(ADDED, lte=generation)],
        must_not=[*must_not, _range(REMOVED, lte=generation)],
    )


def native_filter(filters: Filters, generation: int) -> Any:
    """Return the condition of native filters, for readers of a generation."""
    return living_filter(generation, _conditions(filters))


def row_filter(rows: RowFilter | None, generation: int) -> Any:
    """Return the condition of rows that PostgreSQL selected; None for all."""
    if rows is None:
        return living_filter(generation)
    condition = _has_id(rows.rows) if rows.column == "row" else _match(DOCUMENT, rows.rows)
    if not rows.exclude:
        return living_filter(generation, [condition])
    return living_filter(generation, must_not=[condition] if rows.rows else [])


def rows_filter(rows: Iterable[int]) -> Any:
    """Return the condition of these passages; those that do not exist are no error."""
    return api.Filter(must=[_has_id(rows)])


def _conditions(filters: Filters) -> list[Any]:
    """Return the conditions of native filters, all of which must hold."""
    labels = [
        [label("document", *document) for document in filters.documents],
        [label("folder", collection, "") for collection in filters.collections],
        [label("folder", *folder) for folder in filters.within],
        [label("pair", TAG, normalize_tag(tag)) for tag in filters.tags],
        *([label("pair", *pair)] for pair in required_pairs(filters)),
        [label("language", name) for name in matching_languages(filters)],
    ]
    conditions = [_match(LABELS, list(dict.fromkeys(group))) for group in labels if group]
    return conditions + (_conditions(filters.also) if filters.also else [])


def _has_id(rows: Iterable[int]) -> Any:
    return api.Condition(has_id=api.HasIdCondition(has_id=point_ids(rows)))


def _match(key: str, numbers: Sequence[int]) -> Any:
    match = (
        api.Match(integer=numbers[0])
        if len(numbers) == 1
        else api.Match(integers=api.RepeatedIntegers(integers=numbers))
    )
    return api.Condition(field=api.FieldCondition(key=key, match=match))


def _range(key: str, **limits: int) -> Any:
    return api.Condition(field=api.FieldCondition(key=key, range=api.Range(**limits)))


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
    """Return the number of replicas of shards by their state, over some collections.

    States are those of Qdrant, such as active or dead, and `unreachable` for replicas of nodes that do not answer: a node
    without a majority of the others learns nothing about them.
    """
    states: Counter[str] = Counter()
    for name in names:
        request = api.CollectionClusterInfoRequest(collection_name=name)
        replies = cluster.replies("CollectionClusterInfo", request, "collections").values()
        answers = [reply for reply in replies if reply is not None]
        peers = {answer.peer_id for answer in answers}
        for info in answers[:1]:
            for shard in (*info.local_shards, *info.remote_shards):
                peer = getattr(shard, "peer_id", info.peer_id)
                is_known = peer in peers or len(answers) == len(replies)
                state = api.ReplicaState.Name(shard.state).lower() if is_known else "unreachable"
                states[state] += 1
    return dict(sorted(states.items()))


def upsert(cluster: Cluster, name: str, points: Sequence[Any]) -> None:
    """Write points, and wait until searches find them; existing ones are replaced."""
    for part in portions(points, POINTS_PER_REQUEST):
        cluster.write("Upsert", api.UpsertPoints(collection_name=name, wait=True, points=part))


def delete_points(cluster: Cluster, name: str, rows: Sequence[int]) -> None:
    """Delete points; those that do not exist are no error."""
    for part in portions(rows, ROWS_PER_PAGE):
        points = api.PointsSelector(points=api.PointsIdsList(ids=point_ids(part)))
        request = api.DeletePoints(collection_name=name, wait=True, points=points)
        cluster.write("Delete", request)


def get(cluster: Cluster, name: str, rows: Sequence[int], *, vectors: bool) -> Any:
    """Yield the points of these rows without their payload; missing ones are skipped."""
    for part in portions(rows, POINTS_PER_REQUEST):
        request = api.GetPoints(
            collection_name=name,
            ids=point_ids(part),
            with_payload=api.WithPayloadSelector(enable=False),
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
    library, number = session.all("SELECT library, nextval('collection_numbers') FROM state")[0]
    return number, f"{_prefix(library)}{number}"


def names(cluster: Cluster, library: str) -> list[str]:
    """Return all collections of a library."""
    reply = cluster.read("List", api.ListCollectionsRequest(), "collections")
    every = [collection.name for collection in reply.collections]
    return [name for name in every if name.startswith(_prefix(library))]


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
