"""What the page on assistants has from the program itself: tools, prompts, and answers as a model reads them."""

from __future__ import annotations

import json
import re

import marklight
from marklight.operations import OPERATIONS
from marklight.parameters import Parameter
from marklight.surfaces.cli import app
from marklight.surfaces.mcp import rendering
from marklight.surfaces.mcp.resources import PROMPTS
from marklight.surfaces.mcp.tool_definitions import Tool, tools_for
from marklight.surfaces.mcp.tools import execute

from .examples import NOTES, ROOT, alike

ASSISTANTS = ROOT / "docs" / "assistants.md"
_MARKED = re.compile(
    r"<!-- (tools|prompts|output of (\w+) (\{[^\n]*\})) -->\n(.*?)<!-- end -->", re.DOTALL
)


def assistants(text: str) -> str:
    """The page with what stands between its marks made anew; inside a clone, for the answers."""
    return _MARKED.sub(_filled, text)


def tool_output(name: str, given: str) -> str:
    """Return the text output of a tool on the example notes."""
    tool = tools_for(False)[name]
    values = tool.parse(json.loads(given))
    with marklight.open(NOTES) as library:
        found = execute(library, tool.operation, tool.operation_arguments(values))
    if tool.operation == "search":
        most = values.get("max_tokens", rendering.DEFAULT_TOKENS)
        return rendering.search_text(found, tokens=most).strip()
    if tool.operation == "outline":
        return rendering.outline_text(found)
    assert tool.operation == "get", name
    return rendering.extract_text(rendering.limit_extract(found, values["max_tokens"]))


def _filled(mark: re.Match[str]) -> str:
    what, name, given, before = mark.groups()
    if what == "tools":
        inside = _tools()
    elif what == "prompts":
        inside = _prompts()
    else:
        inside = f"```text\n{tool_output(name, given)}\n```\n"
        inside = before if alike(before, inside) else inside
    return f"<!-- {what} -->\n{inside}<!-- end -->"


def _tools() -> str:
    rows = ["| tool | parameters |", "|---|---|"]
    rows += [
        f"| `{name}` | {', '.join(map(_parameter, tool.parameters)) or 'none'} |"
        for name, tool in tools_for(True).items()
    ]
    descriptions: dict[str, dict[str, list[str]]] = {}
    for name, tool in tools_for(True).items():
        for each in tool.parameters:
            of_name = descriptions.setdefault(each.name, {})
            if described := _description(tool, each):
                of_name.setdefault(described, []).append(f"`{name}`")
    options = {param.name for command in app.commands.values() for param in command.params}
    rows += ["", "| parameter that no command has | description |", "|---|---|"]
    rows += [
        f"| `{name}` | {_described(described)} |"
        for name, described in descriptions.items()
        if name not in options
    ]
    return "\n".join(rows) + "\n"


def _description(tool: Tool, parameter: Parameter) -> str:
    """The description of the operation's parameter, else the shorter one in tools/list."""
    declared = {each.name: each.description for each in OPERATIONS[tool.operation].parameters}
    return declared.get(parameter.name) or parameter.description


def _described(tools_of: dict[str, list[str]]) -> str:
    """The description of a parameter, then those that some tools have instead."""
    first, *others = tools_of
    parts = [
        f"In {' and '.join(tools_of[other])}: {other[0].lower()}{other[1:]}" for other in others
    ]
    return " ".join([first, *parts])


def _prompts() -> str:
    rows = ["| prompt | description | arguments |", "|---|---|---|"]
    rows += [
        f"| `{name}` | {description} | {', '.join(map(_parameter, arguments))} |"
        for name, (_, description, arguments) in PROMPTS.items()
    ]
    return "\n".join(rows) + "\n"


def _parameter(parameter: Parameter) -> str:
    default = parameter.schema.get("default")
    if parameter.required:
        return f"**`{parameter.name}`**"
    return f"`{parameter.name}`" + (f" = {json.dumps(default)}" if default is not None else "")
