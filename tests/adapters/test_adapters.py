"""Retrievers for LangChain and LlamaIndex return passages that can be cited."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import marklight
from tests.making import write

ROOT = Path(__file__).parents[2]
PAGES = {
    "docs/auth.md": "# Tokens\n\nAn access token expires after an hour.\n\n## Refresh\n\nA refresh token gives a new one.\n",
    "notes/coffee.md": "# Espresso\n\nThe espresso machine wants water every morning.\n",
}


@pytest.fixture
def library(tmp_path: Path) -> Iterator[marklight.Library]:
    write(tmp_path, PAGES)
    collections = {"docs": "docs", "notes": "notes"}
    settings = {"model": {"name": "fake"}, "collections": collections}
    with marklight.open(tmp_path, settings) as opened:
        yield opened


def cited(library: marklight.Library, metadata: dict[str, Any]) -> str:
    """The lines that a source names, read from the file."""
    first, last = metadata["lines"]
    assert metadata["source"] == f"{metadata['collection']}/{metadata['path']}:{first}-{last}"
    lines = (
        (library.collections[metadata["collection"]] / metadata["path"]).read_text().splitlines()
    )
    return "\n".join(lines[first - 1 : last])


def test_the_langchain_retriever_returns_citable_passages(library: marklight.Library) -> None:
    langchain = pytest.importorskip("marklight.adapters.langchain")
    retriever = langchain.MarklightRetriever(library=library, options={"limit": 2})
    results = retriever.invoke("when does an access token expire")
    assert results[0].metadata["path"] == "auth.md"
    assert results[0].metadata["score"] >= 0.3
    assert results[0].page_content.strip() in cited(library, results[0].metadata)
    assert results[0].id == results[0].metadata["chunk_id"]
    assert asyncio.run(retriever.ainvoke("when does an access token expire")) == results
    assert retriever.invoke("espresso machine", tag="none") == []


def test_the_langchain_retriever_returns_nothing_on_abstention(library: marklight.Library) -> None:
    langchain = pytest.importorskip("marklight.adapters.langchain")
    retriever = langchain.MarklightRetriever(library=library, options={"min_confidence": 1})
    assert retriever.invoke("espresso machine") == []


def test_the_llama_index_retriever_returns_citable_passages(library: marklight.Library) -> None:
    llama = pytest.importorskip("marklight.adapters.llama_index")
    from llama_index.core.schema import MetadataMode

    retriever = llama.MarklightRetriever(library, limit=2, collection="notes")
    results = retriever.retrieve("espresso machine")
    assert [result.node.metadata["path"] for result in results] == ["coffee.md"]
    metadata = results[0].node.metadata
    assert results[0].score == metadata["score"]
    assert results[0].node.text.strip() in cited(library, metadata)
    assert (
        results[0].node.get_content(MetadataMode.LLM).startswith(f"source: {metadata['source']}\n")
    )
    assert results[0].node.get_content(MetadataMode.EMBED).strip() == results[0].node.text.strip()


def test_a_langchain_tool_gives_an_agent_the_source_of_each_passage(
    library: marklight.Library,
) -> None:
    from marklight.adapters.langchain import MarklightRetriever

    tool = MarklightRetriever(library=library, options={"limit": 1}).tool("notes", "Search notes.")
    text = tool.invoke({"query": "when does an access token expire"})
    assert text.startswith("[docs/auth.md:3-7]\nAn access token expires")


def test_asynchronous_retrieval_does_not_block_the_event_loop(library: marklight.Library) -> None:
    from marklight.adapters.langchain import MarklightRetriever as OfLangChain
    from marklight.adapters.llama_index import MarklightRetriever as OfLlamaIndex

    library.index()
    threads: list[int] = []
    search = library.search

    def noted(*given: Any, **more: Any) -> marklight.Answer:
        threads.append(threading.get_ident())
        return search(*given, **more)

    library.__dict__["search"] = noted

    async def main() -> None:
        await OfLlamaIndex(library).aretrieve("espresso")
        await OfLangChain(library=library).ainvoke("espresso")
        await asyncio.to_thread(library.search, "espresso", limit=1)

    asyncio.run(main())
    assert len(threads) == 3
    assert threading.get_ident() not in threads


@pytest.mark.parametrize("name", ["langchain", "llama_index"])
def test_each_example_runs_offline(name: str, tmp_path: Path) -> None:
    pytest.importorskip(f"marklight.adapters.{name}")
    done = subprocess.run(
        [sys.executable, f"examples/{name}_citations.py", "Where the index is stored"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        env={
            **os.environ,
            # A proxy that is not there: whatever asks for the network fails.
            **dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"), "http://127.0.0.1:9"),
            "MARKLIGHT_ENGINE": f"file:{tmp_path}",
            "MARKLIGHT_MODEL_NAME": "fake",
        },
    )
    assert done.returncode == 0, done.stderr
    assert ".md:" in done.stdout


@pytest.mark.parametrize(
    "module, package", [("langchain", "langchain_core"), ("llama_index", "llama_index")]
)
def test_a_missing_extra_gives_the_line_that_installs_it(module: str, package: str) -> None:
    program = f"import sys; sys.modules[{package!r}] = None; import marklight.adapters.{module}"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    extra = module.replace("_", "-")
    last = done.stderr.strip().splitlines()[-1]
    assert last.endswith(f'Install it with: pip install "marklight[{extra}]"')
