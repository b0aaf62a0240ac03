"""Connections of the PostgreSQL engine over 10,000 searches with faults: are any leaked, and what does an idle one take?

`python -m benchmarks.connection_faults [SEARCHES]`. Four threads search one library. Every hundredth search, on average,
all connections are ended by the server in the middle of it, every hundredth raises an error while its snapshot is open, and
twice the server is killed (SIGKILL) and started again. As the library does, a search is repeated once after a lost connection.
"""

from __future__ import annotations

import random
import sys
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil  # type: ignore[import-untyped]
from tests.contracts.builders import commit, embedding, entry, vector
from tests.servers.postgres import PostgresServer, new_server

from benchmarks._measure import save
from marklight.engines import PostgresSettings, ServerSettings, parse_address
from marklight.engines.server.postgres.engine import PostgresEngine
from marklight.errors import ConnectionLost, StoreError
from marklight.model import Batch
from marklight.ports import FIELD_BOOSTS
from marklight.query import Filters

SEARCHES, THREADS, CONNECTIONS, DOCUMENTS = 10_000, 4, 8, 300
OWN = "FROM pg_stat_activity WHERE application_name = 'marklight'"


class Faults:
    """Searches of one library, and the faults that are injected into them."""

    def __init__(self, server: PostgresServer, engine: PostgresEngine) -> None:
        self.server, self.engine = server, engine
        self.counts: Counter[str] = Counter()
        self.most = 0
        self._lock = threading.Lock()

    def search(self, number: int) -> None:
        """Search once, and once more after a lost connection."""
        chance = random.Random(number)
        cut, raised = chance.random() < 0.01, chance.random() < 0.01
        for attempt in (1, 2):
            try:
                self._read(number, cut and attempt == 1, raised)
                self._count("answered", attempt)
                return
            except ZeroDivisionError:
                self._count("error inside a snapshot")
                return
            except ConnectionLost:
                self._count("connection lost", attempt)
            except StoreError as error:  # the server is down
                self._count(type(error).__name__)
                time.sleep(0.1)

    def _read(self, number: int, cut: bool, raised: bool) -> None:
        with self.engine.snapshot() as snapshot:
            found = snapshot.lexical.search(["appl", "pear"], FIELD_BOOSTS, Filters(), 20)
            assert len(found) == 20
            if cut:
                self.server.sql(f"SELECT pg_terminate_backend(pid) {OWN}")
            if raised:
                raise ZeroDivisionError
            assert len(snapshot.vectors.search(vector(str(number)), "m", Filters(), 20)) == 20
            snapshot.documents.files_of(
                [snapshot.documents.chunks([found[0].chunk_id])[0].document]
            )

    def _count(self, what: str, attempt: int = 1) -> None:
        with self._lock:
            self.counts[what if attempt == 1 else f"{what}, second attempt"] += 1

    def connections(self) -> int:
        """Return the number of open connections of the engine."""
        (row,) = self.server.sql(f"SELECT count(*) {OWN}")
        self.most = max(self.most, int(str(row[0])))
        return int(str(row[0]))


def idle_megabytes(server: PostgresServer) -> list[float]:
    """Return the private memory of each backend, in MB."""
    sizes = []
    for (pid,) in server.sql(f"SELECT pid {OWN}"):
        report = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        sizes.append(sum(int(line.split()[1]) for line in report if "Private_Dirty" in line) / 1024)
    return sorted(round(size, 1) for size in sizes)


def main(searches: int) -> None:
    with new_server() as server:
        settings = ServerSettings(postgres=PostgresSettings(connections=CONNECTIONS))
        engine = PostgresEngine(parse_address(server.address()), settings)
        documents = [entry(f"{at}.md", f"apple pear {at}", f"plum {at}") for at in range(DOCUMENTS)]
        commit(engine, Batch(entries=tuple(documents)))
        commit(engine, embedding(*documents))
        faults, process = Faults(server, engine), psutil.Process()
        memory: list[float] = []
        started = time.perf_counter()
        for part in range(10):
            numbers = range(part * searches // 10, (part + 1) * searches // 10)
            with ThreadPoolExecutor(THREADS) as threads:
                running = [threads.submit(faults.search, number) for number in numbers]
                if part in (3, 6):
                    time.sleep(0.2)
                    server.kill()
                    server.start()
                for each in running:
                    each.result()
            faults.connections()
            memory.append(round(process.memory_info().rss / 1e6, 1))
        seconds = time.perf_counter() - started
        busy = server.sql(f"SELECT count(*) {OWN} AND state <> 'idle'")[0][0]
        result = {
            "searches": searches,
            "outcomes": dict(sorted(faults.counts.items())),
            "searches_per_second": round(searches / seconds, 1),
            "pool_limit": CONNECTIONS,
            "most_connections": faults.most,
            "connections_after": faults.connections(),
            "connections_in_a_transaction_after": busy,
            "idle_connection_mb": idle_megabytes(server),
            "client_memory_mb": memory,
        }
        engine.close()
        deadline = time.monotonic() + 5
        while faults.connections() and time.monotonic() < deadline:
            time.sleep(0.05)
        result["connections_after_closing"] = faults.connections()
    save("connection_faults", result)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else SEARCHES)
