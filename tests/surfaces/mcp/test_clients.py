"""Check what reaches the model behind clients such as Claude Code and Codex, which prefer structured content to text."""

from __future__ import annotations

import ast
import json
import pickle
import re
from collections.abc import AsyncIterator, Collection, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client

import marklight
from marklight.errors import Message, NotFound, StoreError
from marklight.library.watching import Watcher
from marklight.surfaces.host import LibraryHost
from marklight.surfaces.mcp import rendering
from marklight.surfaces.mcp.server import make_server
from marklight.surfaces.mcp.tool_definitions import tools_for
from marklight.text.tokens import fits
from tests.making import library, write

from .serving import PAGES, indexed

MAX_LIST_TOKENS = 1500
"""Size of tools/list, and of what models read at the start: instructions, names, descriptions and schemas."""
MODEL_KEYS = ("name", "description", "inputSchema")
"""Keys of a tool that clients pass on to the model."""
COMMAND = re.compile(r"marklight [a-z]+\b|(?<!\S)--[a-z]|min_confidence|pip install|git show")
"""Commands and parameters of other surfaces, which a model cannot use."""
SOURCE = Path(marklight.__file__).parent


def seen_by_model(result: Any) -> str:
    """Return what such a client passes on: the JSON if there is any, else the text."""
    if result.structured_content is not None:
        return json.dumps(result.structured_content)
    return "\n".join(each.text for each in result.content)


@asynccontextmanager
async def connected(folder: Path, **settings: Any) -> AsyncIterator[Client]:
    host = LibraryHost(library(folder, **settings))
    async with host.open(), Client(make_server(host), mode="legacy") as client:
        await indexed(client)
        yield client


LONG = "# Long\n\n" + "\n".join(f"Line {n} mentions a token and bananas." for n in range(3, 300))
RUSSIAN = "# Токены\n\n" + "Токен обновления живёт тридцать дней. " * 60 + "token\n"
JAPANESE = "# トークン\n\n" + "更新トークンは三十日間有効です。" * 80 + " token\n"
CALLS: list[tuple[str, dict[str, Any]]] = [
    ("query_documents", {"query": "how long does a refresh token live"}),
    ("query_documents", {"query": "token", "top_n": 10, "min_score": 0}),
    ("query_documents", {"query": "token", "explain": True, "parents": True}),
    ("query_documents", {"query": "zebra crossing quantum"}),
    ("query_documents", {"query": "token", "path": ["nowhere/**"]}),
    ("search_with_hypothesis", {"hypothesis": "A token expires after some minutes."}),
    ("list_documents", {}),
    ("list_documents", {"query": "token"}),
    ("get_document", {"ref": "long.md"}),
    ("get_document", {"ref": "ru.md"}),
    ("get_document", {"ref": "ja.md"}),
]


@pytest.mark.parametrize("tokens", [60, 300, 2000])
def test_a_model_sees_text_within_the_token_budget(tmp_path: Path, tokens: int) -> None:
    pages = {**PAGES, "long.md": LONG, "ru.md": RUSSIAN, "ja.md": JAPANESE}

    async def main() -> None:
        async with connected(write(tmp_path, pages)) as client:
            for tool, given in CALLS:
                result = await client.call_tool(tool, {**given, "max_tokens": tokens})
                text = seen_by_model(result)
                assert not result.is_error, text
                assert not text.startswith("{"), "text, not JSON"
                assert fits(text, tokens), (tool, given)
                assert not COMMAND.search(text), text
            others = [("outline", "long.md"), ("related_documents", "guide/auth.md")]
            for tool, ref in others:
                assert seen_by_model(await client.call_tool(tool, {"ref": ref}))
            assert "documents, " in seen_by_model(await client.call_tool("index_status", {}))

    anyio.run(main)


def test_structured_content_is_sent_only_on_request(tmp_path: Path) -> None:
    folder = write(tmp_path, PAGES)
    given = {"query": "how long does a refresh token live"}

    async def has_json(**settings: Any) -> bool:
        async with connected(folder, **settings) as client:
            listed = (await client.list_tools()).tools
            result = await client.call_tool("query_documents", given)
            assert seen_by_model(result).startswith("{" if settings else "[1] guide/auth.md:")
            schemas = {tool.output_schema is not None for tool in listed}
            assert len(schemas) == 1
            return schemas.pop()

    async def main() -> None:
        assert not await has_json()
        assert await has_json(mcp={"structured": True})

    anyio.run(main)


@pytest.mark.parametrize("collections", [1, 2])
def test_the_tools_and_the_instructions_are_short(tmp_path: Path, collections: int) -> None:
    for number in range(collections):
        write(tmp_path / f"part{number}", PAGES)
    (tmp_path / ".git").mkdir()  # so that all tools are listed
    named = {f"part{number}": f"part{number}" for number in range(collections)}

    async def main() -> None:
        async with connected(tmp_path, collections=named) as client:
            listed = (await client.list_tools()).model_dump(
                by_alias=True, exclude_none=True, mode="json"
            )
            tools = listed["tools"]
            read = [{key: tool[key] for key in MODEL_KEYS} for tool in tools]
            assert "outputSchema" not in str(tools)
            for value, more in ((tools, ""), (read, client.instructions or "")):
                text = json.dumps(value, separators=(",", ":")) + more
                assert fits(text, MAX_LIST_TOKENS)
                if encoding := tokenizer():
                    assert len(encoding.encode(text)) <= MAX_LIST_TOKENS

    anyio.run(main)


def tokenizer() -> Any:
    """Return a tokenizer of a language model, if one is installed with its vocabulary."""
    try:
        import tiktoken

        return tiktoken.get_encoding("o200k_base")
    except Exception:  # not installed, or its vocabulary cannot be downloaded
        return None


@pytest.mark.parametrize(
    ("tool", "wrong", "right"),
    [
        ("query_documents", "limits", "limit"),
        ("query_documents", "max_token", "max_tokens"),
        ("search_git_history", "authors", "author"),
        ("outline", "min_confidence", ""),
    ],
)
def test_an_unknown_parameter_suggests_another_one_of_the_same_tool(
    tmp_path: Path, tool: str, wrong: str, right: str
) -> None:
    async def main() -> None:
        async with connected(write(tmp_path, PAGES)) as client:
            result = await client.call_tool(
                tool, {"query": "x", wrong: "y"} if right else {wrong: 0}
            )
            text = seen_by_model(result)
            assert result.is_error
            assert text.startswith(f"{tool} has no parameter {wrong!r}. ")
            suggested = re.findall(r"Did you mean '(\w+)'\?", text)
            assert suggested == ([right] if right else [])
            assert set(suggested) <= {
                parameter.name for parameter in tools_for(False)[tool].parameters
            }

    anyio.run(main)


def test_the_names_ref_and_path_are_both_accepted(tmp_path: Path) -> None:
    async def main() -> None:
        async with connected(write(tmp_path, PAGES)) as client:
            for tool in ("get_document", "outline", "related_documents"):
                texts = [
                    seen_by_model(await client.call_tool(tool, {name: "guide/auth.md"}))
                    for name in ("ref", "path")
                ]
                assert texts[0] == texts[1]
                missing = await client.call_tool(tool, {})
                assert "Missing parameter: 'ref'" in seen_by_model(missing)

    anyio.run(main)


PARTS_OR_FOR_PEOPLE = {
    "library/ask.py",
    "library/folder_settings.py",
    "library/model_selection.py",
    "library/transfer/__init__.py",
    "library/transfer/copying.py",
    "ingest/git.py",
    "engines/embedded/engine.py",
    "engines/server/qdrant/cluster.py",
    "models/remote/generator.py",
    "models/record.py",
    "models/store.py",
}
"""Modules with texts that are parts of a `Message`, hints for users, or printed by commands only."""


def texts_with_commands(node: ast.AST, hidden: Collection[str]) -> Iterator[str]:
    """Yield the texts that mention a command and are no docstring, outside calls of the hidden names."""
    if isinstance(node, ast.Call):
        name = getattr(node.func, "id", getattr(node.func, "attr", ""))
        if name in hidden:
            return
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        return
    if isinstance(node, ast.JoinedStr):
        parts = (part.value if isinstance(part, ast.Constant) else "X" for part in node.values)
        text = "".join(map(str, parts))
    else:
        value = node.value if isinstance(node, ast.Constant) else ""
        text = value if isinstance(value, str) else ""
    if re.search(r"marklight [a-z]+[` ]|(?<=\s)--[a-z]+-?[a-z]+", text):
        yield text
        return
    for child in ast.iter_child_nodes(node):
        yield from texts_with_commands(child, hidden)


def test_a_text_with_a_command_is_a_message_with_a_form_for_assistants() -> None:
    errors = {error.__name__ for kind in rendering.USER_ERRORS for error in subclasses(kind)}
    modules = set()
    for folder in ("library", "search", "ingest", "engines", "models"):
        for file in sorted((SOURCE / folder).rglob("*.py")):
            tree = ast.parse(file.read_text())
            if any(
                "\n" not in text
                for text in texts_with_commands(tree, {*errors, "Message", "MissingLibrary"})
            ):
                modules.add(str(file.relative_to(SOURCE)))
    assert modules <= PARTS_OR_FOR_PEOPLE


def subclasses(kind: type[Any]) -> Iterator[type[Any]]:
    yield kind
    for below in kind.__subclasses__():
        yield from subclasses(below)


def test_a_hint_for_people_is_replaced_and_the_message_is_kept(tmp_path: Path) -> None:
    watcher = Watcher(library(tmp_path))
    hint = Message("Use `marklight search` now", "Search now")
    quoting = NotFound("No document is called 'marklight index --all'", hint)
    assert rendering.error_text(quoting, watcher) == (
        "No document is called 'marklight index --all'. Search now"
    )
    broken = StoreError("a.md is damaged in the index", "Run `marklight doctor`")
    assert rendering.error_text(broken, watcher) == (
        f"a.md is damaged in the index. {rendering.TELL_THE_USER}"
    )
    statement = "Damaged in the index and left out: a.md"
    notice = Message(f"{statement}; `marklight doctor` repairs it", statement)
    assert rendering.notes_of([notice]) == [f"note: {statement}"]
    assert pickle.loads(pickle.dumps(notice)).for_assistant == statement
