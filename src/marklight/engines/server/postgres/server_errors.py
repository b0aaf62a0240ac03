"""Translate errors of PostgreSQL and of its connections into errors that name the cause and the remedy."""

from __future__ import annotations

import re

import psycopg
from psycopg import errors

from marklight.errors import Busy, ConnectionLost, ReadOnly, StoreError

_FULL = (errors.DiskFull, errors.OutOfMemory, errors.InsufficientResources)
_LOGIN = (errors.InvalidPassword, errors.InvalidAuthorizationSpecification)
_LOGIN_MESSAGES = ("password authentication failed", "no password supplied", "pg_hba.conf")
"""Texts by which a failed login is recognised: libpq reports no code for an error during connecting."""
_ATTEMPT = re.compile(r'connection to server (?:at|on socket) "([^"]*)"[^\n]*? failed: ([^\n]*)')
"""One host in a message of libpq about a failed connection, and the reason."""
_UNCHANGED = "The index is unchanged since the last commit"


class MissingLibrary(StoreError):
    """The library does not exist: no writer has created it yet."""


def explain(error: psycopg.Error, where: str) -> StoreError:
    """Return the error to raise in place of one of PostgreSQL; `where` is the address without the password."""
    reason = first_line(error)
    if isinstance(error, errors.UndefinedTable | errors.InvalidSchemaName):
        return MissingLibrary(f"{where} has no index yet ({reason})", "Run `marklight index`")
    if isinstance(error, errors.QueryCanceled):
        return StoreError(
            f"A statement on {where} took too long and was cancelled: {reason}",
            "Try again when the server is less busy",
        )
    if isinstance(error, errors.LockNotAvailable | errors.DeadlockDetected):
        return Busy(f"{where} is busy: {reason}", "Try again in a moment")
    if isinstance(error, errors.InsufficientPrivilege):
        return StoreError(
            f"The role of this connection may not do this in {where}: {reason}",
            "Ask an administrator of the database for the missing right",
        )
    if isinstance(error, errors.ReadOnlySqlTransaction):
        return ReadOnly(
            f"{where} does not accept changes: the server is a replica or read-only",
            "Use the address of the primary server to update the index",
        )
    if isinstance(error, _FULL):
        return StoreError(
            f"The server of {where} has no space or memory left: {reason}",
            f"{_UNCHANGED}. Free some space on the server and run `marklight index`",
        )
    if is_lost(error):
        return ConnectionLost(
            f"The connection to {where} was lost: {reason}",
            f"{_UNCHANGED}. Try again; if it fails again, check that the server is running",
        )
    return StoreError(f"{where} reports an error: {reason}", "Check the log of the server")


def explain_connecting(error: psycopg.Error, where: str) -> StoreError:
    """Return the error to raise if no connection could be opened."""
    reason = first_line(error)
    if isinstance(error, _LOGIN) or any(text in str(error) for text in _LOGIN_MESSAGES):
        return StoreError(
            f"{where} refuses the login: {reason}",
            "Check user and password: in the address, in PGPASSWORD, or in ~/.pgpass",
        )
    if isinstance(error, errors.InvalidCatalogName) or (
        "database" in str(error) and "does not exist" in str(error)
    ):
        return StoreError(
            f"Cannot open {where}: {reason}",
            "Ask an administrator to create the database: CREATE DATABASE name",
        )
    if isinstance(error, errors.TooManyConnections) or "too many clients" in str(error):
        return Busy(
            f"The server of {where} has no free connection: {reason}",
            "Try again in a moment, or raise max_connections on the server",
        )
    if "session is read-only" in str(error):
        return StoreError(
            f"None of the servers of {where} accepts changes: the primary does not answer",
            "Check that one of the servers is a primary",
        )
    return StoreError(
        f"Cannot connect to {where}: {reason}",
        "Check that the server is running and that the address is right",
    )


def is_lost(error: BaseException) -> bool:
    """Return true if the error ended the connection, or the server is shutting down."""
    return isinstance(
        error,
        errors.AdminShutdown
        | errors.CrashShutdown
        | errors.CannotConnectNow
        | errors.IdleInTransactionSessionTimeout,
    ) or (isinstance(error, psycopg.OperationalError) and error.sqlstate is None)


def first_line(error: psycopg.Error) -> str:
    """Return the message of the server without its details; for a failed connection, the reason for each host."""
    if error.diag.message_primary:
        return error.diag.message_primary.splitlines()[0]
    text = str(error).removeprefix("consuming input failed: ") or type(error).__name__
    if attempts := list(dict.fromkeys(_ATTEMPT.findall(text))):
        reasons = [str(reason).removeprefix("FATAL:").strip() for _, reason in attempts]
        if len(attempts) == 1:
            return reasons[0]
        return "; ".join(
            f"{host}: {reason}" for (host, _), reason in zip(attempts, reasons, strict=True)
        )
    # libpq adds questions such as "Is the server running on that host?".
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return next((line for line in lines if not line.endswith("?")), lines[0]).rstrip(".")
