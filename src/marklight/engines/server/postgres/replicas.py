"""Searches from replicas: an address with several hosts, of which one is the primary and the others follow it.

A thread per host probes its role and its position in the write-ahead log (LSN) every second. The positions of the primary
are kept with the time of the probe, so the age of a replica's data is known exactly, whatever the clocks show: it is at most
the age of the newest position of the primary that the replica has replayed. Writes always go to the primary, and a
process that has written reads from servers that have replayed its commit.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import field
from math import inf
from threading import Condition, Event, Thread
from typing import Any, cast

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from marklight.engines.server.postgres.connections import (
    AnyConnection,
    Connections,
    ServerAddress,
    first_line,
)
from marklight.engines.server.postgres.session import PostgresSession
from marklight.lazy import dataclass

PROBE_SECONDS = 1.0
CONNECT_SECONDS = 3
"""Time limit for connecting to a host, and for an answer to a probe."""
MAX_AGE_SECONDS = 5.0
"""Age of the last successful probe after which a host counts as unreachable."""
IDLE_SECONDS = 60.0
"""Time without a search after which the hosts are no longer probed."""
FIRST_SECONDS = 4.0
"""Most time that the first search waits for the probes."""
WITHOUT_REPLICAS = ("primary", "read-write")
"""Values of `target_session_attrs` with which all searches go to the primary."""
ONLY_REPLICAS = ("standby", "read-only")
"""Values of `target_session_attrs` with which no search goes to the primary."""

_POSITION = "CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_insert_lsn() END"
_PROBE = (
    f"SELECT pg_is_in_recovery(), ({_POSITION} - '0/0'::pg_lsn)::bigint,"
    " extract(epoch FROM now() - pg_last_xact_replay_timestamp())::float8"
)
_COMMITTED = "SELECT (pg_current_wal_insert_lsn() - '0/0'::pg_lsn)::bigint"


def split_hosts(dsn: str) -> list[str]:
    """Return a connection string for each host of one that may have several."""
    parts = cast(dict[str, Any], conninfo_to_dict(dsn))
    lists = {
        name: str(parts[name]).split(",") for name in ("host", "hostaddr", "port") if name in parts
    }
    count = max((len(values) for values in lists.values()), default=1)
    if count == 1:
        return [dsn]
    parts.pop("load_balance_hosts", None)
    parts["target_session_attrs"] = "any"
    split = []
    for number in range(count):
        place = {name: values[number % len(values)] for name, values in lists.items()}
        split.append(make_conninfo(**(parts | place)))
    return split


def primary_dsn(dsn: str) -> str:
    """Return a connection string that connects to the primary, whichever of the hosts it is now."""
    if len(split_hosts(dsn)) == 1:
        return dsn
    return make_conninfo(dsn, target_session_attrs="read-write")


@dataclass(slots=True)
class ProbedHost:
    """A server and what the last probe returned."""

    connections: Connections
    name: str
    role: str = ""
    """`primary`, `replica`, or empty while it does not answer."""
    position: int = 0
    """Position in the write-ahead log up to which its data is visible."""
    probed_at: float = -inf
    """Time at which the last successful probe began."""
    tried_at: float = -inf
    replayed_seconds: float | None = None
    """Seconds since the last transaction that a replica has replayed was committed."""
    problem: str = ""
    wake: Event = field(default_factory=Event)
    thread: Thread | None = None

    @property
    def is_reachable(self) -> bool:
        """Return true if the server answered lately."""
        return bool(self.role) and time.monotonic() - self.probed_at < MAX_AGE_SECONDS


class Readers:
    """Chooses the server for each snapshot: a replica within the staleness bound, in turns, else the primary.

    With one host there is nothing to choose, and it is not probed.
    """

    def __init__(self, address: ServerAddress, staleness_seconds: float, max_size: int) -> None:
        self.staleness_seconds = staleness_seconds
        self._attributes = conninfo_to_dict(address.dsn).get("target_session_attrs", "any")
        hosts = split_hosts(address.dsn)
        self._is_single = len(hosts) == 1
        shown = address.shown if self._is_single else ""
        addresses = [ServerAddress(dsn, address.library, shown) for dsn in hosts]
        self._hosts = [
            ProbedHost(Connections(server, max_size=max_size), server.host) for server in addresses
        ]
        self._changed = Condition()
        self._primary_positions: deque[tuple[float, int]] = deque()
        """Times of probes of the primary and its positions then, ascending."""
        self._primary_name = ""
        self._required = 0
        """Position of the last commit of this process."""
        self._turn = 0
        self._used_at = 0.0
        self._closed = False
        self._notice = ""

    # Choice

    def choose(self) -> Connections:
        """Return the connections to the server for the next snapshot."""
        if self._is_single:
            return self._hosts[0].connections
        with self._changed:
            self._start_probes()
            self._changed.wait_for(
                lambda: self._fresh() or self._primary() or self._all_tried(), FIRST_SECONDS
            )
            return (self._pick() or self._hosts[0]).connections

    def _pick(self) -> ProbedHost | None:
        primary, replicas = self._primary(), self._reachable("replica")
        if self._attributes in WITHOUT_REPLICAS:
            return primary
        if fresh := self._fresh():
            self._turn += 1
            return fresh[self._turn % len(fresh)]
        if primary and self._attributes not in ONLY_REPLICAS:
            return primary
        if not replicas:
            return None
        best = max(replicas, key=lambda host: host.position)
        if primary is None:
            self._notice = (
                "The primary server does not answer; results come from a replica"
                " and may lack the last changes"
            )
        else:
            self._notice = (
                f"All replicas are more than {self.staleness_seconds:g} s behind the primary;"
                " results come from the most recent one"
            )
        return best

    def _fresh(self) -> list[ProbedHost]:
        """Return the replicas within the staleness bound that have replayed the last commit of this process."""
        return [
            host
            for host in self._reachable("replica")
            if host.position >= self._required and self._staleness(host) <= self.staleness_seconds
        ]

    def _staleness(self, host: ProbedHost) -> float:
        """Return an upper bound for the age of a replica's data; infinity if it is not known."""
        replayed = [at for at, position in self._primary_positions if position <= host.position]
        return time.monotonic() - replayed[-1] if replayed else inf

    def _reachable(self, role: str) -> list[ProbedHost]:
        return [host for host in self._hosts if host.role == role and host.is_reachable]

    def _primary(self) -> ProbedHost | None:
        return next(iter(self._reachable("primary")), None)

    def _all_tried(self) -> bool:
        now = time.monotonic()
        return all(now - host.tried_at < MAX_AGE_SECONDS for host in self._hosts)

    # Events

    def committed(self, session: PostgresSession) -> None:
        """Let the next searches of this process see what it has just committed."""
        if self._is_single:
            return
        started, position = time.monotonic(), int(session.value(_COMMITTED))
        server = session.connection.info
        with self._changed:
            self._required = max(self._required, position)
            for host in self._hosts:
                # The next probe may be a second away, and until then this server could count as unreachable.
                if host.name == f"{server.host}:{server.port}":
                    self._record(host, started, False, position, None)

    def failed(self, connections: Connections) -> None:
        """Leave a server out until a probe succeeds again."""
        with self._changed:
            for host in self._hosts:
                if host.connections is connections:
                    host.role = ""
                    host.wake.set()

    def take_notices(self) -> list[str]:
        """Return and clear the notice about the servers that the last snapshots were read from."""
        with self._changed:
            notice, self._notice = self._notice, ""
        return [notice] if notice else []

    def primary_answers(self) -> bool:
        """Return false if it is known that no server accepts changes now."""
        if self._is_single:
            return True
        with self._changed:
            self._start_probes()
            self._changed.wait_for(lambda: self._primary() or self._all_tried(), FIRST_SECONDS)
            return self._primary() is not None

    def status(self) -> Mapping[str, Mapping[str, Any]]:
        """Return the role and the lag of each of several servers as JSON values."""
        if self._is_single:
            return {}
        with self._changed:
            self._start_probes()
            self._changed.wait_for(self._all_tried, FIRST_SECONDS)
            primary, fresh = self._primary(), self._fresh()
            return {host.name: self._describe(host, primary, fresh) for host in self._hosts}

    def _describe(
        self, host: ProbedHost, primary: ProbedHost | None, fresh: Sequence[ProbedHost]
    ) -> dict[str, Any]:
        if not host.is_reachable:
            return {"role": "unreachable", "problem": host.problem}
        if host.role == "primary" or primary is None:
            return {"role": host.role}
        behind = max(0, primary.position - host.position)
        seconds = host.replayed_seconds if behind else 0.0
        return {
            "role": host.role,
            "searched": host in fresh,
            "behind_bytes": behind,
            **({} if seconds is None else {"behind_seconds": round(seconds, 1)}),
        }

    def close(self) -> None:
        """Close all connections; the probes end by themselves."""
        with self._changed:
            self._closed = True
            threads = [host.thread for host in self._hosts if host.thread]
            for host in self._hosts:
                host.wake.set()
        for thread in threads:
            thread.join(CONNECT_SECONDS)
        for host in self._hosts:
            host.connections.close()

    # Probes

    def _start_probes(self) -> None:
        self._used_at = time.monotonic()
        self._closed = False
        for host in self._hosts:
            if host.thread is None:
                host.thread = Thread(
                    target=self._probe_until_idle, args=(host,), name="marklight-probe", daemon=True
                )
                host.thread.start()

    def _probe_until_idle(self, host: ProbedHost) -> None:
        """Probe one server every second, while there are searches."""
        connection: AnyConnection | None = None
        while True:
            started = time.monotonic()
            try:
                connection = connection or _connect(host.connections.address.dsn)
                row = connection.execute(_PROBE.encode()).fetchone()
                assert row is not None
            except psycopg.Error as error:
                with suppress(psycopg.Error):
                    if connection:
                        connection.close()
                connection, row = None, (None, first_line(error), None)
            with self._changed:
                self._record(host, started, *row)
                self._abort_silent()
                self._changed.notify_all()
                idle = time.monotonic() - self._used_at > IDLE_SECONDS
                if self._closed or idle:
                    host.thread, host.role = None, ""
                    break
            host.wake.wait(PROBE_SECONDS)
            host.wake.clear()
        if connection:
            connection.close()

    def _abort_silent(self) -> None:
        """End the searches on servers whose probes get no answer, as in a network that loses all packets."""
        for host in self._hosts:
            if host.role and not host.is_reachable:
                host.role, host.problem = "", "It does not answer"
                host.connections.abort()

    def _record(
        self,
        host: ProbedHost,
        started: float,
        in_recovery: bool | None,
        position: Any,
        replayed: float | None,
    ) -> None:
        host.tried_at = time.monotonic()
        if in_recovery is None:
            host.role, host.problem = "", str(position)
            return
        host.role, host.problem = "replica" if in_recovery else "primary", ""
        host.position, host.probed_at, host.replayed_seconds = int(position), started, replayed
        if host.role == "primary":
            if self._primary_name not in ("", host.name):
                # After a failover, positions of the former primary that were lost are never reached.
                self._primary_positions.clear()
                self._required = 0
            self._primary_name = host.name
            self._primary_positions.append((started, host.position))
            oldest = started - self.staleness_seconds
            while self._primary_positions[0][0] < oldest:
                self._primary_positions.popleft()


def _connect(dsn: str) -> AnyConnection:
    options = {"connect_timeout": CONNECT_SECONDS, "tcp_user_timeout": CONNECT_SECONDS * 1000}
    conninfo = make_conninfo(dsn, application_name="marklight probe", **options)
    return psycopg.connect(conninfo, autocommit=True)
