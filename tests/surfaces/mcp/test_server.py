"""The MCP server in this process: tools, URIs, notifications, cancellation, progress."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from threading import Event
from typing import Any

import anyio
import anyio.to_thread
import mcp_types as types
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mcp import Client, MCPError
from mcp.client.subscriptions import ResourcesListChanged, ResourceUpdated

from marklight.errors import NotFound
from marklight.formatting import document_uri
from marklight.model import DocumentId
from marklight.models.fake import FakeEmbedder
from marklight.surfaces.host import LibraryHost
from marklight.surfaces.mcp.resources import (
    PAGE_SIZE,
    fully_encoded_uri,
    parse_uri,
)
from marklight.surfaces.mcp.server import make_server
from tests.making import library, write

from .serving import PAGES, indexed, names, text_of, until

Check = Callable[[Client, LibraryHost], Awaitable[None]]


@asynccontextmanager
async def connected(
    folder: Path, era: str = "auto", handler: Any = None, **settings: Any
) -> AsyncIterator[tuple[Client, LibraryHost]]:
    host = LibraryHost(library(folder, **{"mcp": {"structured": True}, **settings}))
    async with host.open(), Client(make_server(host), mode=era, message_handler=handler) as client:
        await indexed(client)
        yield client, host


def test_commits_are_offered_only_where_there_is_a_repository(tmp_path: Path) -> None:
    async def main() -> None:
        folder = write(tmp_path, PAGES)
        async with connected(folder) as (client, _):
            listed = (await client.list_tools()).tools
            assert "search_git_history" not in (client.instructions or "")
            called = await client.call_tool("search_git_history", {"query": "carrots"})
            assert called.is_error
        (folder / ".git").mkdir()
        async with connected(folder) as (client, _):
            more = (await client.list_tools()).tools
            assert set(names(more)) - set(names(listed)) == {"search_git_history"}
            assert "search_git_history" in (client.instructions or "")

    anyio.run(main)


def test_common_names_of_the_limit_are_accepted(tmp_path: Path) -> None:
    async def main() -> None:
        async with connected(write(tmp_path, PAGES)) as (client, _):
            for name in ("limit", "top_n", "top_k", "k", "max_results", "num_results"):
                given = {"query": "token", "min_score": 0, name: 1}
                answer = await client.call_tool("query_documents", given)
                assert len(answer.structured_content["results"]) == 1

    anyio.run(main)


async def reindex(host: LibraryHost) -> None:
    """Index as the watcher does, and notify its listeners."""
    report = await anyio.to_thread.run_sync(host.library.index)
    for hear in list(host.watcher.listeners):
        await anyio.to_thread.run_sync(hear, report)


def test_instructions_are_short_and_name_every_tool(tmp_path: Path) -> None:
    async def main() -> None:
        async with connected(write(tmp_path, PAGES)) as (client, _):
            for name in names((await client.list_tools()).tools):
                assert name in (client.instructions or "")

    anyio.run(main)


def test_tools_have_the_documented_parameters(tmp_path: Path) -> None:
    filters = ["path", "tag", "where", "after", "before", "exclude"]

    async def main() -> None:
        async with connected(write(tmp_path, PAGES)) as (client, _):
            known = {
                tool.name: list(tool.input_schema["properties"])
                for tool in (await client.list_tools()).tools
            }
        search = ["query", "limit", "mode", "min_confidence", *filters, "max_tokens", "parents"]
        assert known["query_documents"] == [*search, "queries"]
        assert known["search_with_hypothesis"] == ["hypothesis"]
        assert known["get_document"] == ["ref", "line_numbers", "max_tokens"]
        assert known["related_documents"] == ["ref"]
        assert known["outline"] == ["ref", "section"]
        assert known["index_status"] == []

    anyio.run(main)


def test_stage_settings_can_be_set_by_parameters(tmp_path: Path) -> None:
    words = ("apples", "lemons", "grapes", "cherries", "melons")
    page = "# Page\n\n" + "".join(
        f"## {each}\n\nBananas and {f'{each} ' * 50}\n\n" for each in words
    )

    async def main() -> None:
        async with connected(write(tmp_path, {"a.md": page})) as (client, _):
            for most in (1, 2, 4):
                given = {
                    "query": "bananas",
                    "max_chunks_per_document": most,
                    "top_n": 5,
                    "similarity_threshold": 1,
                }
                answer = await client.call_tool("query_documents", given)
                assert len(answer.structured_content["results"]) == most
                text = answer.content[0].text  # type: ignore[union-attr]
                more = 5 - most
                assert f"{more} more passage{'s' * (more > 1)} of this page match" in text

    anyio.run(main)


def test_no_omission_is_reported_if_the_requested_number_is_shown(
    tmp_path: Path,
) -> None:
    page = "# Page\n\n" + "".join(f"## {n}\n\nBananas {f'w{n} ' * 60}\n\n" for n in range(5))

    async def main() -> None:
        async with connected(write(tmp_path, {"a.md": page})) as (client, _):
            answer = await client.call_tool("query_documents", {"query": "bananas", "top_n": 2})
            text = answer.content[0].text  # type: ignore[union-attr]
            assert len(answer.structured_content["results"]) == 2
            assert "Not shown: " not in text

    anyio.run(main)


def test_equivalent_forms_of_arguments_are_accepted(tmp_path: Path) -> None:
    pages = {"a.md": "---\nstatus: done\n---\nBananas.\n", "b.md": "Bananas, too.\n"}
    ways: list[dict[str, Any]] = [
        {"top_n": 5.0, "path": "a.md"},
        {"where": {"status": "done"}},
        {"where": "status=done"},
        {"where": ["status=done"]},
        {"path": "a.md", "tags": "", "after": "", "before": "", "excluded_files": [""]},
    ]

    async def main() -> None:
        async with connected(write(tmp_path, pages)) as (client, _):
            for way in ways:
                given = {"query": "bananas", "mode": "keyword", "min_score": 0, **way}
                found = (await client.call_tool("query_documents", given)).structured_content
                assert [each["path"] for each in found["results"]] == ["a.md"], way

    anyio.run(main)


def test_a_long_list_of_documents_is_paginated(tmp_path: Path) -> None:
    pages = {f"{n:03}.md": f"# {n}\n" for n in range(PAGE_SIZE + 5)}

    async def main() -> None:
        async with connected(write(tmp_path, pages)) as (client, _):
            first = await client.list_resources()
            second = await client.list_resources(cursor=first.next_cursor)
            assert names([*first.resources, *second.resources]) == sorted(pages)
            assert (len(first.resources), second.next_cursor) == (PAGE_SIZE, None)

    anyio.run(main)


def test_with_several_collections_paths_start_with_the_collection(tmp_path: Path) -> None:
    write(tmp_path, {"one/b/x.md": "# Of one\n", "two/x.md": "# Of two\n"})

    async def main() -> None:
        collections = {"a": "one", "b": "two"}
        async with connected(tmp_path, collections=collections) as (client, _):
            listed = {each.uri for each in (await client.list_resources()).resources}
            assert listed == {"marklight://docs/a/b/x.md", "marklight://docs/b/x.md"}
            [contents] = (await client.read_resource("marklight://docs/b/x.md")).contents
            assert contents.text == "# Of two"  # type: ignore[union-attr]
            text = text_of(await client.call_tool("query_documents", {"query": "of two"}))
            assert text.startswith("[1] b/x.md:1-1 § Of two")
            tools = {tool.name: tool for tool in (await client.list_tools()).tools}
            assert "collection" in tools["query_documents"].input_schema["properties"]

    anyio.run(main)


@pytest.mark.parametrize(
    "path",
    [
        "../secret.md",
        "guide/../../secret.md",
        "%2e%2e/secret.md",
        "..%2fsecret.md",
        "/etc/passwd",
        "%2Fetc%2Fpasswd",
        "guide\\..\\..\\secret.md",
        "guide/auth.md%00",
        "link.md",
        "guide",
        "",
        "%ff",
        "x" * 100_000,
    ],
)
def test_resources_outside_the_collections_cannot_be_read(tmp_path: Path, path: str) -> None:
    write(tmp_path, {"secret.md": "# Secret\n"})
    folder = write(tmp_path / "docs", PAGES)
    (folder / "link.md").symlink_to(tmp_path / "secret.md")

    async def main() -> None:
        async with connected(folder) as (client, _):
            with pytest.raises(
                MCPError,
                match=r"(?i)no document|no such|is called|nothing|not a document|reference is empty",
            ):
                await client.read_resource(f"marklight://docs/{path}")

    anyio.run(main)


@given(st.text(min_size=1).filter(lambda text: "\0" not in text), st.booleans())
def test_a_document_uri_round_trips(path: str, several: bool) -> None:
    id = DocumentId("b c", path)
    collections = ["a", "b c"] if several else ["b c"]
    try:
        path.encode()
    except UnicodeEncodeError:
        return
    for made in (document_uri(id, several), fully_encoded_uri(id, several)):
        assert parse_uri(made, collections) == (id, "")


def test_a_uri_outside_the_collections_is_rejected() -> None:
    for wrong in ("marklight://docs/x.md", "marklight://docs/", "http://docs/a/x.md"):
        with pytest.raises(NotFound):
            parse_uri(wrong, ["a", "b"])


def test_paths_headings_and_tags_are_completed(tmp_path: Path) -> None:
    section = types.PromptReference(name="summarize_section")
    template = types.ResourceTemplateReference(uri="marklight://docs/{path}")

    async def main() -> None:
        async with connected(write(tmp_path, PAGES)) as (client, _):

            async def values(ref: Any, name: str, typed: str, **known: str) -> list[str]:
                argument = {"name": name, "value": typed}
                found = await client.complete(ref, argument, context_arguments=known or None)
                return found.completion.values

            assert await values(template, "path", "guide/") == ["guide/auth.md", "guide/tokens.md"]
            assert await values(section, "path", "SOUP") == ["recipes/soup.md"]
            assert len(await values(section, "path", "")) == 3
            headings = await values(section, "heading", "tok", path="guide/auth.md")
            assert headings == ["Token refresh"]
            research = types.PromptReference(name="research")
            assert await values(research, "tag", "#sec") == ["security", "security/keys"]
            assert await values(research, "question", "x") == []
            assert await values(section, "heading", "x", path="nowhere.md") == []

    anyio.run(main)


@pytest.mark.filterwarnings("ignore::mcp.shared.exceptions.MCPDeprecationWarning")
def test_a_subscriber_is_notified_of_its_document_and_of_the_list(tmp_path: Path) -> None:
    folder, heard = write(tmp_path, PAGES), []

    async def hear(message: Any) -> None:
        heard.append((message.method, getattr(message.params, "uri", None)))

    async def main() -> None:
        async with connected(folder, "legacy", hear) as (client, host):
            assert client.server_capabilities.resources == types.ResourcesCapability(
                subscribe=True, list_changed=True
            )
            uri = "marklight://docs/guide%2Fauth.md"
            await client.subscribe_resource(uri)
            write(folder, {"guide/auth.md": "# Auth\n\nAll new.\n", "guide/tokens.md": "# T\n"})
            await reindex(host)
            await until(
                _now(heard), lambda reported: ("notifications/resources/updated", uri) in reported
            )
            (folder / "recipes/soup.md").unlink()
            await reindex(host)
            gone = ("notifications/resources/list_changed", None)
            await until(_now(heard), lambda reported: gone in reported)
            updated = {uri for method, uri in heard if method == "notifications/resources/updated"}
            assert updated == {uri}, "only subscribed documents"
            await client.unsubscribe_resource(uri)
            heard.clear()
            write(folder, {"guide/auth.md": "# Auth\n\nNewer.\n", "more.md": "# More\n"})
            await reindex(host)
            await until(_now(heard), lambda reported: gone in reported)
            assert ("notifications/resources/updated", uri) not in heard

    anyio.run(main)


def _now(values: list[Any]) -> Callable[[], Awaitable[Any]]:
    async def look() -> Any:
        return list(values)

    return look


def test_a_listener_is_notified_of_its_subscriptions(tmp_path: Path) -> None:
    folder = write(tmp_path, PAGES)
    uri = "marklight://docs/guide/auth.md"

    async def main() -> None:
        async with connected(folder) as (client, host):
            listening = client.listen(resource_subscriptions=[uri], resources_list_changed=True)
            async with listening as events:
                write(folder, {"guide/auth.md": "# Auth\n\nAll new.\n", "new.md": "# New\n"})
                await reindex(host)
                heard: set[Any] = set()
                with anyio.fail_after(60):
                    async for event in events:
                        heard.add(event)
                        if len(heard) == 2:
                            break
                assert heard == {ResourceUpdated(uri), ResourcesListChanged()}

    anyio.run(main)


def test_a_cancelled_call_stops_the_search(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a slow model, the stages after it never start."""
    begun, go_on, ended = Event(), Event(), Event()
    usual = FakeEmbedder.embed_query

    def slowly(self: FakeEmbedder, text: str) -> Any:
        begun.set()
        assert go_on.wait(60)
        return usual(self, text)

    async def main() -> None:
        async with connected(write(tmp_path, PAGES)) as (client, host):
            after: list[str] = []
            work = host.library.execute

            def watched(*words: Any, **given: Any) -> Any:
                try:
                    answer = work(*words, **given)
                    after.append("answered")
                    return answer
                except BaseException as error:
                    after.append(type(error).__name__)
                    raise
                finally:
                    ended.set()

            monkeypatch.setattr(host.library, "execute", watched)
            monkeypatch.setattr(FakeEmbedder, "embed_query", slowly)
            async with anyio.create_task_group() as group:
                group.start_soon(client.call_tool, "query_documents", {"query": "a new question"})
                await anyio.to_thread.run_sync(begun.wait)
                group.cancel_scope.cancel()
            go_on.set()
            assert await anyio.to_thread.run_sync(lambda: ended.wait(60))
            assert after == ["Stopped"]

    anyio.run(main)


def test_progress_notifications_only_increase(tmp_path: Path) -> None:
    heard: list[tuple[float, float | None, str | None]] = []

    async def hear(progress: float, total: float | None, message: str | None) -> None:
        heard.append((progress, total, message))

    async def main() -> None:
        pages = {f"{n}.md": f"# {n}\n\nBananas, part {n}.\n" for n in range(1_500)}
        host = LibraryHost(library(write(tmp_path, pages)))
        # Without the watcher: the call itself creates the index.
        async with Client(make_server(host), mode="legacy") as client:
            given = {"query": "bananas"}
            await client.call_tool("query_documents", given, progress_callback=hear)
            missing = {"ref": "nowhere.md"}
            wrong = await client.call_tool("get_document", missing, progress_callback=hear)
            assert "No document is called 'nowhere.md'" in text_of(wrong)
        host.library.close()

    anyio.run(main)
    assert heard
    assert [done for done, *_ in heard] == sorted({done for done, *_ in heard})
    assert all(total is not None and done <= total for done, total, _ in heard)
    assert all(message and message.startswith("indexing, ") for *_, message in heard)
