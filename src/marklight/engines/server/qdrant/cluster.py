"""Connections to the nodes of a Qdrant cluster: gRPC, with failover to the next node, and its errors as our own.

The messages and stubs of the official client are used directly: its own methods convert every point, which takes longer
than the search (2.0 ms against 1.0 for 100 results).
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Sequence
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

import grpc
from qdrant_client import grpc as api

from marklight.errors import Busy, StoreError

if TYPE_CHECKING:
    from marklight.engines import Host, QdrantSettings

LEFT_OUT_SECONDS = 5.0
"""Seconds for which a node that did not answer is asked last, and a request that all nodes refuse is not repeated."""
READ_SECONDS = 4.0
"""Time for which a read is repeated: after the loss of a node, a cluster needs a moment to notice it."""
FIRST_TRY_SECONDS = 2.0
"""Time limit of a read if another node can answer it too: a node behind a network split never answers."""
FIRST_WRITE_SECONDS = 5.0
"""Time limit of a change if another node can accept it too; it takes longer than a read."""
PAUSE_SECONDS = 0.2
"""Pause before all nodes are tried again."""
MAX_MESSAGE_BYTES = 256 << 20
_OPTIONS = (
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1000),
    ("grpc.enable_http_proxy", 0),
    # Otherwise a new channel shares the connection, and its pause after a failure, with the one that it replaces.
    ("grpc.use_local_subchannel_pool", 1),
)
_STUBS: dict[str, Any] = {
    "points": api.PointsStub,
    "collections": api.CollectionsStub,
    "server": api.QdrantStub,
}
OLDEST = (1, 12)
"""Oldest server, as major and minor version, that has all requests that the engine sends."""
KEY_VARIABLE = "QDRANT_API_KEY"
"""Environment variable with the API key."""
_SAVED = "The documents are safe in PostgreSQL"
_TRY_NEXT = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)


class Unreachable(StoreError):
    """No Qdrant node answers; what was not written yet stays in the outbox."""


class MissingCollection(StoreError):
    """A collection was deleted; it is rebuilt from PostgreSQL."""


def concerns_one_node(error: grpc.RpcError) -> bool:
    """Return true if another node of the cluster may answer the same request."""
    if error.code() in _TRY_NEXT:
        return True
    # A node that forwards a request to one that has just died reports an internal error.
    return error.code() is grpc.StatusCode.INTERNAL and not _is_full(error)


def explain(error: grpc.RpcError, where: str) -> StoreError:
    """Return the error to raise in place of one of gRPC; `where` names the hosts."""
    code, reason = error.code(), reason_of(error)
    if code is grpc.StatusCode.NOT_FOUND:
        return MissingCollection(
            f"A Qdrant collection at {where} is missing: {reason}",
            "Run `marklight doctor`: it rebuilds the collection from PostgreSQL; nothing is embedded again",
        )
    if code in (grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED):
        return StoreError(
            f"Qdrant at {where} refuses the API key: {reason}",
            f"Put the key into the environment variable {KEY_VARIABLE}",
        )
    if code is grpc.StatusCode.UNAVAILABLE and "HTTP/2" in reason:
        return Unreachable(
            f"Qdrant at {where} does not answer over gRPC: {reason}",
            f"Give the gRPC port of each node (6334 unless changed), not the one for HTTP (6333). {_SAVED}",
        )
    if code is grpc.StatusCode.UNAVAILABLE:
        return Unreachable(
            f"Cannot connect to Qdrant at {where}: {reason}",
            f"Check that a node is running and that the address is right. {_SAVED}",
        )
    if code is grpc.StatusCode.DEADLINE_EXCEEDED:
        return Busy(
            f"Qdrant at {where} did not answer in time",
            "Try again in a moment; if it happens often, the cluster needs more nodes or memory",
        )
    if _is_full(error):
        return StoreError(
            f"Qdrant at {where} has no space or memory left: {reason}",
            f"{_SAVED}. Free some space on the node and run `marklight index`",
        )
    return StoreError(
        f"Qdrant at {where} reports an error: {reason}", f"{_SAVED}. Check the log of the server"
    )


def check_version(version: str, where: str) -> None:
    """Raise StoreError if a server is too old; a build without a version, such as from source, is accepted."""
    numbers = re.match(r"(\d+)\.(\d+)", version)
    if numbers and (int(numbers[1]), int(numbers[2])) < OLDEST:
        oldest = ".".join(map(str, OLDEST))
        raise StoreError(
            f"Qdrant at {where} has version {version}; the oldest supported one is {oldest}",
            "Upgrade the server",
        )


def reason_of(error: grpc.RpcError) -> str:
    """Return what the server reports, in one short line."""
    lines = str(error.details() or "").splitlines() or [str(error.code().name)]
    return lines[0][:200]


def _is_full(error: grpc.RpcError) -> bool:
    text = (error.details() or "").lower()
    return error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED or any(
        sign in text for sign in ("no space left", "disk is full", "out of memory")
    )


class _Node:
    """One host: its channel is opened on first use, its version is checked once."""

    def __init__(self, host: Host, credentials: grpc.ChannelCredentials | None) -> None:
        self.host = host
        self.left_out_until = 0.0
        self._credentials = credentials
        self._lock = Lock()
        self._channel: grpc.Channel | None = None
        self._stubs: dict[str, Any] = {}
        self._is_checked = False

    def call(self, service: str, method: str, request: Any, metadata: Any, seconds: float) -> Any:
        stubs = self._open()
        if not self._is_checked:
            reply = stubs["server"].HealthCheck(
                api.HealthCheckRequest(), metadata=metadata, timeout=seconds
            )
            check_version(reply.version, str(self.host))
            self._is_checked = True
        return getattr(stubs[service], method)(request, metadata=metadata, timeout=seconds)

    def _open(self) -> dict[str, Any]:
        with self._lock:
            if self._channel is None:
                target = str(self.host)
                self._channel = (
                    grpc.secure_channel(target, self._credentials, _OPTIONS)
                    if self._credentials
                    else grpc.insecure_channel(target, _OPTIONS)
                )
                self._stubs = {name: stub(self._channel) for name, stub in _STUBS.items()}
            return self._stubs

    def forget(self) -> None:
        """Open another channel for the next request; requests of other threads end on this one."""
        with self._lock:
            self._channel, self._stubs, self._is_checked = None, {}, False

    def close(self) -> None:
        channel = self._channel
        self.forget()
        if channel is not None:
            channel.close()


def _tls_credentials(settings: QdrantSettings) -> grpc.ChannelCredentials | None:
    """Return the certificates that a node is checked with; None for connections without TLS."""
    if not settings.tls:
        return None
    try:
        authorities = Path(settings.ca_file).expanduser().read_bytes() if settings.ca_file else None
    except OSError as error:
        raise StoreError(
            f"The certificates in {settings.ca_file} cannot be read: {error.strerror}",
            "Correct qdrant.ca_file, or remove it to use the usual public authorities",
        ) from error
    return grpc.ssl_channel_credentials(authorities)


class Cluster:
    """All nodes of a cluster: each answers for the others, so any one will do."""

    timeout_seconds = 10.0
    """Time limit of one request, with all attempts at other nodes."""

    def __init__(self, hosts: Sequence[Host], settings: QdrantSettings) -> None:
        self.settings = settings
        credentials = _tls_credentials(settings)
        self._nodes = [_Node(host, credentials) for host in hosts]
        key = os.environ.get(KEY_VARIABLE, "")
        self._metadata = (("api-key", key),) if key else ()
        self._failing_until = 0.0

    def __str__(self) -> str:
        return ",".join(str(node.host) for node in self._nodes)

    @property
    def size(self) -> int:
        """Return the number of nodes in the address."""
        return len(self._nodes)

    def read(self, method: str, request: Any, service: str = "points") -> Any:
        """Send a request to a node; if it does not answer soon, to the next one."""
        return self._call(service, method, request, FIRST_TRY_SECONDS, READ_SECONDS)

    def write(self, method: str, request: Any, service: str = "points") -> Any:
        """Send an idempotent change; try again, at other nodes too, while the time limit lasts."""
        return self._call(service, method, request, FIRST_WRITE_SECONDS, self.timeout_seconds)

    def _call(
        self, service: str, method: str, request: Any, first_seconds: float, repeat_seconds: float
    ) -> Any:
        seconds = self.timeout_seconds
        if len(self._nodes) > 1:
            seconds = min(seconds, first_seconds)
        end = time.monotonic() + repeat_seconds
        while True:
            for node in self._preferred():
                try:
                    reply = node.call(service, method, request, self._metadata, seconds)
                except grpc.RpcError as error:
                    if not concerns_one_node(error):
                        raise explain(error, str(self)) from error
                    node.left_out_until = time.monotonic() + LEFT_OUT_SECONDS
                    if error.code() is grpc.StatusCode.UNAVAILABLE:
                        node.forget()  # else the channel refuses requests for a while when the node is back
                    last, seconds = error, self.timeout_seconds
                else:
                    node.left_out_until = self._failing_until = 0.0
                    return reply
            now = time.monotonic()
            if now + PAUSE_SECONDS > end or now < self._failing_until or len(self._nodes) == 1:
                # Without two of three nodes, say, every search would take this long to fail.
                self._failing_until = now + LEFT_OUT_SECONDS
                raise explain(last, str(self)) from last
            time.sleep(PAUSE_SECONDS)

    def _preferred(self) -> list[_Node]:
        """Return the nodes in the order of the address, those that did not answer lately at the end."""
        now = time.monotonic()
        return sorted(self._nodes, key=lambda node: max(0.0, node.left_out_until - now))

    def replies(self, method: str, request: Any, service: str) -> dict[str, Any]:
        """Return the reply of each node; None for one that does not answer now."""
        replies: dict[str, Any] = {}
        for node in self._nodes:
            try:
                reply = node.call(service, method, request, self._metadata, FIRST_TRY_SECONDS)
            except grpc.RpcError:
                reply = None
            replies[str(node.host)] = reply
        return replies

    def unreachable_nodes(self) -> list[str]:
        """Return the nodes that do not answer now."""
        replies = self.replies("HealthCheck", api.HealthCheckRequest(), "server")
        return [name for name, reply in replies.items() if reply is None]

    def close(self) -> None:
        """Close all connections; the next request opens new ones."""
        for node in self._nodes:
            node.close()
