"""The servers of the tests themselves: their version, their user, and that data survives a kill."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from qdrant_client import QdrantClient, grpc, models

from marklight.engines import Host, QdrantSettings
from marklight.engines.server.qdrant.cluster import Cluster, Unreachable
from tests.servers.qdrant import NOBODY, VERSION, Node, running_nodes


def client(node: Node) -> QdrantClient:
    return QdrantClient(url=node.url, grpc_port=node.grpc_port, prefer_grpc=True)


def test_the_server_has_the_expected_version_and_is_not_root(node: Node) -> None:
    assert client(node).info().version == VERSION
    owner = Path(f"/proc/{node.pid}").stat().st_uid
    assert owner == (os.geteuid() or NOBODY)


def test_points_survive_a_kill(node: Node) -> None:  # the fixture skips where there is no server
    with running_nodes() as (victim,):
        first = client(victim)
        first.create_collection("c", vectors_config={}, sparse_vectors_config={})
        first.upsert("c", [models.PointStruct(id=7, vector={}, payload={"added": 1})], wait=True)
        victim.restart()
        (point,) = client(victim).retrieve("c", [7])
    assert point.payload == {"added": 1}


def test_the_port_for_http_is_recognised(node: Node) -> None:
    cluster = Cluster([Host("127.0.0.1", node.http_port)], QdrantSettings())
    with pytest.raises(Unreachable) as error:
        cluster.read("List", grpc.ListCollectionsRequest(), "collections")
    cluster.close()
    assert "gRPC port" in error.value.hint
