"""Throughput of one and of two worker processes (`serve --workers`), interleaved on the same machine.

`python -m benchmarks.workers` serves two copies of the FastAPI pages, one by one process and one by two. A load generator
in a process of low priority keeps CLIENTS requests in flight, a few seconds at one server and a few at the other, in turns.
It reads lengths, not JSON, and takes about 1 % of the time of a search. Beside the ratio of the throughputs, which needs
two idle cores, the CPU time per search is measured, which does not: where it is equal, idle cores double the throughput.
"""

from __future__ import annotations

import json
import os
import selectors
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import urlencode

import marklight
from benchmarks._measure import corpus, questions, save
from benchmarks.serving import served

CLIENTS = 8
ROUNDS = 6
ROUND_SECONDS = 6.0
QUERIES = 40


def load(port: int, seconds: float, texts: list[str]) -> int:
    """Keep requests in flight over CLIENTS connections; return the number of complete responses."""
    requests = [
        f"GET /api/search?{urlencode({'q': text})} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n".encode()
        for text in texts
    ]
    selector, done, sent = selectors.DefaultSelector(), 0, 0
    received: dict[socket.socket, bytes] = {}
    with ExitStack() as opened:
        for _ in range(CLIENTS):
            client = opened.enter_context(socket.create_connection(("127.0.0.1", port)))
            selector.register(client, selectors.EVENT_READ)
            client.sendall(requests[sent % len(requests)])
            received[client] = b""
            sent += 1
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            for key, _ in selector.select(0.2):
                client = key.fileobj  # type: ignore[assignment]
                received[client] += client.recv(262_144)
                if is_complete(received[client]):
                    done += 1
                    received[client] = b""
                    client.sendall(requests[sent % len(requests)])
                    sent += 1
    return done


def is_complete(response: bytes) -> bool:
    """Return true if all of a response has arrived; raise unless it is a success."""
    head, _, body = response.partition(b"\r\n\r\n")
    if not _:
        return False
    if not head.startswith(b"HTTP/1.1 200"):
        raise SystemExit(f"The server answers {head[:100]!r}")
    length = next(
        int(line[15:])
        for line in head.split(b"\r\n")
        if line.lower().startswith(b"content-length:")
    )
    return len(body) >= length


def cpu_seconds(pid: int) -> float:
    """Return the CPU time of a process and its children."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    total = 0.0
    for each in (pid, *map(int, children)):
        fields = Path(f"/proc/{each}/stat").read_text().rpartition(")")[2].split()
        total += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return total


def busy_seconds() -> float:
    """Return the CPU time that all processes of the machine have taken."""
    fields = [int(field) for field in Path("/proc/stat").read_text().split("\n")[0].split()[1:]]
    return (sum(fields[:8]) - fields[3] - fields[4]) / os.sysconf("SC_CLK_TCK")


def measure(port: int, pid: int, texts: list[str]) -> dict[str, float]:
    """Return the throughput and the CPU time of one round; the load comes from a process of its own."""
    code = (
        "import sys, json; from benchmarks.workers import load; print(load(*json.load(sys.stdin)))"
    )
    cpu, busy, started = cpu_seconds(pid), busy_seconds(), time.perf_counter()
    done = subprocess.run(
        ["nice", "-n", "5", sys.executable, "-c", code],
        input=json.dumps([port, ROUND_SECONDS, texts]),
        capture_output=True,
        text=True,
        check=True,
    )
    seconds, searches = time.perf_counter() - started, int(done.stdout)
    used = cpu_seconds(pid) - cpu
    return {
        "searches_per_second": searches / ROUND_SECONDS,
        "cpu_ms_per_search": 1000 * used / searches,
        "cores_used": used / ROUND_SECONDS,
        "cores_of_others": (busy_seconds() - busy - used) / seconds,
    }


def main() -> None:
    texts = questions("fastapi-anchors")[:QUERIES]
    rounds: dict[str, list[dict[str, float]]] = {"1": [], "2": []}
    with tempfile.TemporaryDirectory() as place, ExitStack() as servers:
        first = Path(place, "1")
        shutil.copytree(corpus("fastapi"), first, copy_function=shutil.copyfile)
        with marklight.open(first) as library:
            library.index()
        shutil.copytree(first, Path(place, "2"))
        running = {
            workers: servers.enter_context(served(Path(place, workers), "--workers", workers))
            for workers in rounds
        }
        for number in range(ROUNDS + 1):
            for workers, figures in rounds.items():
                figure = measure(*running[workers], texts)
                if number:  # the first round loads the models
                    figures.append(figure)
    ratios = [
        two["searches_per_second"] / one["searches_per_second"]
        for one, two in zip(rounds["1"], rounds["2"], strict=True)
    ]

    def median(workers: str, name: str) -> float:
        return statistics.median(figure[name] for figure in rounds[workers])

    save(
        "workers",
        {
            "clients": CLIENTS,
            "rounds": ROUNDS,
            **{
                f"{name}_of_{workers}": median(workers, name)
                for workers in rounds
                for name in rounds["1"][0]
            },
            "ratio": statistics.median(ratios),
            "ratios": sorted(ratios),
        },
    )


if __name__ == "__main__":
    main()
