"""Whatever a JSON file holds and however it is written: one entry comes and goes, the rest stays."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from marklight.surfaces.setup import within_json

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
FILES = st.dictionaries(st.sampled_from(["servers", "a", "b c", "é", '"}']), VALUES, max_size=4)
INDENTS = st.sampled_from([None, 0, 1, 2, 4, "\t"])
PATHS = st.sampled_from([("servers", "marklight"), ("a",), ("x", "y", "z")])


@given(FILES, INDENTS, st.booleans(), PATHS, VALUES)
def test_an_entry_is_put_in_and_nothing_else_changes(
    holds: dict[str, Any], indent: Any, escaped: bool, keys: tuple[str, ...], value: Any
) -> None:
    outer = holds.get(keys[0])
    if len(keys) > 1 and not isinstance(outer, dict):
        holds.pop(keys[0], None)
    text = json.dumps(holds, indent=indent, ensure_ascii=escaped)
    after = within_json.put(text, keys, value)
    wanted = json.loads(text)
    inner = wanted
    for key in keys[:-1]:
        inner = inner.setdefault(key, {})
    inner[keys[-1]] = value
    assert within_json.same(within_json.parse(after), wanted)
    without = within_json.take(after, keys)
    del inner[keys[-1]]
    assert within_json.same(within_json.parse(without), wanted)


@given(FILES, INDENTS)
def test_what_is_put_in_beside_others_and_taken_out_leaves_the_very_letters(
    holds: dict[str, Any], indent: Any
) -> None:
    text = json.dumps({**holds, "servers": {"other": {"command": "x"}}}, indent=indent)
    keys = ("servers", "marklight")
    assert within_json.take(within_json.put(text, keys, {"command": "y"}), keys) == text
