"""What a daemon saves: the time of a command and the memory of a client, with one and without."""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks._measure import save

ROUNDS = 25
PROGRAM = (sys.executable, "-P", "-c", "from marklight.surfaces.cli import main; main()")
DOCUMENTS = Path(__file__).parents[1] / "docs"
QUESTION = "how is the index kept up to date"
BEGIN = b"""{"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "benchmark", "version": "1"}}}
"""
ASK = b"""{"jsonrpc": "2.0", "method": "notifications/initialized"}
{"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "query_documents", "arguments": {"query": "how is the index kept up to date"}}}
"""


def timed(*command: str, **variables: str) -> float:
    began = time.perf_counter()
    subprocess.run(
        [*PROGRAM, *command], check=True, capture_output=True, env={**os.environ, **variables}
    )
    return (time.perf_counter() - began) * 1e3


def assisted(folder: Path, **variables: str) -> tuple[float, float]:
    """How long an assistant waits for the handshake, and the megabytes of what serves it after an answer."""
    began = time.perf_counter()
    with subprocess.Popen(
        [*PROGRAM, "mcp", str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, **variables},
    ) as process:
        assert process.stdin
        assert process.stdout
        process.stdin.write(BEGIN)
        process.stdin.flush()
        process.stdout.readline()
        took = (time.perf_counter() - began) * 1e3
        process.stdin.write(ASK)
        process.stdin.flush()
        while b'"id":2' not in process.stdout.readline().replace(b" ", b""):
            pass
        held = megabytes(process.pid)
    return took, held


def megabytes(pid: int) -> float:
    told = subprocess.run(
        ["ps", "-o", "rss=", "-p", str(pid)], check=True, capture_output=True, text=True
    )
    return int(told.stdout) / 1024


def main() -> None:
    with tempfile.TemporaryDirectory() as place:
        os.environ["MARKLIGHT_STATE_DIR"] = f"{place}/state"
        folder = Path(shutil.copytree(DOCUMENTS, f"{place}/docs"))
        search, alone = ("search", QUESTION, str(folder)), {"MARKLIGHT_DAEMON": "off"}
        timed("index", str(folder))
        with subprocess.Popen(
            [*PROGRAM, "serve", str(folder), "--port", "0"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        ) as daemon:
            assert daemon.stdin
            assert daemon.stdout
            daemon.stdout.readline()
            times: dict[str, list[float]] = {"help": [], "search": [], "search_alone": []}
            timed(*search)
            for _ in range(ROUNDS):
                times["help"].append(timed("--help"))
                times["search"].append(timed(*search))
                times["search_alone"].append(timed(*search, **alone))
            with_daemon = [assisted(folder) for _ in range(5)]
            by_itself = [assisted(folder, **alone) for _ in range(5)]
            held = megabytes(daemon.pid)
            daemon.stdin.close()
    figures = {f"{name}_ms": statistics.median(values) for name, values in times.items()}
    save(
        "daemon",
        {
            **figures,
            "search_to_help": figures["search_ms"] / figures["help_ms"],
            "search_alone_to_help": figures["search_alone_ms"] / figures["help_ms"],
            "assistant_handshake_ms": statistics.median(took for took, _ in with_daemon),
            "assistant_alone_handshake_ms": statistics.median(took for took, _ in by_itself),
            "assistant_megabytes": max(held for _, held in with_daemon),
            "assistant_alone_megabytes": max(held for _, held in by_itself),
            "daemon_megabytes": held,
        },
    )


if __name__ == "__main__":
    main()
