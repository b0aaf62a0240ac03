"""Measure how many tokens an assistant reads per answered task, over MCP with a scripted assistant.

    python -m benchmarks.assistants [--program MARKLIGHT] [--label LABEL] [--together]

The tasks are in `benchmarks/assistant_tasks.toml`. The scripted assistant passes on what Claude Code and Codex pass on: `structuredContent` as
JSON if there is any, else the text. It searches; if it sees a part of the answer, it reads that section; then it searches in other words. At last it
reads the whole document in which it saw a part of the answer, or the sections of the best results. A task is answered when all its facts were in what it read. Another program can be
measured, so that two versions are compared with the same assistant. Results of other labels stay in `benchmarks/results/assistants.json`.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Self

from benchmarks._measure import corpus, result_path
from marklight.private_files import cache_folder
from marklight.text.tokens import count_tokens

TASKS = Path(__file__).parent / "assistant_tasks.toml"
MAX_CALLS = 8
"""Calls after which the assistant gives up."""
MAX_SECTIONS = 3
"""Sections that it reads if no search result contains a part of the answer."""
_RESULT = re.compile(
    r"^\[(?:closest )?\d+\] (?P<path>.+?):(?P<lines>\d+(?:-\d+)?)(?: § (?P<headings>.*?))?(?: \([\d.]+\))?$"
)
_MARKUP = re.compile(r"[*_`]")


class Fact(NamedTuple):
    """A string that only the right document contains, with the path of that document or of its folder."""

    path: str
    contains: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Task:
    """Define a task: the request of a user, the queries of the assistant, and the facts that it must have read."""

    text: str
    kind: str
    collection: str
    queries: tuple[str, ...]
    facts: tuple[Fact, ...]


class Passage(NamedTuple):
    """A search result as the assistant sees it."""

    path: str
    section: str
    text: str


def read_tasks() -> list[Task]:
    tasks = []
    for value in tomllib.loads(TASKS.read_text("utf-8"))["task"]:
        facts = tuple(
            Fact(each["path"], tuple(plain(each[key]) for key in ("contains", "or") if key in each))
            for each in value["facts"]
        )
        queries = tuple(value["queries"])
        tasks.append(Task(value["text"], value["kind"], value["collection"], queries, facts))
    return tasks


def plain(text: str) -> str:
    """Return text without emphasis, backticks and quote marks, with single spaces."""
    lines = (line.removeprefix("> ").removeprefix(">") for line in text.split("\n"))
    return " ".join(_MARKUP.sub("", " ".join(lines)).split())


def tokens(text: str) -> int:
    return count_tokens(text)


class Server:
    """`marklight mcp` as a client starts it: JSON-RPC, one message per line."""

    def __init__(self, program: str, folder: Path, index: Path) -> None:
        self._process = subprocess.Popen(
            [program, "mcp", str(folder), "--set", f"engine=file:{index}"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            encoding="utf-8",
        )
        self._last_id = 0
        self.greeting = self.request(
            "initialize",
            protocolVersion="2025-06-18",
            capabilities={},
            clientInfo={"name": "scripted-assistant", "version": "1"},
        )
        self._send({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        assert self._process.stdin
        self._process.stdin.close()
        self._process.wait(60)

    def request(self, method: str, **params: Any) -> dict[str, Any]:
        self._last_id += 1
        self._send({"jsonrpc": "2.0", "id": self._last_id, "method": method, "params": params})
        assert self._process.stdout
        for line in self._process.stdout:
            message = json.loads(line)
            if message.get("id") == self._last_id and "method" not in message:
                return dict(message.get("result") or {"content": [], "error": message["error"]})
        raise RuntimeError("the server ended")

    def _send(self, message: Mapping[str, Any]) -> None:
        assert self._process.stdin
        self._process.stdin.write(json.dumps(message) + "\n")
        self._process.stdin.flush()


def passed_on(result: Mapping[str, Any]) -> str:
    """Return what a client passes on to the model: structured content if there is any, else the text."""
    if (structured := result.get("structuredContent")) is not None:
        return json.dumps(structured, ensure_ascii=False, separators=(",", ":"))
    if "error" in result:
        return str(result["error"].get("message", ""))
    return "\n".join(block.get("text", "") for block in result["content"])


def strings(value: Any) -> Iterator[str]:
    """Yield all strings in a JSON value."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for each in value.values():
            yield from strings(each)
    elif isinstance(value, Sequence):
        for each in value:
            yield from strings(each)


def passages(result: Mapping[str, Any]) -> list[Passage]:
    """Return the results of a search, from JSON or from text."""
    if structured := result.get("structuredContent"):
        shown = structured.get("results") or structured.get("nearest") or []
        return [
            Passage(each["path"], f"{each['path']}#{each['anchor'] or ''}", each["content"])
            for each in shown
        ]
    found: list[Passage] = []
    for line in passed_on(result).split("\n"):
        if match := _RESULT.match(line):
            headings = (match["headings"] or "").split(" > ")
            found.append(Passage(match["path"], f"{match['path']}#{headings[-1]}", ""))
        elif found:
            found[-1] = found[-1]._replace(text=f"{found[-1].text}\n{line}")
    return found


@dataclass(slots=True)
class Assistant:
    """A scripted assistant at work on one task."""

    server: Server
    task: Task
    together: bool = False
    """True if it sends all phrasings in one search, as `queries` allows."""
    calls: list[dict[str, Any]] = field(default_factory=list)
    found: set[Fact] = field(default_factory=set)
    tokens: int = 0

    @property
    def finished(self) -> bool:
        return len(self.found) == len(self.task.facts) or len(self.calls) >= MAX_CALLS

    def work(self) -> None:
        """Search and read until all facts were read, or there is nothing left to try."""
        every: list[Passage] = []
        searches: list[dict[str, Any]] = [{"query": query} for query in self.task.queries]
        if self.together:
            more = [{"type": "keyword", "query": query} for query in self.task.queries[1:]]
            searches = [{"query": self.task.queries[0], "queries": more}]
        for search in searches:
            results = passages(self.call("query_documents", **search))
            every += results
            for each in self._partly_right(results):
                self.read(each.section)
        for each in self._partly_right(every):
            self.read(each.path)
        for each in every[:MAX_SECTIONS]:
            self.read(each.section)
        for path in dict.fromkeys(each.path for each in every):
            self.read(path)

    def read(self, ref: str) -> None:
        """Read a section or a document to its end, unless it was read before."""
        pages = [ref] if all(each["arguments"].get("ref") != ref for each in self.calls) else []
        while pages and not self.finished:
            result = self.call("get_document", ref=pages.pop())
            text = "\n".join(strings(result.get("structuredContent") or passed_on(result)))
            path = ref.partition("#")[0]
            rest = re.findall(rf"^(?!>).*truncated.*?({re.escape(path)}:\d+-\d+)", text, re.M)
            pages += rest[:1]

    def call(self, tool: str, **arguments: Any) -> dict[str, Any]:
        if self.finished:
            return {"content": []}
        result = self.server.request("tools/call", name=tool, arguments=arguments)
        seen = passed_on(result)
        text = plain("\n".join(strings(result.get("structuredContent") or seen)))
        path_shown = "\n".join(strings(result.get("structuredContent") or seen))
        for fact in self.task.facts:
            if fact.path in path_shown and any(each in text for each in fact.contains):
                self.found.add(fact)
        self.tokens += tokens(seen)
        self.calls.append({"tool": tool, "arguments": arguments, "tokens": tokens(seen)})
        return result

    def _partly_right(self, results: Sequence[Passage]) -> list[Passage]:
        """Return results that contain one of several facts."""
        return [
            each
            for each in results
            if any(
                each.path.startswith(fact.path)
                and any(part in plain(each.text) for part in fact.contains)
                for fact in self.task.facts
            )
        ]

    def report(self) -> dict[str, Any]:
        return {
            "task": self.task.text,
            "kind": self.task.kind,
            "answered": len(self.found) == len(self.task.facts),
            "tokens": self.tokens,
            "calls": [f"{each['tool']} {each['tokens']}" for each in self.calls],
        }


def session_tokens(server: Server) -> dict[str, int]:
    """Return the size of what a client passes on once per conversation: instructions and tool definitions."""
    tools = server.request("tools/list")["tools"]
    known = [{key: tool[key] for key in ("name", "description", "inputSchema")} for tool in tools]
    return {
        "tools": len(tools),
        "tools/list tokens": tokens(json.dumps(tools, ensure_ascii=False)),
        "tool definitions for the model, tokens": tokens(json.dumps(known, ensure_ascii=False)),
        "instructions tokens": tokens(server.greeting.get("instructions", "")),
    }


def measure(program: str, indexes: Path, together: bool = False) -> dict[str, Any]:
    """Run all tasks with one program; its indexes are kept in a folder."""
    reports: list[dict[str, Any]] = []
    with ExitStack() as stack:
        servers: dict[str, Server] = {}
        for task in read_tasks():
            if task.collection not in servers:
                folder = corpus(task.collection)
                index = indexes / task.collection
                setting = ["--set", f"engine=file:{index}"]
                subprocess.run([program, "index", str(folder), *setting], check=True)
                servers[task.collection] = stack.enter_context(Server(program, folder, index))
            assistant = Assistant(servers[task.collection], task, together)
            assistant.work()
            reports.append(assistant.report())
            print(json.dumps(reports[-1], ensure_ascii=False))
        session = session_tokens(next(iter(servers.values())))
    answered = sum(each["answered"] for each in reports)
    read = sum(each["tokens"] for each in reports)
    overhead = session["tool definitions for the model, tokens"] + session["instructions tokens"]
    return {
        **session,
        "tasks": len(reports),
        "answered": answered,
        "answered by the first call": sum(
            each["answered"] and len(each["calls"]) == 1 for each in reports
        ),
        "calls": sum(len(each["calls"]) for each in reports),
        "tokens of results per answered task": round(read / max(1, answered)),
        "tokens per answered task with tools and instructions": round(
            (read + overhead * len(reports)) / max(1, answered)
        ),
        "each": reports,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--program", default="marklight", help="the command to measure")
    parser.add_argument("--label", default="now", help="key of the results (default: now)")
    parser.add_argument("--indexes", type=Path, help="folder for the indexes of this program")
    parser.add_argument(
        "--together", action="store_true", help="send all phrasings of a task in one search"
    )
    given = parser.parse_args()
    indexes = given.indexes or cache_folder() / "eval" / "assistants" / given.label
    result = measure(given.program, indexes, given.together)
    print(json.dumps({key: value for key, value in result.items() if key != "each"}, indent=1))
    path = result_path("assistants")
    kept = json.loads(path.read_text("utf-8")) if path.exists() else {}
    kept[given.label] = result
    path.write_text(json.dumps(kept, indent=1, ensure_ascii=False) + "\n", "utf-8")


if __name__ == "__main__":
    main()
