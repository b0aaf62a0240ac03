"""A `marklight mcp` process, driven line by line."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

from tests.surfaces.mcp.serving import (
    environment,
)

HELLO = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "test", "version": "1"},
    },
}


@contextmanager
def started(arguments: list[str], tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(
        arguments,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(),
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def send(process: subprocess.Popen[bytes], *lines: bytes | dict[str, Any]) -> None:
    assert process.stdin
    for line in lines:
        process.stdin.write(line if isinstance(line, bytes) else json.dumps(line).encode() + b"\n")
    process.stdin.flush()


def receive(process: subprocess.Popen[bytes]) -> Any:
    assert process.stdout
    return json.loads(process.stdout.readline())


def handshake(process: subprocess.Popen[bytes]) -> None:
    send(process, HELLO)
    assert receive(process)["result"]["serverInfo"]["name"] == "marklight"
    send(process, {"jsonrpc": "2.0", "method": "notifications/initialized"})


NUMBERS = count(100)


def request(process: subprocess.Popen[bytes], method: str, params: dict[str, Any]) -> Any:
    """Send a request and return its answer."""
    number = next(NUMBERS)
    send(process, {"jsonrpc": "2.0", "id": number, "method": method, "params": params})
    while (answer := receive(process)).get("id") != number:
        pass
    return answer


def call_tool(process: subprocess.Popen[bytes], tool: str, given: dict[str, Any]) -> Any:
    return request(process, "tools/call", {"name": tool, "arguments": given})["result"]
