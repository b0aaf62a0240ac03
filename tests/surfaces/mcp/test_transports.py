"""Tools, resources and prompts over both transports and all protocol versions."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from anyio.from_thread import BlockingPortal, start_blocking_portal
from mcp import Client, MCPError

from marklight.surfaces.cli import run
from tests.making import write

from .serving import ERAS, PAGES, TRANSPORTS, connected, indexed, names, text_of, without_passing

TOOLS = [
    "query_documents",
    "list_documents",
    "search_with_hypothesis",
    "get_document",
    "outline",
    "related_documents",
    "index_status",
]
Check = Callable[[Client], Awaitable[None]]


@dataclass(frozen=True)
class Asking:
    """A client of an indexed library, and where that is."""

    folder: Path
    client: Client
    portal: BlockingPortal

    def __call__(self, check: Check) -> None:
        self.portal.call(check, self.client)


@pytest.fixture(
    scope="module", params=[f"{transport} {era}" for transport in TRANSPORTS for era in ERAS]
)
def asking(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Asking]:
    """One for all tests: they only read."""
    transport, era = request.param.split()
    tmp_path = tmp_path_factory.mktemp("asking")
    folder = write(tmp_path / "docs", PAGES)
    with (
        start_blocking_portal() as portal,
        portal.wrap_async_context_manager(connected(folder, tmp_path, transport, era)) as client,
    ):
        portal.call(indexed, client)
        yield Asking(folder, client, portal)


def reported(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    capsys.readouterr()
    assert run([*arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_every_tool_is_listed_and_returns_the_json_of_the_command_line(
    asking: Asking,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """What programs get of each is what the command line prints as JSON."""
    found: dict[str, Any] = {}
    calls: dict[str, dict[str, Any]] = {
        "query_documents": {"query": "when does a token expire", "tags": ["security"], "top_n": 2},
        "list_documents": {"query": "token", "tags": ["security"], "changed_since": "2020"},
        "search_with_hypothesis": {"hypothesis": "An access token expires soon."},
        "get_document": {"ref": "guide/auth.md#token-refresh"},
        "outline": {"path": "guide/auth.md"},
        "related_documents": {"path": "guide/auth.md"},
        "index_status": {},
    }

    async def check(client: Client) -> None:
        listed = (await client.list_tools()).tools
        assert names(listed) == TOOLS
        for tool in listed:
            hints = tool.annotations
            assert all([tool.title, tool.description, tool.output_schema])
            assert hints
            assert (hints.read_only_hint, hints.open_world_hint) == (True, False)
        for name, given in calls.items():
            result = await client.call_tool(name, given)
            assert not result.is_error, text_of(result)
            assert text_of(result)
            found[name] = result.structured_content
        assert "query_documents" in (client.instructions or "")
        assert client.server_info
        assert client.server_info.title == "Marklight"

    asking(check)
    monkeypatch.setenv("MARKLIGHT_MODEL_NAME", "fake")
    monkeypatch.chdir(asking.folder)
    tokens = ("--max-tokens", "2000")
    queries = ["when does a token expire", "--tag", "security", "-n", "2", *tokens]
    imagined = ["An access token expires soon.", "--hypothesis", "An access token expires soon."]
    printed = {
        "query_documents": reported(capsys, "search", *queries),
        "list_documents": reported(
            capsys, "list", "token", "--tag", "security", "--after", "2020", "-n", "40"
        ),
        "search_with_hypothesis": reported(capsys, "search", *imagined, *tokens),
        "get_document": reported(capsys, "get", "guide/auth.md#token-refresh"),
        "outline": reported(capsys, "outline", "guide/auth.md"),
        "related_documents": reported(capsys, "related", "guide/auth.md"),
        "index_status": reported(capsys, "status"),
    }
    for name, value in printed.items():
        assert without_passing(found[name]) == without_passing(value), name


def test_documents_are_resources(asking: Asking) -> None:
    async def check(client: Client) -> None:
        listed = await client.list_resources()
        assert names(listed.resources) == sorted(PAGES)
        assert {each.mime_type for each in listed.resources} == {"text/markdown"}
        for each in listed.resources:
            [contents] = (await client.read_resource(each.uri)).contents
            assert contents.text == str(PAGES[each.name]).rstrip("\n")  # type: ignore[union-attr]
        [template] = (await client.list_resource_templates()).resource_templates
        assert template.uri_template == "marklight://docs/{path}"
        by_template = await client.read_resource("marklight://docs/guide%2Fauth.md")
        assert "rotates" in by_template.contents[0].text  # type: ignore[union-attr]

    asking(check)


def test_prompts_are_filled_in_and_completed(asking: Asking) -> None:
    async def check(client: Client) -> None:
        assert names((await client.list_prompts()).prompts) == ["research", "summarize_section"]
        given = {"path": "guide/auth.md", "heading": "Token refresh"}
        [message] = (await client.get_prompt("summarize_section", given)).messages
        assert "lives for thirty days" in message.content.text  # type: ignore[union-attr]
        assert "Boil" not in message.content.text  # type: ignore[union-attr]
        [message] = (
            await client.get_prompt("research", {"question": "Why?", "tag": "security"})
        ).messages
        assert "Why?" in message.content.text  # type: ignore[union-attr]
        assert "'security'" in message.content.text  # type: ignore[union-attr]

    asking(check)


def test_an_unknown_tool_is_an_error_with_a_suggestion(
    asking: Asking,
) -> None:
    async def check(client: Client) -> None:
        with pytest.raises(
            MCPError, match=r"Did you mean 'query_documents'\? Known: query_documents, "
        ):
            await client.call_tool("query_document", {"query": "x"})

    asking(check)
