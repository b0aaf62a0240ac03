"""Fifty clients at once while a writer adds documents: no error, no lost update, and every answer that of a quiet library.

`python -m benchmarks.serving` starts `marklight serve` on a copy of the FastAPI pages. The writer adds a document, waits until it
is found, and adds the next. Beforehand the same documents were added to a quiet library, which was asked all
questions after every commit: an answer under load must be one of those.
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
"""That the writer adds."""
QUESTIONS = 20
PROGRAM = (sys.executable, "-c", "from marklight.surfaces.cli import main; main()")

Seen = tuple[tuple[str, float], ...]
"""Passages and scores of an answer."""


def added(number: int) -> str:
    """A document of one passage with a word of its own, and none that would change what others mean."""
    return f"# Visitor {number}\n\nA visitor called zyxw{number}vut leaves a note about request bodies.\n"


def seen(answer: dict[str, Any]) -> Seen:
    return tuple((hit["chunk_id"], hit["score"]) for hit in answer["results"])


def quiet(folder: Path, asked: list[str]) -> dict[str, set[Seen]]:
    """What a library that nobody else asks answers, after each commit of the same changes."""
    answers: dict[str, set[Seen]] = {text: set() for text in asked}
    with marklight.open(folder) as library:
        library.index()

        def note() -> None:
            for text in asked:
                answers[text].add(seen(library.search(text, refresh=False).to_dict()))

        commit = library.engine.commit

        def noted(batch: Batch) -> int:
            generation = commit(batch)
            note()
            return generation

        note()
        library.engine.commit = noted  # type: ignore[method-assign]
        for number in range(DOCUMENTS):
            (folder / f"visitor-{number}.md").write_text(added(number))
            library.index()
    return answers


@contextmanager
def served(folder: Path) -> Iterator[tuple[int, int]]:
    """A daemon of its own process: port and process id."""
    server = subprocess.Popen(
        [*PROGRAM, "serve", str(folder), "--port", "0"],
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
                raise SystemExit("the server did not start")
            found = re.search(r"http://127\.0\.0\.1:(\d+)", line)
        yield int(found[1]), server.pid
    finally:
        server.terminate()
        server.wait(30)


def ask(connection: HTTPConnection, text: str) -> tuple[int, dict[str, Any]]:
    connection.request("GET", "/api/search?" + urlencode({"q": text}))
    response = connection.getresponse()
    return response.status, json.loads(response.read())


def client(port: int, asked: list[str]) -> list[tuple[str, int, float, Seen]]:
    """One client: its questions one after the other over one connection."""
    connection = HTTPConnection("127.0.0.1", port, timeout=120)
    done = []
    for text in asked:
        began = time.perf_counter()
        status, answer = ask(connection, text)
        took = time.perf_counter() - began
        done.append((text, status, took, seen(answer) if status == 200 else ()))
    connection.close()
    return done


def clients(port: int, lists: list[list[str]]) -> list[tuple[str, int, float, Seen]]:
    """Some clients of one process."""
    with ThreadPoolExecutor(len(lists)) as pool:
        return [
            each for done in pool.map(lambda asked: client(port, asked), lists) for each in done
        ]


def write(port: int, folder: Path) -> int:
    """Add documents, each after the one before is found by its word; how many were lost."""
    connection = HTTPConnection("127.0.0.1", port, timeout=120)
    lost = 0
    for number in range(DOCUMENTS):
        (folder / f"visitor-{number}.md").write_text(added(number))
        _, answer = ask(connection, f"zyxw{number}vut")
        paths = [hit["path"] for hit in answer.get("results", ())]
        lost += f"visitor-{number}.md" not in paths
        until = time.monotonic() + 60
        while time.monotonic() < until:
            _, answer = ask(connection, "request body")
            if answer["index"]["pending"] == 0:
                break
            time.sleep(0.2)
    return lost


def alike(one: Seen, other: Seen) -> bool:
    """The same passages with the same scores; what is recent fades by a little each second."""
    return len(one) == len(other) and all(
        a[0] == b[0] and abs(a[1] - b[1]) <= 2e-4 for a, b in zip(one, other, strict=True)
    )


def main() -> None:
    asked = questions("fastapi-anchors")[:QUESTIONS]
    with tempfile.TemporaryDirectory() as place:
        still, busy = Path(place, "still"), Path(place, "busy")
        shutil.copytree(corpus("fastapi"), busy, copy_function=shutil.copyfile)
        with marklight.open(busy) as library:
            library.index()
        shutil.copytree(busy, still)  # with its index and the times of its files
        known = quiet(still, asked)
        with served(busy) as (port, pid):
            alone = [took for _, _, took, _ in client(port, asked * 5)][QUESTIONS:]
            share = SEARCHES // CLIENTS
            lists = [
                [asked[(start + step) % QUESTIONS] for step in range(share)]
                for start in range(CLIENTS)
            ]
            began = time.perf_counter()
            with ThreadPoolExecutor(1) as writer, ProcessPoolExecutor(PROCESSES) as pool:
                lost = writer.submit(write, port, busy)
                parts = [lists[start::PROCESSES] for start in range(PROCESSES)]
                done = [
                    each for part in pool.map(clients, [port] * PROCESSES, parts) for each in part
                ]
                seconds = time.perf_counter() - began
                lost_updates = lost.result()
            memory = Path(f"/proc/{pid}/status").read_text()
    took = sorted(one[2] for one in done)
    strange = [
        text
        for text, status, _, got in done
        if status == 200 and not any(alike(got, each) for each in known[text])
    ]
    save(
        "serving",
        {
            "clients": CLIENTS,
            "searches": len(done),
            "errors": sum(one[1] != 200 for one in done),
            "lost_updates": lost_updates,
            "answers_of_no_commit": len(strange),
            "alone_p50_ms": statistics.median(alone) * 1e3,
            "p50_ms": statistics.median(took) * 1e3,
            "p95_ms": took[int(len(took) * 0.95)] * 1e3,
            "searches_per_second": len(done) / seconds,
            "searches_per_second_to_one_client": len(done) / seconds * statistics.mean(alone),
            "daemon_peak_megabytes": int(re.findall(r"VmHWM:\s+(\d+)", memory)[0]) * 1024 / 1e6,
        },
    )


if __name__ == "__main__":
    main()
