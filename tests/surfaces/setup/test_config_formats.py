"""Adding and removing an entry in JSON and TOML keeps all other text."""

from __future__ import annotations

import json
import re
import tomllib
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from marklight.surfaces.setup.config_file import JSON, TOML

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
JSON_FILES = st.dictionaries(
    st.sampled_from(["servers", "a", "b c", "é", '"}']), VALUES, max_size=4
)
INDENTS = st.sampled_from([None, 0, 1, 2, 4, "\t"])
PATHS = st.sampled_from([("servers", "marklight"), ("a",), ("x", "y", "z")])

TABLE = ("mcp_servers", "marklight")
ENTRY = {"command": "/usr/bin/marklight", "args": ["mcp", "/notes"]}
TOML_PIECES = (
    "# a comment\n",
    "\n",
    "[a]\nx = 1  # one\n",
    '[b."c d"]\ny = [\n  1,\n\n  2, # [mcp_servers.marklight]\n]\n',
    '[e]\nz = """\n[mcp_servers.marklight]\ncommand = "no"\n"""\n',
    "[[f]]\n[[f]]\ng = 'h'\n",
    '[mcp_servers.other]\ncommand = "x"\n[mcp_servers.other.env]\nA = "1"\n',
    "[mcp_servers.marklights]\nurl = 'u'\n",
)
TOML_FILES = st.permutations(TOML_PIECES).flatmap(
    lambda order: st.integers(0, len(order)).map(lambda many: "".join(order[:many]))
)


@given(JSON_FILES, INDENTS, st.booleans(), PATHS, VALUES)
def test_adding_a_json_entry_changes_nothing_else(
    content: dict[str, Any], indent: Any, escaped: bool, keys: tuple[str, ...], value: Any
) -> None:
    outer = content.get(keys[0])
    if len(keys) > 1 and not isinstance(outer, dict):
        content.pop(keys[0], None)
    text = json.dumps(content, indent=indent, ensure_ascii=escaped)
    after = JSON.put(text, keys, value)
    wanted = json.loads(text)
    inner = wanted
    for key in keys[:-1]:
        inner = inner.setdefault(key, {})
    inner[keys[-1]] = value
    assert JSON.same(JSON.parse(after), wanted)
    without = JSON.take(after, keys)
    del inner[keys[-1]]
    assert JSON.same(JSON.parse(without), wanted)


@given(JSON_FILES, INDENTS)
def test_adding_and_removing_a_json_entry_restores_the_text(
    content: dict[str, Any], indent: Any
) -> None:
    text = json.dumps({**content, "servers": {"other": {"command": "x"}}}, indent=indent)
    keys = ("servers", "marklight")
    assert JSON.take(JSON.put(text, keys, {"command": "y"}), keys) == text


BLANKS = st.lists(
    st.sampled_from([" ", "\n", "\t", "// , } a comment\n", '/* { " */', "/**/"]), max_size=3
).map("".join)


@st.composite
def jsonc_files(draw: st.DrawFn, depth: int = 0) -> str:
    """Draw an object with comments and trailing commas wherever JSONC allows them."""
    members = []
    keys: list[str] = draw(
        st.lists(st.sampled_from(["servers", "other", "a//b", ","]), unique=True)
    )
    for key in keys:
        inner = key == "servers" or (depth < 2 and bool(draw(st.sampled_from([0, 1]))))
        value = draw(jsonc_files(depth + 1)) if inner else json.dumps(draw(VALUES))
        members.append(draw(BLANKS) + json.dumps(key) + draw(BLANKS) + ":" + draw(BLANKS) + value)
        members[-1] += draw(BLANKS)
    comma = "," + draw(BLANKS) if members and draw(st.sampled_from([0, 1])) else ""
    text = "{" + (",".join(members) + comma if members else draw(BLANKS)) + "}"
    return draw(BLANKS) + text + draw(BLANKS) if depth == 0 else text


@given(jsonc_files())
def test_adding_and_removing_an_entry_keeps_all_comments(text: str) -> None:
    keys = ("servers", "marklight")
    after = JSON.put(text, keys, {"command": "x"})
    wanted = JSON.parse(text)
    wanted.setdefault("servers", {})["marklight"] = {"command": "x"}
    assert JSON.same(JSON.parse(after), wanted)
    assert comments(after) == comments(text)
    without = JSON.take(after, keys)
    del wanted["servers"]["marklight"]
    assert JSON.same(JSON.parse(without), wanted)
    assert comments(without) == comments(text)
    for key in JSON.parse(text):
        left = JSON.take(text, (key,))
        assert JSON.same(
            JSON.parse(left),
            {name: each for name, each in JSON.parse(text).items() if name != key},
        )


def comments(text: str) -> list[str]:
    found = re.findall(r'"(?:[^"\\]|\\.)*"|(//[^\n]*|/\*.*?\*/)', text)
    return [each for each in found if each]


@given(TOML_FILES)
def test_adding_and_removing_a_toml_table_restores_the_text(text: str) -> None:
    after = TOML.put(text, TABLE, ENTRY)
    assert after.startswith(text)
    found = tomllib.loads(after)
    assert found["mcp_servers"].pop("marklight") == ENTRY
    assert TOML.same(found, tomllib.loads(text))
    assert TOML.take(after, TABLE) == text


@given(TOML_FILES, TOML_FILES)
def test_an_existing_toml_table_is_changed_in_place(before: str, after: str) -> None:
    after = "".join(piece for piece in TOML_PIECES if piece in after and piece not in before)
    own = "startup_timeout_sec = 9\n"
    text = f'{before}[mcp_servers.marklight]\nargs = [\n"a",\n]\n{own}command = "b"\n{after}'
    changed = TOML.put(text, TABLE, ENTRY)
    assert changed.startswith(f"{before}[mcp_servers.marklight]\n")
    assert changed.endswith(own + after)
    assert tomllib.loads(changed)["mcp_servers"]["marklight"] == {
        **ENTRY,
        "startup_timeout_sec": 9,
    }


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_any_string_can_be_written_as_toml(text: str) -> None:
    after = TOML.put("", TABLE, {"command": text, "args": [text]})
    assert tomllib.loads(after)["mcp_servers"]["marklight"] == {"command": text, "args": [text]}
