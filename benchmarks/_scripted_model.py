"""A scripted model on loopback: answers as the APIs of Anthropic and OpenAI do, calls tools by a script, and records what it is sent."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

WAIT = "WaitForMcpServers"
MAX_WAITS, WAIT_SECONDS = 200, 0.3
"""How often the model waits for the server before its first call, and for how long at least."""


class Call(NamedTuple):
    """A tool call of the script."""

    tool: str
    arguments: Mapping[str, Any]


@dataclass(slots=True)
class Script:
    """Calls that the model makes one after the other, and the tool results that it received."""

    calls: Sequence[Call]
    server: str
    """Name of the MCP server in the configuration of the client."""
    seen: dict[int, str] = field(default_factory=dict)
    """Results that the client passed on, by the number of the call."""
    definitions: list[Any] = field(default_factory=list)
    """Definitions of our tools in the first request."""
    waited: int = 0
    """Number of times that the model waited for the servers of the client."""

    def next_call(self) -> int | None:
        """Return the number of the first call without a result; None before our tools are listed and at the end."""
        if not self.definitions:
            return None
        return next((number for number in range(len(self.calls)) if number not in self.seen), None)

    def receive(self, identity: str, content: Any) -> None:
        """Record the result of a call."""
        if identity.startswith("s"):
            self.seen.setdefault(int(identity[1:]), _text(content))

    def define(self, tools: Sequence[Any]) -> None:
        """Record the definitions of our tools."""
        self.definitions = self.definitions or list(tools)

    def wait(self) -> bool:
        """Wait a moment for the server; return false if the model has waited for too long."""
        self.waited += 1
        time.sleep(WAIT_SECONDS)
        return self.waited <= MAX_WAITS


class _Handler(BaseHTTPRequestHandler):
    script: Script
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])) or b"{}")
        if self.path.split("?")[0].endswith("/messages"):
            self._send(self._anthropic(body))
        elif self.path.split("?")[0].endswith("/responses"):
            self._send(self._openai(body))
        else:
            self._reply(b'{"input_tokens": 1, "data": []}', "application/json")

    def do_GET(self) -> None:
        self._reply(b'{"data": [], "models": []}', "application/json")

    def do_HEAD(self) -> None:
        self.do_GET()

    def _send(self, events: Sequence[Mapping[str, Any]]) -> None:
        text = "".join(f"event: {each['type']}\ndata: {json.dumps(each)}\n\n" for each in events)
        self._reply(text.encode(), "text/event-stream")

    def _reply(self, body: bytes, kind: str) -> None:
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def _anthropic(self, body: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Return the events of a Messages response."""
        script, tools = self.script, body.get("tools", ())
        for message in body.get("messages", ()):
            for block in message["content"] if isinstance(message["content"], list) else ():
                if block.get("type") == "tool_result":
                    script.receive(block["tool_use_id"], block.get("content"))
        script.define([tool for tool in tools if script.server in tool.get("name", "")])
        name, delta = "", {"type": "text_delta", "text": "done"}
        identity, number = "", script.next_call()
        if number is not None:
            identity, name = f"s{number}", f"mcp__{script.server}__{script.calls[number].tool}"
            arguments = json.dumps(script.calls[number].arguments)
            delta = {"type": "input_json_delta", "partial_json": arguments}
        elif any(tool.get("name") == WAIT for tool in tools) and script.wait():
            # Claude Code offers this tool while servers are still starting.
            identity, name = f"w{script.waited}", WAIT
            delta = {"type": "input_json_delta", "partial_json": "{}"}
        started = {"type": "tool_use", "id": identity, "name": name, "input": {}}
        message = {
            **{"id": "msg_1", "type": "message", "role": "assistant", "content": []},
            **{"model": body.get("model", ""), "stop_reason": None, "stop_sequence": None},
            "usage": {"input_tokens": 1, "output_tokens": 1},
        }
        ending = {"stop_reason": "tool_use" if name else "end_turn", "stop_sequence": None}
        return [
            {"type": "message_start", "message": message},
            {
                **{"type": "content_block_start", "index": 0},
                "content_block": started if name else {"type": "text", "text": ""},
            },
            {"type": "content_block_delta", "index": 0, "delta": delta},
            {"type": "content_block_stop", "index": 0},
            {"type": "message_delta", "delta": ending, "usage": {"output_tokens": 1}},
            {"type": "message_stop"},
        ]

    def _openai(self, body: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Return the events of a Responses response."""
        script = self.script
        for given in body.get("input", ()):
            if given.get("type") == "function_call_output":
                script.receive(given["call_id"], given.get("output"))
        own = [tool for tool in body.get("tools", ()) if script.server in json.dumps(tool)]
        script.define(own)
        item: dict[str, Any] = {
            **{"type": "message", "id": "msg_1", "role": "assistant", "status": "completed"},
            "content": [{"type": "output_text", "text": "done", "annotations": []}],
        }
        number = script.next_call()
        if number is not None:
            call = script.calls[number]
            item = {
                **{"type": "function_call", "id": f"fc_{number}", "call_id": f"s{number}"},
                "arguments": json.dumps(call.arguments),
                **_codex_name(own, script.server, call.tool),
            }
        elif not script.seen and script.wait():
            # The tools of a server are missing until it has started.
            item = {
                **{"type": "function_call", "id": f"fw_{script.waited}", "arguments": "{}"},
                **{"call_id": f"w{script.waited}", "name": "list_mcp_resources"},
            }
        usage = {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2}
        ended = {"id": "resp_1", "usage": usage, "output": [item]}
        return [
            {"type": "response.created", "response": {"id": "resp_1"}},
            {"type": "response.output_item.done", "output_index": 0, "item": item},
            {"type": "response.completed", "response": ended},
        ]

    def log_message(self, *_: Any) -> None:
        """Print nothing."""


def _codex_name(tools: Sequence[Mapping[str, Any]], server: str, tool: str) -> dict[str, str]:
    """Return name and namespace of a tool: Codex lists the tools of a server in a namespace, or one by one."""
    for each in tools:
        if each.get("type") == "namespace":
            return {"name": tool, "namespace": each["name"]}
    return {"name": f"mcp__{server}__{tool}"}


def _text(content: Any) -> str:
    """Return the text of a tool result, which is a string or a list of blocks."""
    if isinstance(content, list):
        return "\n".join(block.get("text", "") for block in content)
    return content if isinstance(content, str) else json.dumps(content)


@contextmanager
def scripted_model(script: Script) -> Iterator[str]:
    """Serve a script on a free port of this machine; yields the address."""
    handler = type("Handler", (_Handler,), {"script": script})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
