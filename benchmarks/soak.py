"""Serve for a long time while files change: memory, descriptors and latency over time, and the index at the end.

`scripts/bench soak [--minutes M] [--seed N]` runs `marklight serve --workers 2` with the default model on a folder of notes that a writer edits,
moves and deletes, with 20 HTTP and 5 MCP clients. Every answer is compared with the versions that its documents had on the disk
while it was computed. At the end the index is compared with a new one of the same files. Fails if they differ, or if a process needed
more than `CEILING_MB`.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import random
import statistics
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import marklight
from benchmarks._diagram import timeline
from benchmarks._measure import ROOT, save
from benchmarks.serving import served
from benchmarks.workers import megabytes, processes

HTTP_CLIENTS, MCP_CLIENTS, NOTES = 20, 5, 120
SAMPLE_SECONDS, EDIT_SECONDS, THINK_SECONDS = 5.0, 0.5, 3.0
CEILING_MB = 400
"""Memory of a process at most."""
WORDS = "river castle engine garden harbour violin copper meadow token deploy rollback replica cluster kitchen login cache".split()


class Notes:
    """The files, with all versions that each had and when."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder, self.chance, self.number = folder, random.Random(seed), 0
        self.versions: dict[str, list[tuple[float, str]]] = {}
        self.lock = threading.Lock()

    def edit(self) -> None:
        """Write, move or delete a note; a time is taken before and after, so that a version is never missed."""
        kind, path = (
            self.chance.random(),
            f"{self.chance.randrange(NOTES) % 7}/{self.chance.randrange(NOTES)}.md",
        )
        file = self.folder / path
        if kind < 0.75 or not file.exists():
            self.number += 1
            marker = f"version{self.number}x"
            text = "\n\n".join(
                f"## {self.chance.choice(WORDS)}\n\n{marker} {' '.join(self.chance.choices(WORDS, k=40))}."
                for _ in range(3)
            )
            self.note(path, marker)
            file.parent.mkdir(exist_ok=True)
            draft = file.with_name(".draft")
            draft.write_text(f"# Note {self.number}\n\n{marker}\n\n{text}\n")
            os.replace(draft, file)
        else:
            file.unlink()
            self.note(path, "")

    def note(self, path: str, marker: str) -> None:
        with self.lock:
            self.versions.setdefault(path, []).append((time.monotonic(), marker))

    def alive(self, path: str, start: float, end: float) -> set[str]:
        """Return the versions that a file may have had between two times; empty for a deleted one."""
        with self.lock:
            known = list(self.versions.get(path, ()))
        before = [marker for at, marker in known if at < start - EDIT_SECONDS / 2]
        return {
            *before[-1:],
            *(marker for at, marker in known if start - EDIT_SECONDS / 2 <= at <= end),
        }


class Load:
    """Clients and what they saw."""

    def __init__(self, notes: Notes, port: int) -> None:
        self.notes, self.port, self.stopped = notes, port, threading.Event()
        self.counts: Counter[str] = Counter()
        self.took: list[tuple[float, float]] = []
        self.examples: list[str] = []

    def http_client(self, number: int) -> None:
        chance, connection = (
            random.Random(number),
            http.client.HTTPConnection("127.0.0.1", self.port, timeout=120),
        )
        while not self.stopped.wait(chance.uniform(0, 2 * THINK_SECONDS)):
            text, start = " ".join(chance.choices(WORDS, k=chance.randint(1, 12))), time.monotonic()
            connection.request("GET", "/api/search?" + urlencode({"q": text, "min_confidence": 0}))
            response = connection.getresponse()
            answer = json.loads(response.read())
            self.took.append((time.monotonic(), time.monotonic() - start))
            self.counts[f"HTTP {response.status}"] += 1
            if response.status == 200:
                self.check(answer, start)
        connection.close()

    def check(self, answer: dict[str, Any], start: float) -> None:
        """Classify the results by the versions of their files."""
        for hit in answer["results"]:
            alive = self.notes.alive(hit["path"], start, time.monotonic())
            if any(marker and marker in hit["content"] for marker in alive):
                self.counts["results that equal the disk"] += 1
            elif alive == {""}:
                self.counts["results of deleted files"] += 1
                self.examples.append(f"{hit['path']}: {answer['notices']}")
            else:
                kind = "with" if answer["notices"] else "without"
                self.counts[f"outdated results {kind} a notice"] += 1
                if not answer["notices"]:
                    self.examples.append(f"{hit['path']}: {hit['content'][:80]!r} {sorted(alive)}")

    def mcp_client(self, number: int) -> None:
        chance, connection = (
            random.Random(-number),
            http.client.HTTPConnection("127.0.0.1", self.port, timeout=120),
        )
        headers = {
            "Content-Type": "application/json",
            "Accept": "application/json, text/event-stream",
        }

        def post(method: str, params: dict[str, Any], id: int | None) -> http.client.HTTPResponse:
            message = {
                "jsonrpc": "2.0",
                "method": method,
                "params": params,
                **({"id": id} if id is not None else {}),
            }
            connection.request("POST", "/mcp", json.dumps(message), headers)
            response = connection.getresponse()
            body = response.read()
            failed = " error" if b'"isError":true' in body else ""
            self.counts[f"MCP {method} {response.status}{failed}"] += 1
            return response

        opened = post(
            "initialize",
            {
                "protocolVersion": "2025-06-18",
                "capabilities": {},
                "clientInfo": {"name": "soak", "version": "1"},
            },
            0,
        )
        if session := opened.getheader("mcp-session-id"):
            headers["mcp-session-id"] = session
        headers["MCP-Protocol-Version"] = "2025-06-18"
        post("notifications/initialized", {}, None)
        count = 0
        while not self.stopped.wait(chance.uniform(0, 2 * THINK_SECONDS)):
            count, start = count + 1, time.monotonic()
            post(
                "tools/call",
                {
                    "name": "query_documents",
                    "arguments": {"query": " ".join(chance.choices(WORDS, k=4))},
                },
                count,
            )
            self.took.append((time.monotonic(), time.monotonic() - start))
        connection.close()


def descriptors(pid: int) -> int:
    return sum(len(os.listdir(f"/proc/{each}/fd")) for each in processes(pid))


def content(folder: Path, index: Path | None = None) -> object:
    """Return all passages of an index, and which of them contain each word, after it was brought up to date."""
    from marklight.ports import FIELD_BOOSTS
    from marklight.query import Filters
    from marklight.text.analyzer import analyze

    settings = {"engine": f"file:{index}", "model": {"name": "none"}} if index else {}
    with marklight.open(folder, settings) as library:
        library.index()
        with library.engine.snapshot() as snapshot:
            return [
                snapshot.documents.chunks_of(id) for id in sorted(snapshot.documents.files())
            ], [
                {
                    found.chunk_id
                    for found in snapshot.lexical.search(
                        analyze(word), FIELD_BOOSTS, Filters(), 9999
                    )
                }
                for word in WORDS
            ]


def soak(root: Path, minutes: float, seed: int) -> dict[str, Any]:
    folder = root / "notes"
    folder.mkdir()
    notes = Notes(folder, seed)
    for _ in range(3 * NOTES):
        notes.edit()
    with marklight.open(folder) as library:
        library.index()
    samples: list[tuple[float, list[int], int]] = []
    with served(folder, "--workers", "2") as (port, pid):
        load, started = Load(notes, port), time.monotonic()
        clients = [
            threading.Thread(target=load.http_client, args=[number])
            for number in range(HTTP_CLIENTS)
        ]
        clients += [
            threading.Thread(target=load.mcp_client, args=[number]) for number in range(MCP_CLIENTS)
        ]
        for client in clients:
            client.start()
        while (now := time.monotonic() - started) < 60 * minutes:
            notes.edit()
            if not samples or now - samples[-1][0] > SAMPLE_SECONDS:
                samples.append((now, megabytes(pid), descriptors(pid)))
            time.sleep(EDIT_SECONDS)
        load.stopped.set()
        for client in clients:
            client.join()
    took = [(at - started, seconds) for at, seconds in load.took]
    latency = []
    for minute in range(int(minutes)):
        part = sorted(seconds for at, seconds in took if minute <= at / 60 < minute + 1)
        if len(part) > 1:
            latency.append(
                {
                    "minute": minute + 1,
                    "p50_ms": round(1e3 * statistics.median(part)),
                    "p95_ms": round(1e3 * part[int(0.95 * len(part))]),
                    "p99_ms": round(1e3 * part[int(0.99 * len(part))]),
                }
            )
    series: dict[str, tuple[str, list[tuple[float, float]]]] = {
        "Memory of the largest process": (
            "MB",
            [(at / 60, float(max(sizes))) for at, sizes, _ in samples],
        ),
        "File descriptors of all processes": (
            "",
            [(at / 60, float(count)) for at, _, count in samples],
        ),
        "Latency, median": ("ms", [(row["minute"], row["p50_ms"]) for row in latency]),
        "Latency, 95th percentile": ("ms", [(row["minute"], row["p95_ms"]) for row in latency]),
    }
    (ROOT / "benchmarks" / "results" / "soak.svg").write_text(timeline(series))
    warm = [sample for sample in samples if sample[0] > 60 * minutes / 4] or samples
    return {
        "minutes": minutes,
        "seed": seed,
        "edits": notes.number,
        "requests": len(took),
        "outcomes": dict(sorted(load.counts.items())),
        "examples": load.examples[:10],
        "memory_mb": {
            "after_a_quarter": warm[0][1],
            "at_the_end": samples[-1][1],
            "most": max(max(sizes) for _, sizes, _ in samples),
        },
        "descriptors": {
            "after_a_quarter": warm[0][2],
            "at_the_end": samples[-1][2],
            "most": max(count for _, _, count in samples),
        },
        "latency": latency,
        "index_equals_a_new_one": content(folder) == content(folder, root / "new"),
    }


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--minutes", type=float, default=120.0)
    options.add_argument("--seed", type=int, default=1)
    given = options.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["MARKLIGHT_DATA_DIR"] = str(Path(folder) / "data")
        os.environ["MARKLIGHT_STATE_DIR"] = str(Path(folder) / "state")
        figures = soak(Path(folder), given.minutes, given.seed)
    save("soak", figures)
    within = figures["memory_mb"]["most"] <= CEILING_MB
    sys.exit(not (within and figures["index_equals_a_new_one"]))


if __name__ == "__main__":
    main()
