"""basic-memory with text search: its commands add the folder and index it, a client of its MCP server searches.

All of it runs in this process. Its default is hybrid search with a model that it downloads at first use; this is its
search without one, as nothing is downloaded here. Nor does it add frontmatter to the documents, its other default.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import basic_memory.mcp.tools  # noqa: F401 (registers them)
from basic_memory.cli.commands.command_utils import run_project_index
from basic_memory.cli.main import app
from basic_memory.config import init_mcp_logging
from basic_memory.mcp.server import mcp
from fastmcp import Client

from benchmarks.peers._program import Collection, Search, Tool, run

PROJECT = "all"


def configure(place: Path) -> None:
    os.environ |= {
        "BASIC_MEMORY_CONFIG_DIR": str(place),
        "BASIC_MEMORY_HOME": str(place / "main"),
        "BASIC_MEMORY_AUTO_UPDATE": "false",
        "BASIC_MEMORY_NO_PROMOS": "1",  # and no usage statistics
        "BASIC_MEMORY_SYNC_CHANGES": "false",  # no watcher beside the update that is measured
        "BASIC_MEMORY_SEMANTIC_SEARCH_ENABLED": "false",
        "BASIC_MEMORY_ENSURE_FRONTMATTER_ON_SYNC": "false",
    }


def build(collection: Collection, place: Path) -> None:
    configure(place)
    add = ("project", "add", PROJECT, str(collection.folder), "--default")
    for arguments in (add, ("reindex", "--project", PROJECT)):
        app(arguments, standalone_mode=False)


def load(_: Collection, place: Path) -> Search:
    configure(place)
    init_mcp_logging()
    client = RUNNER.run(Client(mcp).__aenter__())

    def search(text: str, limit: int) -> list[str]:
        arguments = {"query": text, "page_size": limit, "output_format": "json"}
        answer = RUNNER.run(client.call_tool("search_notes", arguments))
        return [row["file_path"] for row in answer.structured_content["result"]["results"]]

    return search


def update(_collection: Collection, _place: Path, _changed: str) -> None:
    RUNNER.run(run_project_index(PROJECT, run_in_background=False))


with asyncio.Runner() as RUNNER:
    run(Tool(build, load, update))
