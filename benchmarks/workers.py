"""Serve 1, 8 and 50 clients from one and from two processes: latency, throughput, CPU time per search, memory.

`python -m benchmarks.workers [FOLDER]` serves the Kubernetes pages, or a folder that is indexed already. A load generator
in a process of its own keeps one request of each client in flight; it reads lengths, not JSON, and takes about 1 % of
the time of a search. Times and throughput need two idle cores, the CPU time per search does not: where it is the same
with two processes as with one, idle cores double the throughput.
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
from typing import Any
from urllib.parse import urlencode

import marklight
from benchmarks._measure import corpus, questions, save
from benchmarks.serving import served

CLIENTS = (1, 8, 50)
PROCESSES = (1, 2)
SECONDS = 8.0
"""Duration of each measurement."""
WARM_UP_SECONDS = 3.0
QUERIES = 6000
"""Different queries, so that each is embedded; the servers keep vectors of the most recent 256."""


def load(port: int, clients: int, seconds: float, texts: list[str]) -> list[float]:
    """Keep a request of each client in flight; return the seconds that each complete response took."""
    requests = [
        f"GET /api/search?{urlencode({'q': text})} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n".encode()
        for text in texts
    ]
    selector, sent = selectors.DefaultSelector(), 0
    took: list[float] = []
    received: dict[socket.socket, tuple[float, bytes]] = {}

    def send(client: socket.socket) -> None:
        nonlocal sent
        received[client] = time.perf_counter(), b""
        client.sendall(requests[sent % len(requests)])
        sent += 1

    with ExitStack() as opened:
        for _ in range(clients):
            client = opened.enter_context(socket.create_connection(("127.0.0.1", port)))
            selector.register(client, selectors.EVENT_READ)
            send(client)
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            for key, _ in selector.select(0.2):
                client = key.fileobj  # type: ignore[assignment]
                started, response = received[client]
                response += client.recv(262_144)
                if is_complete(response):
                    took.append(time.perf_counter() - started)
                    send(client)
                else:
                    received[client] = started, response
    return took


def is_complete(response: bytes) -> bool:
    """Return true if all of a response has arrived; raise unless it is a success."""
    head, end, body = response.partition(b"\r\n\r\n")
    if not end:
        return False
    if not head.startswith(b"HTTP/1.1 200"):
        raise SystemExit(f"The server answers {head[:100]!r}")
    length = next(
        int(line[15:])
        for line in head.split(b"\r\n")
        if line.lower().startswith(b"content-length:")
    )
    return len(body) >= length


def processes(pid: int) -> list[int]:
    """Return a process and its children."""
    return [pid, *map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())]


def cpu_seconds(pid: int) -> float:
    """Return the CPU time of a process and its children."""
    total = 0.0
    for each in processes(pid):
        fields = Path(f"/proc/{each}/stat").read_text().rpartition(")")[2].split()
        total += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return total


def megabytes(pid: int) -> list[int]:
    """Return the resident memory of a process and its children without shared files such as the index and the model."""
    values: list[int] = []
    for each in processes(pid):
        lines = Path(f"/proc/{each}/status").read_text().splitlines()
        if value := next((line.split()[1] for line in lines if line.startswith("RssAnon")), None):
            values.append(round(int(value) * 1024 / 1e6))
    return values


def measure(port: int, pid: int, clients: int, seconds: float, texts: list[str]) -> dict[str, Any]:
    """Return latency, throughput, CPU time and memory under load from a process of its own."""
    code = (
        "import sys, json; from benchmarks.workers import load; print(load(*json.load(sys.stdin)))"
    )
    before, cpu = megabytes(pid), cpu_seconds(pid)
    done = subprocess.run(
        [sys.executable, "-c", code],
        input=json.dumps([port, clients, seconds, texts]),
        capture_output=True,
        text=True,
        check=True,
    )
    took = json.loads(done.stdout)
    used = cpu_seconds(pid) - cpu
    return {
        "p50_ms": statistics.median(took) * 1e3,
        "searches_per_second": len(took) / seconds,
        "cpu_ms_per_search": 1e3 * used / len(took),
        "cores_used": used / seconds,
        "megabytes_before": before,
        "megabytes_after": megabytes(pid),
    }


def different_queries(count: int) -> list[str]:
    """Return the questions, each again and again with the last word of another one."""
    texts = questions()
    endings = [text.split()[-1] for text in texts]
    rounds = range(count // len(texts) + 1)
    return [
        f"{text} {endings[number - shift]}" if shift else text
        for shift in rounds
        for number, text in enumerate(texts)
    ][:count]


def main() -> None:
    texts = different_queries(QUERIES)
    figures: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory() as place:
        folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(place, "pages")
        if len(sys.argv) < 2:
            shutil.copytree(corpus("kubernetes"), folder, copy_function=shutil.copyfile)
        with marklight.open(folder) as library:
            passages = library.index().index.chunks
        for count in PROCESSES:
            with served(folder, "--workers", str(count)) as (port, pid):
                measure(port, pid, 4 * count, WARM_UP_SECONDS, texts[-500:])  # loads the models
                for number, clients in enumerate(CLIENTS):
                    figure = measure(port, pid, clients, SECONDS, texts[1500 * number :])
                    figures[f"{clients} clients, {count} processes"] = figure
    save("workers", {"passages": passages, "seconds": SECONDS, **figures})


if __name__ == "__main__":
    main()
