"""Requests to a cluster: the next node answers where one does not, and messages name cause and remedy."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from qdrant_client import grpc as api

from marklight.engines import Host, QdrantSettings
from marklight.engines.server.qdrant import cluster, collections
from marklight.engines.server.qdrant.cluster import (
    Cluster,
    MissingCollection,
    Unreachable,
    check_version,
)
from marklight.errors import Busy, StoreError
from tests.servers.proxy import Proxy
from tests.servers.qdrant import Node, free_port, running_nodes


def open_cluster(*ports: int, timeout_seconds: float = 5.0) -> Cluster:
    cluster = Cluster([Host("127.0.0.1", port) for port in ports], QdrantSettings())
    cluster.timeout_seconds = timeout_seconds
    return cluster


def exists(nodes: Cluster) -> bool:
    return collections.exists(nodes, "nothing")


@pytest.fixture
def proxy(node: Node) -> Iterator[Proxy]:
    proxy = Proxy(node.grpc_port)
    yield proxy
    proxy.close()


def test_a_dead_node_is_skipped(node: Node) -> None:
    nodes = open_cluster(free_port(), node.grpc_port)
    assert not exists(nodes)
    assert len(nodes.unreachable_nodes()) == 1


def test_a_node_that_is_back_answers_the_next_request(node: Node) -> None:
    with running_nodes() as (victim,):
        nodes = open_cluster(victim.grpc_port)
        assert not exists(nodes)
        victim.kill()
        with pytest.raises(Unreachable):
            exists(nodes)
        victim.start()
        assert not exists(nodes)


def test_without_any_node_the_message_names_the_hosts() -> None:
    port = free_port()
    with pytest.raises(Unreachable, match=f"Cannot connect to Qdrant at 127.0.0.1:{port}") as error:
        exists(open_cluster(port))
    assert "safe in PostgreSQL" in error.value.hint


def test_a_node_behind_a_network_split_delays_one_search_only(
    node: Node, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster, "FIRST_TRY_SECONDS", 0.5)
    nodes = open_cluster(proxy.port, node.grpc_port)
    assert not exists(nodes)
    proxy.split()
    begin = time.monotonic()
    assert not exists(nodes)
    assert 0.4 < time.monotonic() - begin < 3
    begin = time.monotonic()
    assert not exists(nodes)
    assert time.monotonic() - begin < 0.4
    proxy.heal()


def test_a_request_without_an_answer_ends_in_time(proxy: Proxy) -> None:
    nodes = open_cluster(proxy.port, timeout_seconds=0.5)
    assert not exists(nodes)
    proxy.split()
    with pytest.raises(Busy, match="did not answer in time"):
        exists(nodes)
    proxy.heal()
    assert not exists(nodes)


def test_a_missing_collection_is_named_with_the_remedy(node: Node) -> None:
    nodes = open_cluster(node.grpc_port)
    with pytest.raises(MissingCollection, match="marklight_x") as error:
        nodes.read("Get", api.GetPoints(collection_name="marklight_x"))
    assert "marklight doctor" in error.value.hint


def test_deleting_a_missing_collection_is_no_error(node: Node) -> None:
    collections.delete(open_cluster(node.grpc_port), "nothing")


@pytest.mark.parametrize("version, reason", [("1.11.5", "oldest supported"), ("0.9", "oldest")])
def test_a_server_of_another_version_is_refused(version: str, reason: str) -> None:
    with pytest.raises(StoreError, match=reason) as error:
        check_version(version, "host:6334")
    assert version in error.value.message
    assert "pgrade" in error.value.hint


@pytest.mark.parametrize("version", ["1.12.0", "1.16.3", "1.99.0", "2.0.1", "dev", ""])
def test_supported_versions_are_accepted(version: str) -> None:
    check_version(version, "host:6334")


def test_an_api_key_never_appears_in_a_message(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QDRANT_API_KEY", "a-secret-key")
    with pytest.raises(StoreError) as error:
        exists(open_cluster(free_port()))
    assert "secret" not in f"{error.value} {error.value.__cause__!r}"
