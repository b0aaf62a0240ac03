"""Frontmatter is parsed, or indexed as text with a remark."""

from __future__ import annotations

import json
import time

import pytest

from marklight.ingest.frontmatter import split
from tests.ingest.reading import chunks, document


def test_every_known_field_is_read_and_every_other_is_kept() -> None:
    page = document(
        "---\ntitle: A title\nsummary: In short\nkeywords: [one, two]\ntags: '#a, b/c'\n"
        "aliases:\n- Other\nauthor: [Ann, Bob]\ntype: guide\ndate: 2026-01-02\nstatus: draft\n"
        "version: 1.10\nrelated: ['[[Page Two]]', other.md]\n---\n# Heading\n"
    )
    assert page.title == "A title"
    assert page.description == "In short"
    assert page.keywords == ("one", "two")
    assert page.tags == ("a", "b/c")
    assert page.aliases == ("Other",)
    assert page.author == "Ann, Bob"
    assert page.category == "guide"
    assert page.date == "2026-01-02"
    assert page.metadata["status"] == "draft"
    assert page.metadata["version"] == "1.10"
    assert [(link.type, link.target) for link in page.links] == [
        ("related", "Page Two"),
        ("related", "other.md"),
    ]
    assert page.remarks == ()


def test_keys_count_in_any_case() -> None:
    page = document(
        "---\nTitle: A title\nTags: [One, two]\nALIASES: Other\nAuthors: [Ada, Bob]\nDate: 2026-01-02\n---\n"
    )
    assert (page.title, page.tags, page.aliases) == ("A title", ("One", "two"), ("Other",))
    assert (page.author, page.date) == ("Ada, Bob", "2026-01-02")
    assert page.metadata["Authors"] == ["Ada", "Bob"]
    assert document("---\nTitle: Upper\ntitle: lower\n---\n").title == "lower"
    assert document("---\ntitle: lower\nTitle: Upper\n---\n").title == "lower"


@pytest.mark.parametrize(
    "values, date",
    [
        ("published: 2025-03-04", "2025-03-04"),
        ("date: March 4, 2025", "2025-03-04"),
        ("date: 2025/03/04", "2025-03-04"),
        ("date: 20250304", "2025-03-04"),
        ("date: 2025-03", "2025-03"),
        ("date: 2025", "2025"),
        ("date: '[[2025-03-04]]'", "2025-03-04"),
        ("date: [[2025-03-04]]", "2025-03-04"),
        ("date: 2025-03-04 (draft)", "2025-03-04"),
        ("last_modified: 2025-03-04\ndate: 2020-01-01", "2025-03-04"),
        ("due: 2025-03-04\ncreated: 2020-01-01", "2020-01-01"),
        ("year: 2025", None),
        ("id: 20250304", None),
        ("published: true", None),
        ("date:", None),
    ],
)
def test_dates_are_read_in_common_notations_of_any_key(values: str, date: str | None) -> None:
    page = document(f"---\n{values}\n---\n")
    assert (page.date, page.remarks) == (date, ())


@pytest.mark.parametrize(
    "value", ["someday", "03/04/2025", "2025-13-45", "'2025-02-30'", "x" * 1000]
)
def test_an_unreadable_date_is_a_remark(value: str) -> None:
    page = document(f"---\nDate: {value}\n---\n")
    assert page.date is None
    (remark,) = page.remarks
    assert "is not a date that can be read; write it as 2026-01-31" in remark
    assert len(remark) < 200


def test_a_day_in_the_path_or_the_title_dates_a_document_without_another_date() -> None:
    assert document("# Standup", "daily/2024-03-12.md").date == "2024-03-12"
    assert document("# Meeting of 12 March 2024", "a.md").date == "2024-03-12"
    assert document("---\nupdated: 2025-01-01\n---\n# X", "2024-03-12.md").date == "2025-01-01"
    assert document("# Plans for March 2024", "2024/03/a.md").date is None


def test_toml_frontmatter_is_parsed() -> None:
    page = document('+++\ntitle = "A"\ndate = 2026-01-02T03:04:05Z\n[extra]\nn = 1\n+++\ntext')
    assert (page.title, page.date) == ("A", "2026-01-02T03:04:05+00:00")
    assert page.metadata["extra"] == {"n": 1}


def test_the_title_falls_back_to_the_first_heading_then_to_the_file() -> None:
    assert document("## Two\n\n# One\n\n# Three").title == "One"
    assert document("## Two", "a/some-file.name.md").title == "some-file.name"
    assert document("", "a/LICENSE").title == "LICENSE"


def test_the_modification_date_precedes_the_creation_date() -> None:
    assert document("---\ndate: 2020-01-01\nmodified: 2026-05-05\n---").date == "2026-05-05"
    assert document("---\ndate: 2020-13-45\ncreated: 2019-01-01\n---").date == "2019-01-01"
    assert document("---\ndate: soon\n---").date is None


@pytest.mark.parametrize(
    "text, values",
    [
        ("---\n---\ntext", {}),
        ("---\n\n...\ntext", {}),
        ("---\na: 1\n...\ntext", {"a": 1}),
        ("--- \na: 1\n---  \ntext", {"a": 1}),
        ("---\na: 1\na: 2\n---\n", {"a": 2}),
        ("---\na: 12:30\nb: 007\nc: 1_000\nd: 3\ne: 1.5\nf: 1e400\n---\n",
         {"a": "12:30", "b": "007", "c": "1_000", "d": 3, "e": 1.5, "f": "1e400"}),
        ("---\na: .inf\nb: .nan\nc: ~\nd: yes\ne: !custom x\n---\n",
         {"a": ".inf", "b": ".nan", "c": None, "d": True, "e": "x"}),
        ("---\n1: a\n2024-01-01: b\n---\n", {"1": "a", "2024-01-01": "b"}),
        ("---\na: &x [1]\nb: *x\n---\n", {"a": [1], "b": [1]}),
        ("---\nkey:\tvalue\n---\n", {"key": "value"}),
        ("---\na: \"\\x01\\ud800\"\n---\n", None),
    ],
)  # fmt: skip
def test_unusual_values_become_json_values(text: str, values: dict[str, object] | None) -> None:
    found = split(text)
    if values is not None:
        assert (found.values, found.remark) == (values, "")
    json.dumps(found.values, allow_nan=False).encode()


@pytest.mark.parametrize(
    "text",
    [
        "---\ntitle: A: b: c\n---\nbody words",
        "---\n- a\n- b\n---\nbody words",
        "---\ntitle: [unclosed\n---\nbody words",
        "---\n\ttab: x\n  y: 'z\n---\nbody words",
        "---\na: !!python/object:os.system ls\n---\nbody words",
        "---\n? [a, b]\n: 1\n---\nbody words",
        "---\ntitle: not closed\n\nbody words",
        "+++\ntitle = \n+++\nbody words",
        "---\na: " + "[" * 50_000 + "\n---\nbody words",
        "---\n" + "".join(" " * depth + "a:\n" for depth in range(300)) + "---\nbody words",
        "+++\na = " + "[" * 50_000 + "\n+++\nbody words",
        "---\n" + "key: value\n" * 20_000 + "---\nbody words",
        "---\na: &a [*a]\n---\nbody words",
    ],
)
def test_invalid_frontmatter_is_indexed_as_text_with_a_remark(text: str) -> None:
    page = document(text)
    assert page.metadata == {}
    assert "frontmatter" in page.remarks[0]
    shown = " ".join(chunk.text for chunk in chunks(text))
    assert "body words" in shown
    assert text[4:20].split()[0] in shown


def test_yaml_aliases_that_expand_exponentially_are_rejected_quickly() -> None:
    lists = ["a: &a [x, x, x, x, x, x, x, x, x]"]
    merges = ["a: &a {k: 1, l: 2}"]
    for name, before in zip("bcdefghijk", "abcdefghij", strict=True):
        lists.append(f"{name}: &{name} [{', '.join([f'*{before}'] * 9)}]")
        merges.append(f"{name}: &{name} {{<<: [{', '.join([f'*{before}'] * 9)}]}}")
    for lines in (lists, merges):
        began = time.process_time()
        found = split("---\n" + "\n".join(lines) + "\n---\n")
        assert "too many values" in found.remark
        # Expanding nine to the tenth values would take hours; the limit leaves time for a busy machine.
        assert time.process_time() - began < 30


def test_a_horizontal_rule_at_the_top_is_not_frontmatter() -> None:
    page = document("---\n\nFirst words.\n\nSecond words.\n")
    assert page.remarks == ()
    assert document("----\na: 1\n----\n").metadata == {}
    assert document("text\n---\na: 1\n---\n").metadata == {}


def test_a_remark_contains_the_line_number_in_the_file() -> None:
    assert split("---\ntitle: x\nbad: [1, 2\n---\n").remark == (
        "frontmatter could not be parsed: line 4: did not find expected ',' or ']'"
    )
