"""Measure commands and MCP clients with and without a daemon: time and memory."""

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
QUERY = "how is the index kept up to date"
HANDSHAKE = b"""{"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "benchmark", "version": "1"}}}
"""
TOOL_CALL = b"""{"jsonrpc": "2.0", "method": "notifications/initialized"}
{"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "query_documents", "arguments": {"query": "how is the index kept up to date"}}}
"""


def measure_command(*command: str, **variables: str) -> float:
    """Return the duration of a command in milliseconds."""
    started = time.perf_counter()
    subprocess.run(
        [*PROGRAM, *command], check=True, capture_output=True, env={**os.environ, **variables}
    )
    return (time.perf_counter() - started) * 1e3


def measure_assistant(folder: Path, **variables: str) -> tuple[float, float]:
    """Return the time to the handshake in milliseconds, and the megabytes of the server process after an answer."""
    started = time.perf_counter()
    with subprocess.Popen(
        [*PROGRAM, "mcp", str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, **variables},
    ) as process:
        assert process.stdin
        assert process.stdout
        process.stdin.write(HANDSHAKE)
        process.stdin.flush()
        process.stdout.readline()
        took = (time.perf_counter() - started) * 1e3
        process.stdin.write(TOOL_CALL)
        process.stdin.flush()
        while b'"id":2' not in process.stdout.readline().replace(b" ", b""):
            pass
        memory = megabytes(process.pid)
    return took, memory


def megabytes(pid: int) -> float:
    output = subprocess.run(
        ["ps", "-o", "rss=", "-p", str(pid)], check=True, capture_output=True, text=True
    )
    return int(output.stdout) / 1024


def main() -> None:
    with tempfile.TemporaryDirectory() as place:
        os.environ["MARKLIGHT_STATE_DIR"] = f"{place}/state"
        folder = Path(shutil.copytree(DOCUMENTS, f"{place}/docs"))
        search, no_daemon = ("search", QUERY, str(folder)), {"MARKLIGHT_DAEMON": "off"}
        measure_command("index", str(folder))
        with subprocess.Popen(
            [*PROGRAM, "serve", str(folder), "--port", "0"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        ) as daemon:
            assert daemon.stdin
            assert daemon.stdout
            daemon.stdout.readline()
            times: dict[str, list[float]] = {"help": [], "search": [], "search_alone": []}
            measure_command(*search)
            for _ in range(ROUNDS):
                times["help"].append(measure_command("--help"))
                times["search"].append(measure_command(*search))
                times["search_alone"].append(measure_command(*search, **no_daemon))
            with_daemon = [measure_assistant(folder) for _ in range(5)]
            without = [measure_assistant(folder, **no_daemon) for _ in range(5)]
            memory = megabytes(daemon.pid)
            daemon.stdin.close()
    figures = {f"{name}_ms": statistics.median(values) for name, values in times.items()}
    save(
        "daemon",
        {
            **figures,
            "search_to_help": figures["search_ms"] / figures["help_ms"],
            "search_alone_to_help": figures["search_alone_ms"] / figures["help_ms"],
            "assistant_handshake_ms": statistics.median(took for took, _ in with_daemon),
            "assistant_alone_handshake_ms": statistics.median(took for took, _ in without),
            "assistant_megabytes": max(memory for _, memory in with_daemon),
            "assistant_alone_megabytes": max(memory for _, memory in without),
            "daemon_megabytes": memory,
        },
    )


if __name__ == "__main__":
    main()
