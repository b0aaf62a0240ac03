"""Fuzz everything that reads input of others: each target accepts an input or refuses it by one clear error.

`scripts/bench fuzz [--minutes M] [--seed N] [TARGET…]` fuzzes all targets, or those named, one after the other in processes of their own.
Hypothesis makes the inputs; where atheris is installed, coverage guides the second half of the time.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable
from contextlib import ExitStack, nullcontext, suppress
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

from benchmarks._measure import save

try:
    import atheris  # type: ignore[import-not-found,import-untyped,unused-ignore]
except ImportError:
    atheris = None

MINUTES = 10.0
Target = tuple[st.SearchStrategy[Any], Callable[[Any], object]]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=40),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=12), inner, max_size=4)
    ),
    max_leaves=12,
)
PAGES = {
    "river.md": "---\ntags: [water]\ndate: 2026-01-02\n---\n# River\n\nThe river runs by the castle. See [[engine]].\n",
    "engine.md": "# Engine\n\nA copper engine in the harbour.\n\n## Parts\n\n- [ ] oil `getUserById`\n",
}


def small_library(root: Path) -> Any:
    """Return an indexed library of two documents."""
    from tests.making import library, write

    opened = library(write(root / "docs", PAGES), engine=f"file:{root / 'index'}")
    opened.index()
    return opened


def parser(root: Path, stack: ExitStack) -> Target:  # noqa: ARG001
    from tests.ingest.reading import chunks, parsed, uncovered
    from tests.ingest.test_properties import markdown

    from marklight.errors import Refused
    from marklight.ingest.read import decode

    def check(given: str | bytes) -> None:
        with suppress(Refused):
            text = decode(given)[0] if isinstance(given, bytes) else given
            assert uncovered(parsed(text)[1], chunks(text)) == []

    return markdown | st.binary(max_size=400), check


def rendering(root: Path, stack: ExitStack) -> Target:
    from tests.ingest.test_properties import markdown
    from tests.making import write

    from marklight.errors import MarklightError

    opened = stack.enter_context(small_library(root))

    def check(text: str) -> None:
        write(root / "docs", {"fuzzed.md": text})
        try:
            html = opened.page("fuzzed.md").html
        except MarklightError:
            return
        assert "<script" not in html.lower()
        assert "javascript:" not in html.lower() or "javascript:" in text.lower()

    return markdown, check


def frontmatter(root: Path, stack: ExitStack) -> Target:  # noqa: ARG001
    from marklight.ingest.frontmatter import split

    pieces = [
        "a: ",
        "- ",
        "{",
        "}",
        "[",
        "]",
        "&a ",
        "*a",
        "<<: ",
        "!!python/object ",
        "|",
        ">",
        '"',
        "'",
        "# ",
        ": ",
        "\n",
        "  ",
        "2026-13-99",
        "1e999",
        "0x",
        "~",
        "? ",
    ]
    lines = st.lists(st.sampled_from(pieces) | st.text(max_size=8), max_size=30).map("".join)

    def check(given: tuple[str, str]) -> None:
        fence, source = given
        json.dumps(split(f"{fence}\n{source}\n{fence}\nBody\n").values)

    return st.tuples(st.sampled_from(["---", "+++"]), lines), check


def query(root: Path, stack: ExitStack) -> Target:
    from marklight.errors import MarklightError

    opened = stack.enter_context(small_library(root))
    pieces = [
        "tag:",
        "path:",
        "in:",
        "title:",
        "after:",
        "before:",
        "task:open",
        '"',
        "-",
        "OR",
        "AND",
        "NOT",
        "(",
        ")",
        "*",
        "?",
        "river",
        "getUserById",
        "#",
        ":",
        "2026",
        "..",
        "\\",
        "^",
        "~",
        "[[engine]]",
        "C++",
    ]
    texts = st.lists(st.sampled_from(pieces) | st.text(max_size=6), min_size=1, max_size=12)

    def check(given: tuple[list[str], str, str]) -> None:
        words, separator, mode = given
        with suppress(MarklightError):
            json.dumps(opened.search(separator.join(words), mode=mode, refresh=False).to_dict())

    return st.tuples(
        texts, st.sampled_from([" ", ""]), st.sampled_from(["keyword", "hybrid", "code"])
    ), check


def settings_files(root: Path, stack: ExitStack) -> Target:  # noqa: ARG001
    from marklight.errors import MarklightError
    from marklight.library.configuration import SCHEMA, read_settings

    names = st.sampled_from([str(name) for name in SCHEMA] or ["engine"]) | st.text(max_size=10)
    values = st.sampled_from(
        [
            "1",
            "-1",
            "true",
            '"x"',
            "[]",
            "{}",
            "nan",
            "inf",
            "1e400",
            "1979-05-27",
            '"""',
            "[[1], 2]",
        ]
    ) | JSON.map(json.dumps)
    lines = st.lists(
        st.tuples(names, values).map(" = ".join)
        | names.map(lambda name: f"[{name}]")
        | st.text(max_size=20),
        max_size=8,
    ).map("\n".join)
    (root / "docs").mkdir()

    def check(given: tuple[str, list[str]]) -> None:
        (root / "docs" / "marklight.toml").write_text(given[0], errors="replace")
        with suppress(MarklightError):
            read_settings(root / "docs", given[1])

    return st.tuples(lines, st.lists(st.tuples(names, values).map("=".join), max_size=2)), check


def http(root: Path, stack: ExitStack) -> Target:
    from tests.surfaces.http.serving import serving

    served = stack.enter_context(serving(root / "docs"))
    keys = st.sampled_from(
        [
            "query",
            "q",
            "limit",
            "mode",
            "path",
            "tag",
            "where",
            "after",
            "min_confidence",
            "settings",
            "queries",
            "context",
        ]
    ) | st.text(max_size=8)
    bodies = st.dictionaries(keys, JSON, max_size=5).map(
        lambda body: json.dumps(body).encode()
    ) | st.binary(max_size=60)
    places = [
        "/api/search",
        "/api/commits",
        "/api/documents/river.md",
        "/api/outline/",
        "/api/related/x",
        "/api/graph",
        "/api/status",
        "/api/files/a.png",
        "/health",
        "/mcp",
        "/",
    ]
    targets = st.tuples(
        st.sampled_from(places),
        st.sampled_from(["", "?q=", "?limit=", "/%00", "/..%2f", "?q=%ff&q="]),
        st.text("abc%/.&=?0 ", max_size=8),
    ).map(lambda parts: "".join(parts).replace(" ", "+"))

    def check(given: tuple[str, str, bytes | None]) -> None:
        response = served.request(*given)
        assert response.status < 500 or response.status == 503, (
            response.status,
            response.body[:300],
        )
        if (
            given[0] != "HEAD"
            and response.status >= 400
            and "json" in response.headers.get("content-type", "")
        ):
            json.loads(response.body)

    return st.tuples(
        st.sampled_from(["GET", "POST", "DELETE", "PUT", "HEAD"]), targets, st.none() | bodies
    ), check


def mcp(root: Path, stack: ExitStack) -> Target:
    from tests.surfaces.http.serving import serving

    served = stack.enter_context(serving(root / "docs"))
    tools = [
        "query_documents",
        "search_with_hypothesis",
        "search_git_history",
        "get_document",
        "outline",
        "related_documents",
        "index_status",
        "list_documents",
    ]
    keys = st.sampled_from(
        [
            "query",
            "hypothesis",
            "ref",
            "path",
            "limit",
            "top_n",
            "max_tokens",
            "tags",
            "where",
            "mode",
        ]
    ) | st.text(max_size=6)
    call = st.fixed_dictionaries(
        {
            "name": st.sampled_from(tools) | st.text(max_size=5),
            "arguments": st.dictionaries(keys, JSON, max_size=4) | JSON,
        }
    )
    messages = (
        st.fixed_dictionaries(
            {
                "jsonrpc": st.just("2.0"),
                "id": st.integers(0, 9) | st.text(max_size=3),
                "method": st.sampled_from(
                    [
                        "tools/call",
                        "tools/list",
                        "resources/read",
                        "prompts/get",
                        "initialize",
                        "ping",
                    ]
                )
                | st.text(max_size=8),
                "params": call | JSON,
            }
        )
        | JSON
    )
    headers = {
        "Accept": "application/json, text/event-stream",
        "MCP-Protocol-Version": "2025-06-18",
    }

    def check(message: Any) -> None:
        response = served.request("POST", "/mcp", json.dumps(message).encode(), headers)
        assert response.status < 500, (response.status, response.body[:300])
        assert b"-32603" not in response.body, response.body[:500]
        assert b"Traceback" not in response.body

    return messages, check


def ipc(root: Path, stack: ExitStack) -> Target:
    import anyio

    from marklight.errors import MarklightError
    from marklight.operations import OPERATIONS
    from marklight.surfaces.daemon import State
    from marklight.surfaces.daemon.process import DISCONNECTED, IpcServer, JsonLines
    from marklight.surfaces.host import LibraryHost

    opened = stack.enter_context(small_library(root))
    clear = {kind.__name__ for kind in _subclasses(MarklightError)} | {
        "KeyError",
        "TypeError",
        "ValueError",
    }

    class Stream:
        def __init__(self, lines: list[bytes]) -> None:
            self.lines, self.sent = lines, b""

        async def receive(self) -> bytes:
            if not self.lines:
                raise anyio.EndOfStream
            return self.lines.pop(0)

        async def send(self, data: bytes) -> None:
            self.sent += data

    async def nothing() -> None:
        pass

    keys = st.sampled_from(["query", "text", "ref", "path", "limit", "mode", "refresh"])
    calls = st.fixed_dictionaries(
        {
            "operation": st.sampled_from(sorted({*OPERATIONS} - {"index"})),
            "arguments": st.dictionaries(keys, JSON, max_size=3),
        }
    )
    lines = st.lists(
        calls.map(lambda call: json.dumps(call).encode() + b"\n") | st.binary(max_size=40),
        max_size=3,
    )
    hello = [b'{"secret": "s"}\n', b'{"settings": {}}\n']

    def check(given: tuple[bool, list[bytes]]) -> None:
        stream = Stream([*(hello if given[0] else []), *given[1]])
        # Its limits belong to an event loop, so every case has its own.
        server = IpcServer(LibraryHost(opened), {}, nothing)
        server.state = State("", 1, 1, secret="s", proof="p")
        with suppress(*DISCONNECTED, TimeoutError, ValueError, RecursionError):
            anyio.run(server._serve_client, JsonLines(stream), False)  # type: ignore[arg-type]
        for line in stream.sent.splitlines():
            answer = json.loads(line)
            assert answer.get("error", {}).get("type", "KeyError") in clear, answer

    return st.tuples(st.sampled_from([True, True, True, False]), lines), check


def _subclasses(kind: type) -> set[type]:
    return {kind}.union(*map(_subclasses, kind.__subclasses__()))


edits = st.lists(
    st.tuples(
        st.floats(0, 1),
        st.sampled_from(["flip", "cut", "insert", "number", "drop"]),
        st.integers(0, 255),
    ),
    min_size=1,
    max_size=4,
)


def damaged(data: bytes, changes: list[tuple[float, str, int]]) -> bytes:
    """Return data with some bytes changed, cut off or inserted."""
    for share, kind, value in changes:
        place = int(share * len(data))
        if kind == "flip" and place < len(data):
            data = data[:place] + bytes([data[place] ^ (value or 1)]) + data[place + 1 :]
        elif kind == "cut":
            data = data[:place]
        elif kind == "insert":
            data = data[:place] + bytes([value]) * 9 + data[place:]
        elif kind == "number":
            data = data[:place] + str(value << 56).encode() + data[place:]
        elif kind == "drop":
            data = data[:place] + data[place + value :]
    return data


def archives(root: Path, stack: ExitStack) -> Target:  # noqa: ARG001
    from tests.making import library, write
    from tests.trust.archives import forged

    import marklight
    from marklight.errors import MarklightError

    with small_library(root) as opened:
        marklight.export_index(opened, root / "archive")
    with zipfile.ZipFile(root / "archive") as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    whole = (root / "archive").read_bytes()
    write(root / "target", PAGES)

    def check(given: tuple[str, list[tuple[float, str, int]]]) -> None:
        name, changes = given
        if name == "archive":
            (root / "fuzzed").write_bytes(damaged(whole, changes))
        else:
            try:
                forged(root / "fuzzed", {**members, name: damaged(members[name], changes)})
            except ValueError:  # the manifest is no JSON any more
                return
        shutil.rmtree(root / "other", ignore_errors=True)
        with library(root / "target", engine=f"file:{root / 'other'}") as target:
            with suppress(MarklightError):
                marklight.import_index(root / "fuzzed", target)
            assert (
                target.search("castle", mode="keyword", min_confidence=0.0).hits[0].chunk.path
                == "river.md"
            )

    return st.tuples(st.sampled_from([*members, "archive"]), edits), check


def disk(root: Path, stack: ExitStack) -> Target:  # noqa: ARG001
    from tests.faults.committing import copied
    from tests.making import library

    from marklight.errors import MarklightError

    with small_library(root):
        pass
    sound = root / "sound"
    (root / "index").rename(sound)
    files = sorted(str(path.relative_to(sound)) for path in sound.rglob("*") if path.is_file())
    texts = "\n".join(PAGES.values())

    def check(given: tuple[str, list[tuple[float, str, int]]]) -> None:
        name, changes = given
        shutil.rmtree(root / "index", ignore_errors=True)
        copied(sound, root / "index")
        (root / "index" / name).write_bytes(damaged((sound / name).read_bytes(), changes))
        with (
            suppress(MarklightError),
            library(root / "docs", engine=f"file:{root / 'index'}") as opened,
        ):
            for hit in opened.search("castle engine", min_confidence=0.0).hits:
                assert hit.chunk.text in texts, hit.chunk.text
            opened.engine.check()
            opened.index()
            assert opened.engine.check() == []
            found = opened.search("castle", mode="keyword", min_confidence=0.0).hits
            assert [hit.chunk.path for hit in found[:1]] == ["river.md"]

    return st.tuples(st.sampled_from(files), edits), check


TARGETS: dict[str, Callable[[Path, ExitStack], Target]] = {
    "parser": parser,
    "rendering": rendering,
    "frontmatter": frontmatter,
    "query": query,
    "settings": settings_files,
    "http": http,
    "mcp": mcp,
    "ipc": ipc,
    "archives": archives,
    "disk": disk,
}


def fuzz(name: str, minutes: float, number: int) -> None:
    """Fuzz one target in this process, and print the number of inputs; a finding is an exception."""
    count = 0
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        os.environ["MARKLIGHT_DATA_DIR"] = str(Path(folder) / "data")
        with atheris.instrument_imports(include=["marklight"]) if atheris else nullcontext():
            strategy, check = TARGETS[name](Path(folder), stack)

        @settings(
            max_examples=100, database=None, deadline=None, suppress_health_check=list(HealthCheck)
        )
        @given(strategy)
        def test(value: Any) -> None:
            nonlocal count
            count += 1
            if count % 100 == 0:
                print(count, flush=True)
            check(value)

        seconds = 60 * minutes / (2 if atheris else 1)
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            seed(number)(test)()
            number += 1
        if atheris:  # the second half; it ends the process
            limits = (
                f"-max_total_time={int(seconds)}",
                f"-seed={number}",
                "-rss_limit_mb=0",
                "-len_control=0",
                "-max_len=2048",
            )
            atheris.Setup([name, *limits], test.hypothesis.fuzz_one_input)  # type: ignore[attr-defined]
            atheris.Fuzz()


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("targets", nargs="*", choices=[*TARGETS, []])
    options.add_argument("--minutes", type=float, default=MINUTES)
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--here", action="store_true", help="in this process, for a debugger")
    given = options.parse_args()
    if given.here:
        fuzz(given.targets[0], given.minutes, given.seed)
        return
    result = {}
    for name in given.targets or TARGETS:
        command = [
            sys.executable,
            "-m",
            "benchmarks.fuzz",
            name,
            "--here",
            "--minutes",
            str(given.minutes),
            "--seed",
            str(given.seed),
        ]
        run = subprocess.run(command, capture_output=True, text=True)
        counts = run.stdout.split()
        result[name] = {
            "inputs": int(counts[-1]) if counts else 0,
            "minutes": given.minutes,
            "findings": int(run.returncode != 0),
        }
        print(name, result[name], flush=True)
        if run.returncode:
            print(run.stderr[-3000:], flush=True)
    save("fuzz", {"seed": given.seed, "targets": result})


if __name__ == "__main__":
    main()
