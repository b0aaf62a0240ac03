"""What assistants read about us is true: the skill, the list of our pages, and the page on setting them up."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from marklight.surfaces.cli import app
from marklight.surfaces.host import result_schema
from marklight.surfaces.mcp.tool_definitions import tools_for
from marklight.surfaces.setup import CLIENTS, Client
from marklight.surfaces.setup.config_file import SKILL as PACKAGED_SKILL

from .assisting import ASSISTANTS, assistants
from .examples import ROOT, SKILL, clone
from .llms import BESIDE, DOCS, LLMS, llms

RENEW = "run `python -m tests.docs.reference`"


def test_the_skill_in_the_repository_is_the_one_in_the_package() -> None:
    assert PACKAGED_SKILL.read_bytes() == SKILL.read_bytes(), RENEW


def test_the_skill_is_short_and_says_when_to_use_it() -> None:
    lines = SKILL.read_text().splitlines()
    assert len(lines) < 120
    assert lines[0] == lines[3] == "---"
    name, description = (line.partition(": ") for line in lines[1:3])
    # The form's own limits: agentskills.io/specification.
    assert name[::2] == ("name", SKILL.parent.name)
    assert description[0] == "description"
    assert 0 < len(description[2]) <= 1024
    assert ": " not in description[2], "YAML would take it for a mapping"


def test_every_page_is_in_the_list_for_assistants_and_every_link_there_exists() -> None:
    text = LLMS.read_text()
    assert text == llms(), RENEW
    links = re.findall(r"^- \[[^\]]+\]\(([^)]+)\)(?:: \S.+)?$", text, re.MULTILINE)
    assert len(links) == len(set(links)) == text.count("\n- ")
    assert all((ROOT / link).is_file() for link in links)
    pages = {page.relative_to(ROOT).as_posix() for page in DOCS.rglob("*.md")}
    assert set(links) == pages - {"docs/README.md"} | set(BESIDE)


def test_the_list_for_assistants_has_the_form_of_llmstxt_org() -> None:
    first, second, *rest = LLMS.read_text().split("\n\n")
    assert first.startswith("# ")
    assert second.startswith("> ")
    assert rest[::2] == ["## Docs", "## Optional"]
    assert all(line.startswith("- [") for part in rest[1::2] for line in part.strip().split("\n"))


def test_every_tool_parameter_and_flag_that_the_skill_names_exists() -> None:
    text = re.sub(r"^```.*?^```$", "", SKILL.read_text(), flags=re.MULTILINE | re.DOTALL)
    codes = re.findall(r"`([^`]+)`", text)
    tools = tools_for(False)
    parameters = {each.name for tool in tools.values() for each in tool.parameters}
    assert set(tools) <= set(codes), "every tool has its place in the skill"
    names = {code for code in codes if re.fullmatch(r"[a-z_]+", code)}
    names |= {name for code in codes for name in re.findall(r"^(\w+): ", code)}
    assert names <= {*tools, *parameters, *result_schema("search")["properties"], "chunk_id"} - {
        ""
    } | {"true"}
    table = re.findall(r"^\| (`[^|]+) \|", text, re.MULTILINE)
    query = {each.name for each in tools["query_documents"].parameters}
    assert {name.strip("` ") for row in table for name in row.split(",")} <= query | {"parameter"}
    flags = {option for one in app.commands["search"].params for option in one.opts}
    assert {code for code in codes if code.startswith("--")} <= flags


def test_the_page_on_assistants_names_the_tools_and_answers_there_are() -> None:
    text = ASSISTANTS.read_text()
    assert text.count("<!-- end -->") == 4
    with clone():
        assert text == assistants(text), RENEW


@pytest.mark.parametrize("client", CLIENTS.values(), ids=CLIENTS.keys())
def test_the_page_names_the_files_of_a_client(client: Client) -> None:
    text = ASSISTANTS.read_text()
    assert f"\n| {client.title} | " in text.partition("## Does it work?")[2]
    row = next(line for line in text.splitlines() if f"| `{client.name}` |" in line)
    assert Path(client.file).name in row
    assert row.endswith(f"| `{client.project_file}` |" if client.project_file else "| |")
    assert not client.skills or f"`~/{client.skills}`" in text
