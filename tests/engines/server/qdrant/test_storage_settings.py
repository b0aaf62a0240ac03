"""Settings of how Qdrant stores vectors: they change the collection on the server, and not the results."""

from __future__ import annotations

import numpy as np
import pytest
from qdrant_client import QdrantClient, models

from marklight import engines
from marklight.engines import QdrantSettings, ServerSettings
from marklight.model import Batch, Vectors
from marklight.query import Filters
from tests.contracts.builders import entry, vector
from tests.servers.qdrant import Node, new_fleet_library

SETTINGS = {
    "scalar": QdrantSettings(quantization="scalar"),
    "binary": QdrantSettings(quantization="binary"),
    "on disk": QdrantSettings(on_disk=True),
    "on disk, scalar": QdrantSettings(quantization="scalar", on_disk=True),
}


@pytest.mark.parametrize("name", SETTINGS)
def test_compressed_vectors_give_the_scores_of_full_ones(node: Node, name: str) -> None:
    settings = SETTINGS[name]
    documents = [entry(f"{at}.md", f"apple {at}") for at in range(40)]
    digests = tuple(each.chunks[0].digest for each in documents)
    rows = np.stack([vector(digest) for digest in digests])
    client = QdrantClient(url=node.url, check_compatibility=False)
    of_others = {each.name for each in client.get_collections().collections}
    with new_fleet_library([node]) as address:
        engine = engines.open(address, ServerSettings(qdrant=settings))
        with engine.writing(5):
            engine.commit(Batch(tuple(documents), vectors=Vectors("m", digests, rows)))
        with engine.snapshot() as snapshot:
            found = snapshot.vectors.search(rows[7], "m", Filters(), 3)
        stored = described(client, of_others)
        engine.close()
    client.close()
    assert found[0].chunk_id == documents[7].chunks[0].id
    assert found[0].score == pytest.approx(1.0, abs=1e-5)
    assert type(stored.quantization_config) is {
        "none": type(None),
        "scalar": models.ScalarQuantization,
        "binary": models.BinaryQuantization,
    }.get(settings.quantization)
    assert bool(stored.on_disk) == settings.on_disk


def described(client: QdrantClient, of_others: set[str]) -> models.VectorParams:
    """Return the parameters of the dense vectors of the new library, with the quantization of their collection."""
    for listed in client.get_collections().collections:
        if listed.name in of_others:
            continue
        config = client.get_collection(listed.name).config
        if isinstance(config.params.vectors, models.VectorParams):
            found = config.params.vectors
        elif config.params.vectors:
            (found,) = config.params.vectors.values()
        else:
            continue
        quantization = found.quantization_config or config.quantization_config
        return found.model_copy(update={"quantization_config": quantization})
    raise AssertionError("no collection has dense vectors")
