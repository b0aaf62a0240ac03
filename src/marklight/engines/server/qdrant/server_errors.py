"""Translate errors of Qdrant's gRPC interface into errors that name the cause and the remedy."""

from __future__ import annotations

import grpc

from marklight.errors import Busy, StoreError

OLDEST = (1, 12)
"""Oldest server, as major and minor version, that has all requests that the engine sends."""
NEWEST_MAJOR = 1
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
    """Raise StoreError if a server is too old, or of a newer major version."""
    parts = version.split(".")
    try:
        found = int(parts[0]), int(parts[1])
    except (ValueError, IndexError):
        return  # a build without a version, such as from source
    if found < OLDEST:
        oldest = ".".join(map(str, OLDEST))
        raise StoreError(
            f"Qdrant at {where} has version {version}; the oldest supported one is {oldest}",
            "Upgrade the server",
        )
    if found[0] > NEWEST_MAJOR:
        raise StoreError(
            f"Qdrant at {where} has version {version}, which is newer than this version of Marklight supports",
            f"Upgrade Marklight, or use a server of version {NEWEST_MAJOR}",
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
