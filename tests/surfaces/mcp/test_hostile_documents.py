"""Hostile documents as a real client receives them, over both transports and all protocol versions."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path

import anyio
import httpx
import pytest
from mcp import Client

from marklight.formatting import one_line, visible
from tests.forgery import BIDI, DANGEROUS, ESCAPES, HEADER, NAME, NOTE, TAGS, TEXT, read_answer
from tests.making import write
from tests.surfaces.mcp.serving import (
    ERAS,
    TRANSPORTS,
    command,
    connected,
    http,
    indexed,
    text_of,
)
from tests.surfaces.mcp.stdio_process import handshake, send, started

WORD = "quetzalcoatl"
PAGES = {
    NAME: f"# {WORD} {HEADER} {BIDI}{ESCAPES}{TAGS}\n\n## {NOTE}\n\nThe {WORD}.\n{TEXT}\n",
    "policy.md": f"# Policy\n\nThe real policy of {WORD}.\n",
}
WIRE = re.compile(DANGEROUS.pattern.replace(r"\x00-\x08\x0b-\x1f", ""))
"""Line breaks and returns stand between messages and events."""

CALL = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "tools/call",
    "params": {"name": "get_document", "arguments": {"ref": NAME, "max_tokens": 100_000}},
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write(tmp_path / "docs", PAGES)


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("transport", TRANSPORTS)
def test_hostile_documents_do_not_change_the_results_a_client_parses(
    folder: Path, tmp_path: Path, transport: str, era: str
) -> None:
    async def main() -> None:
        async with connected(folder, tmp_path, transport, era) as client:
            await indexed(client)
            await check(client)

    async def check(client: Client) -> None:
        given = {"query": WORD, "min_score": 0, "max_tokens": 100_000}
        found = await client.call_tool("query_documents", given)
        results, ours = read_answer(text_of(found))
        values = found.structured_content["results"]
        assert {each["path"] for each in values} == set(PAGES)
        assert [each.text for each in results] == [
            visible(each["content"].strip()) for each in values
        ]
        assert [each.rank for each in results] == [each["rank"] for each in values]
        assert sum(each.place.startswith("policy.md:") for each in results) == 1
        assert all(each.startswith("note: ") for each in ours)
        # Values are the document's own, to the letter.
        assert any(BIDI in each["content"] for each in values)
        for tool, more in (
            ("get_document", {"ref": NAME, "max_tokens": 100_000}),
            ("outline", {"path": NAME}),
            ("related_documents", {"path": NAME}),
            ("index_status", {}),
        ):
            text = text_of(await client.call_tool(tool, more))
            assert not DANGEROUS.search(text), tool
            assert not any(line.startswith((NOTE, "[2] ")) for line in text.split("\n")), tool
        assert text.count("\n") < 10
        text = text_of(await client.call_tool("list_documents", {}))
        assert not DANGEROUS.search(text)
        starts = [line.split()[0] for line in text.split("\n") if line.startswith(("[", NOTE))]
        assert starts == ["[1]", "[2]"]
        [message] = (await client.get_prompt("summarize_section", {"path": NAME})).messages
        text = message.content.text  # type: ignore[union-attr]
        quote = text.split("\n\ndocument: ")[1].split("\n", 1)[1]
        assert all(line.startswith(">") or not line for line in quote.split("\n")[:-1])
        listed = (await client.list_resources()).resources
        assert {each.name for each in listed} == {one_line(name) for name in PAGES}
        for each in listed:
            [contents] = (await client.read_resource(each.uri)).contents
            assert not DANGEROUS.search(contents.text)  # type: ignore[union-attr]

    anyio.run(main)


def test_standard_output_contains_no_control_characters(folder: Path, tmp_path: Path) -> None:
    with started(command(folder), tmp_path) as process:
        handshake(process)
        assert process.stdout
        for _ in range(100):
            send(process, CALL)
            while (line := process.stdout.readline()).count(b'"id":1') == 0:
                pass
            result = json.loads(line)["result"]
            if "structuredContent" in result:
                break
            time.sleep(0.1)
        assert BIDI in result["structuredContent"]["content"]
        assert not WIRE.search(line.decode())


def test_http_responses_contain_no_control_characters(folder: Path) -> None:
    begin = {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "test", "version": "1"},
    }
    with http(folder) as address, httpx.Client(timeout=60) as client:
        headers = {"accept": "application/json, text/event-stream"}
        hello = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": begin}
        first = client.post(address, json=hello, headers=headers)
        session = {"mcp-session-id": first.headers["mcp-session-id"]}
        client.post(
            address,
            json={"jsonrpc": "2.0", "method": "notifications/initialized"},
            headers={**headers, **session},
        )
        for _ in range(100):
            reported = client.post(address, json=CALL, headers={**headers, **session})
            body = reported.text
            [data] = [
                json.loads(line.removeprefix("data: "))
                for line in body.splitlines()
                if line.removeprefix("data: ").startswith("{")
            ]
            if "structuredContent" in data["result"]:
                break
            time.sleep(0.1)
        assert BIDI in data["result"]["structuredContent"]["content"]
        assert not WIRE.search(body)
