"""Load test: fifty concurrent clients while a writer adds documents; counts errors, lost updates and inconsistent answers.

`python -m benchmarks.serving` starts `marklight serve` on a copy of the FastAPI pages. The writer adds a document, waits until it
is found, and adds the next. Beforehand, the same documents are added to a library without load, which runs all
queries after every commit: an answer under load must equal one of those.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import marklight
from benchmarks._measure import corpus, questions, save
from marklight.model import Batch

CLIENTS = 50
PROCESSES = 5
SEARCHES = 2000
DOCUMENTS = 8
"""Number of documents that the writer adds."""
QUERIES = 20
PROGRAM = (sys.executable, "-c", "from marklight.surfaces.cli import main; main()")

Ranking = tuple[tuple[str, float], ...]
"""Passages and scores of an answer."""


def new_document(number: int) -> str:
    """Return a document of one passage with a unique word, which does not change the ranking of others."""
    return f"# Visitor {number}\n\nA visitor called zyxw{number}vut leaves a note about request bodies.\n"


def ranking(answer: dict[str, Any]) -> Ranking:
    return tuple((hit["chunk_id"], hit["score"]) for hit in answer["results"])


def expected_rankings(folder: Path, queries: list[str]) -> dict[str, set[Ranking]]:
    """Return the rankings of a library without load, after each commit of the same changes."""
    answers: dict[str, set[Ranking]] = {text: set() for text in queries}
    with marklight.open(folder) as library:
        library.index()

        def record() -> None:
            for text in queries:
                answers[text].add(ranking(library.search(text, refresh=False).to_dict()))

        commit = library.engine.commit

        def recorded_commit(batch: Batch) -> int:
            generation = commit(batch)
            record()
            return generation

        record()
        library.engine.commit = recorded_commit  # type: ignore[method-assign]
        for number in range(DOCUMENTS):
            (folder / f"visitor-{number}.md").write_text(new_document(number))
            library.index()
    return answers


@contextmanager
def served(folder: Path, *options: str) -> Iterator[tuple[int, int]]:
    """Run a daemon in a process of its own; yield its port and process ID."""
    server = subprocess.Popen(
        [*PROGRAM, "serve", str(folder), "--port", "0", *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    try:
        assert server.stdout is not None
        found = None
        while found is None:
            line = server.stdout.readline()
            if not line:
                raise SystemExit("The server did not start")
            found = re.search(r"http://127\.0\.0\.1:(\d+)", line)
        yield int(found[1]), server.pid
    finally:
        server.terminate()
        server.wait(30)


def search(connection: HTTPConnection, text: str) -> tuple[int, dict[str, Any]]:
    connection.request("GET", "/api/search?" + urlencode({"q": text}))
    response = connection.getresponse()
    return response.status, json.loads(response.read())


def client(port: int, queries: list[str]) -> list[tuple[str, int, float, Ranking]]:
    """Run the queries of one client one after another over one connection."""
    connection = HTTPConnection("127.0.0.1", port, timeout=120)
    results = []
    for text in queries:
        started = time.perf_counter()
        status, answer = search(connection, text)
        took = time.perf_counter() - started
        results.append((text, status, took, ranking(answer) if status == 200 else ()))
    connection.close()
    return results


def clients(port: int, lists: list[list[str]]) -> list[tuple[str, int, float, Ranking]]:
    """Run several clients in the threads of one process."""
    with ThreadPoolExecutor(len(lists)) as pool:
        return [
            item
            for results in pool.map(lambda queries: client(port, queries), lists)
            for item in results
        ]


def write(port: int, folder: Path) -> int:
    """Add documents, each after the previous one is found; return how many were not found."""
    connection = HTTPConnection("127.0.0.1", port, timeout=120)
    lost = 0
    for number in range(DOCUMENTS):
        (folder / f"visitor-{number}.md").write_text(new_document(number))
        _, answer = search(connection, f"zyxw{number}vut")
        paths = [hit["path"] for hit in answer.get("results", ())]
        lost += f"visitor-{number}.md" not in paths
        until = time.monotonic() + 60
        while time.monotonic() < until:
            _, answer = search(connection, "request body")
            if answer["index"]["pending"] == 0:
                break
            time.sleep(0.2)
    return lost


def is_equal(one: Ranking, other: Ranking) -> bool:
    """Compare passages and scores, with a tolerance because recency decays every second."""
    return len(one) == len(other) and all(
        a[0] == b[0] and abs(a[1] - b[1]) <= 2e-4 for a, b in zip(one, other, strict=True)
    )


def main() -> None:
    queries = questions("fastapi-anchors")[:QUERIES]
    with tempfile.TemporaryDirectory() as place:
        reference, loaded = Path(place, "reference"), Path(place, "loaded")
        shutil.copytree(corpus("fastapi"), loaded, copy_function=shutil.copyfile)
        with marklight.open(loaded) as library:
            library.index()
        shutil.copytree(loaded, reference)  # with its index and modification times
        expected = expected_rankings(reference, queries)
        with served(loaded) as (port, pid):
            alone = [took for _, _, took, _ in client(port, queries * 5)][QUERIES:]
            share = SEARCHES // CLIENTS
            lists = [
                [queries[(start + step) % QUERIES] for step in range(share)]
                for start in range(CLIENTS)
            ]
            started = time.perf_counter()
            with ThreadPoolExecutor(1) as writer, ProcessPoolExecutor(PROCESSES) as pool:
                lost = writer.submit(write, port, loaded)
                parts = [lists[start::PROCESSES] for start in range(PROCESSES)]
                results = [
                    item for part in pool.map(clients, [port] * PROCESSES, parts) for item in part
                ]
                seconds = time.perf_counter() - started
                lost_updates = lost.result()
            memory = Path(f"/proc/{pid}/status").read_text()
    took = sorted(result[2] for result in results)
    inconsistent = [
        text
        for text, status, _, got in results
        if status == 200 and not any(is_equal(got, item) for item in expected[text])
    ]
    save(
        "serving",
        {
            "clients": CLIENTS,
            "searches": len(results),
            "errors": sum(result[1] != 200 for result in results),
            "lost_updates": lost_updates,
            "answers_of_no_commit": len(inconsistent),
            "alone_p50_ms": statistics.median(alone) * 1e3,
            "p50_ms": statistics.median(took) * 1e3,
            "p95_ms": took[int(len(took) * 0.95)] * 1e3,
            "searches_per_second": len(results) / seconds,
            "searches_per_second_to_one_client": len(results) / seconds * statistics.mean(alone),
            "daemon_peak_megabytes": int(re.findall(r"VmHWM:\s+(\d+)", memory)[0]) * 1024 / 1e6,
        },
    )


if __name__ == "__main__":
    main()
