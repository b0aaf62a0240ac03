"""Points and their payload: a point is a passage, its id is the row number.

The payload has what filters compare, as numbers: nothing that a user wrote is stored in a form that could be read or
interpreted. `labels` are hashes of collection and folders, tags and metadata pairs, languages and the document.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

from qdrant_client import grpc as api

from marklight.engines.metadata_filters import normalize_language
from marklight.engines.server.qdrant.terms import StoredTerms
from marklight.model import DocumentId, digest

if TYPE_CHECKING:
    from marklight.engines.metadata_filters import MetadataPair

TERMS = "terms"
"""Name of the sparse vector."""
LABELS, DATES, DOCUMENT, ADDED, REMOVED = "labels", "dates", "document", "added", "removed"
"""Keys of the payload; `added` and `removed` are generations."""
LOOKED_UP, COMPARED = (LABELS, DOCUMENT), (DATES, ADDED, REMOVED)
"""Keys that filters compare for equality, and by range: each has a payload index."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


class Payload(NamedTuple):
    """Values that filters compare."""

    document: int
    labels: Sequence[int]
    dates: Sequence[int]
    """The document's date in microseconds; earlier ones too while a reader may need them."""
    added: int

    def fields(self) -> dict[str, Any]:
        """Return the payload of a message."""
        return {
            DOCUMENT: api.Value(integer_value=self.document),
            LABELS: integers(self.labels),
            DATES: integers(self.dates),
            ADDED: api.Value(integer_value=self.added),
        }


def integers(numbers: Iterable[int]) -> Any:
    """Return a list of numbers as a value of a payload."""
    values = [api.Value(integer_value=number) for number in numbers]
    return api.Value(list_value=api.ListValue(values=values))


def label(*parts: str) -> int:
    """Return the label of a property: 63 bits of a hash."""
    return int(digest(*parts, size=8), 16) >> 1


def folder_label(collection: str, folder: str) -> int:
    """Return the label of all documents below a folder; an empty folder is the whole collection."""
    return label("folder", collection, folder)


def pair_label(key: str, value: str) -> int:
    """Return the label of a metadata pair, or of a tag."""
    return label("pair", key, value)


def language_label(language: str) -> int:
    """Return the label of passages with code in a language."""
    return label("language", normalize_language(language))


def document_label(collection: str, path: str) -> int:
    """Return the label of a document."""
    return label("document", collection, path)


def document_labels(document: DocumentId, pairs: Iterable[MetadataPair]) -> set[int]:
    """Return the labels that all passages of a document share."""
    collection, path = document
    folders = [path[:at] for at, character in enumerate(path) if character == "/"]
    return {
        document_label(collection, path),
        *(folder_label(collection, folder) for folder in ("", *folders)),
        *(pair_label(*pair) for pair in pairs),
    }


def passage_labels(shared: set[int], languages: Iterable[str]) -> list[int]:
    """Return all labels of a passage, sorted."""
    return sorted(shared.union(map(language_label, languages)))


def microseconds(when: str) -> int:
    """Return a timestamp (ISO 8601, UTC) in microseconds since 1970."""
    moment = datetime.fromisoformat(when)
    return ((moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - _EPOCH) // _MICROSECOND


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


def stored_terms(point: Any) -> StoredTerms:
    """Return the sparse vector of a point."""
    vector = point.vectors.vectors.vectors[TERMS]
    # Servers up to 1.16 return them in fields that are deprecated.
    sparse = vector.HasField("sparse")
    return StoredTerms.sorted(
        vector.sparse.indices if sparse else vector.indices.data,
        vector.sparse.values if sparse else vector.data,
    )


def point_ids(rows: Iterable[int]) -> list[Any]:
    """Return rows as ids of points."""
    return [api.PointId(num=row) for row in rows]


def selector(rows: Iterable[int]) -> Any:
    """Return a selector of points by their rows."""
    return api.PointsSelector(points=api.PointsIdsList(ids=point_ids(rows)))


def portions(rows: Sequence[Any], size: int) -> Iterator[Sequence[Any]]:
    """Yield parts of a list, none of them longer than `size`."""
    for at in range(0, len(rows), size):
        yield rows[at : at + size]
