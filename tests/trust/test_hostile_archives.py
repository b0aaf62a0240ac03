"""Contents of archives from strangers: invalid documents, passages, vectors and manifests are refused, and nothing is written."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import marklight
from marklight.errors import NotFound, StoreError, UsageError
from marklight.model import digest
from marklight.text.markdown import embedding_digest
from tests.making import library
from tests.trust.archives import DOCUMENTS, KEYS, ROWS, Members, forged, refuse


def test_the_forged_archive_is_accepted_if_nothing_is_wrong(
    members: Members, target: marklight.Library, tmp_path: Path
) -> None:
    report = marklight.import_index(forged(tmp_path / "archive", members), target)
    assert report.documents == 3


def changed_document(**values: Any) -> Callable[[dict[str, Any]], None]:
    return lambda document: document.update(values)


def changed_passage(**values: Any) -> Callable[[dict[str, Any]], None]:
    return lambda document: document["passages"][0].update(values)


def link(**values: Any) -> dict[str, Any]:
    valid = {"type": "links_to", "target": "", "fragment": "", "text": "", "line": 1, "keys": []}
    return {**valid, **values}


def section(**values: Any) -> dict[str, Any]:
    valid = {"id": "0" * 16, "headings": [], "anchor": "", "lines": [1, 1], "span": [0, 1]}
    return {**valid, **values}


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (changed_document(path="../../etc/passwd"), "not relative"),
        (changed_document(path="/etc/passwd"), "not relative"),
        (changed_document(path="a/../../b.md"), "not relative"),
        (changed_document(path="a//b.md"), "not relative"),
        (changed_document(path=""), "$.path"),
        (changed_document(path="."), "not relative"),
        (changed_document(path="a\0b"), "not relative"),
        (changed_document(path="a\nb.md"), "control characters"),
        (changed_document(path="a\x1b[2J.md"), "control characters"),
        (changed_document(path="a\x9bb.md"), "control characters"),
        (changed_document(path="a\u202edm.exe"), "control characters"),
        (changed_document(path="\u2066a.md"), "control characters"),
        (changed_document(path="a\u200f.md"), "control characters"),
        (changed_document(path="a\u2028b.md"), "control characters"),
        (changed_document(path="x" * 5000), "$.path"),
        (changed_document(path=["a"]), "$.path"),
        (changed_document(path="a\ud800.md"), "not valid JSON"),
        (changed_document(collection=""), "$.collection"),
        (changed_document(collection="a\x1b[31m"), "printable name"),
        (changed_document(collection="x" * 300), "$.collection"),
        (changed_document(text="\n" * 9), "does not match its digest"),
        (changed_document(digest="0" * 32), "does not match its digest"),
        (changed_document(title=7), "$.title"),
        (changed_document(title="x" * 250_000), "more data than its file"),
        (changed_document(recipe="x" * 256), "$.recipe"),
        (changed_document(title="\udfff"), "not valid JSON"),
        (changed_document(size=-1), "$.size"),
        (changed_document(size=3), "longer than its file"),
        (changed_document(size=True), "$.size"),
        (changed_document(mtime_ns=2**64), "$.mtime_ns"),
        (changed_document(mtime_ns=1.5), "$.mtime_ns"),
        (changed_document(date=20260101), "$.date"),
        (changed_document(metadata=[]), "$.metadata"),
        (changed_document(metadata={"a": nested(40)}), "nested too deeply"),
        (changed_document(metadata={"a": 2**70}), "too large"),
        (changed_document(metadata={"a": float("nan")}), "not valid JSON"),
        (changed_document(tags="abc"), "$.tags"),
        (changed_document(tags=[1]), "$.tags"),
        (changed_document(blocks={"a": "b"}), "$.blocks"),
        (changed_document(outline=[[1, "a", "a", [1, 900]]]), "lines outside"),
        (changed_document(outline=[[1, "a", "a", [0, 1]]]), "lines outside"),
        (changed_document(outline=[[99, "a", "a", [1, 1]]]), "out of range"),
        (changed_document(outline=[[1, "a"]]), "$.outline"),
        (changed_document(links=[link(type="evil")]), "$.links[0].type"),
        (changed_document(links=[link(keys=[{}])]), "$.links[0].keys"),
        (changed_document(links=[link(line=-1)]), "out of range"),
        (changed_document(links=[link(line=2**64)]), "out of range"),
        (changed_document(names=[{"key": "a", "strength": "0-best"}]), "$.names[0].strength"),
        (changed_document(names=[{"key": "a" * 5000, "strength": "1-path"}]), "too long"),
        (changed_document(sections=[section(id="x")]), "not hexadecimal"),
        (changed_document(sections=[section(headings=["x"] * 100)]), "too long"),
        (changed_document(sections=[section(span=[5, 1])]), "outside of its text"),
        (changed_document(sections=[section(span=[0, 9999])]), "outside of its text"),
        (changed_document(passages={}), "$.passages"),
        (changed_document(passages=[7]), "$.passages"),
        (changed_passage(text="poisoned"), "passage that does not match its digest"),
        (changed_passage(digest="f" * 32), "passage that does not match its digest"),
        (changed_passage(id="'; DROP TABLE documents; --"), "not hexadecimal"),
        (changed_passage(kind="evil\n\x1b[2J"), "$.passages[0].kind"),
        (changed_passage(lines=[1, 10**9]), "lines outside"),
        (changed_passage(lines=[1, 2, 3]), "$.passages[0].lines"),
        (changed_passage(headings=["x"] * 100), "$.passages[0].headings"),
        (changed_passage(merged=["x"] * 3000), "$.passages[0].merged"),
        (lambda document: document.pop("recipe"), "missing or invalid fields"),
        (lambda document: document["passages"][0].pop("code"), "missing or invalid fields"),
    ],
)
def test_a_document_with_an_invalid_value_is_refused(
    members: Members,
    target: marklight.Library,
    tmp_path: Path,
    change: Callable[[dict[str, Any]], None],
    reason: str,
) -> None:
    lines = members[DOCUMENTS].split(b"\n")
    document = json.loads(lines[0])
    change(document)
    lines[0] = json.dumps(document).encode()
    path = forged(tmp_path / "archive", {**members, DOCUMENTS: b"\n".join(lines)})
    assert reason in refuse(target, path)


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"null",
        b"[]",
        b"{}",
        b"7",
        b'"text"',
        b"{",
        b"[" * 100_000,
        b"\xff\xfe{}",
        b'{"path": "\xed\xa0\x80"}',
        b"9" * 5000,
        b"NaN",
        b"cos\nsystem\n(S'id'\ntR.",
    ],
)
def test_a_line_that_is_no_document_is_refused(
    members: Members, target: marklight.Library, tmp_path: Path, line: bytes
) -> None:
    data = members[DOCUMENTS] + b"\n" + line
    refuse(target, forged(tmp_path / "archive", {**members, DOCUMENTS: data}))


JUNK: list[Any] = [
    *(None, True, 0, 1, -1, 2**62, 1.5, "", "x", "\0", "\n" * 5, "\u202e", "é" * 300, "0" * 16),
    *("code", "table", "1-path", "2026-01-01", "9999-99-99", [], {}, [[]], ["a"], [1, 1], [2, 5]),
    *([0, 0], ["a"] * 50, {"a": 1}, {"": {}}, {"a": {"b": [1, {"c": None}]}}),
]


def places(value: Any, above: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the keys that lead to every value inside a JSON value."""
    keys = (
        value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    )
    for key in keys:
        yield (*above, key)
        yield from places(value[key], (*above, key))


def test_a_document_with_random_values_is_refused_or_usable(
    members: Members, tmp_path: Path
) -> None:
    chance, accepted = random.Random(20261117), 0
    for number in range(40):
        lines = [json.loads(line) for line in members[DOCUMENTS].split(b"\n")]
        document = chance.choice(lines)
        *above, last = chance.choice(list(places(document)))
        owner = reduce(lambda value, key: value[key], above, document)
        similar = [each for each in JUNK if type(each) is type(owner[last])]
        owner[last] = chance.choice(similar if similar and chance.random() < 0.9 else JUNK)
        with suppress(Exception):  # right digests, as an attacker would write them
            document["digest"] = digest(document["text"])
            for each in document["passages"]:
                headings = tuple(each["headings"])
                each["digest"] = embedding_digest(each["title"], headings, each["text"])
        data = b"\n".join(json.dumps(line).encode() for line in lines)
        kept = {
            name: members[name] for name in members if not name.startswith(("vectors", "terms"))
        }
        path = forged(tmp_path / "archive", {**kept, DOCUMENTS: data})
        folder = tmp_path / str(number)
        folder.mkdir()
        with library(folder) as lib:
            try:
                marklight.import_index(path, lib)
            except StoreError:
                continue
            accepted += 1
            assert lib.engine.check() == []
            lib.search("about one", refresh=False, min_confidence=0.0, parents=True, context=1)
            lib.links()
            with suppress(NotFound, UsageError):
                lib.get(document["path"])
                lib.page(document["path"])
    assert accepted


def test_documents_and_passages_are_not_repeated(
    members: Members, target: marklight.Library, tmp_path: Path
) -> None:
    first, *rest = members[DOCUMENTS].split(b"\n")
    for lines in ([first, first, *rest], [*rest, first]):
        path = forged(tmp_path / "archive", {**members, DOCUMENTS: b"\n".join(lines)})
        assert "repeated or out of order" in refuse(target, path)
    one, two = json.loads(first), json.loads(rest[0])
    two["passages"][0]["id"] = one["passages"][0]["id"]
    lines = [first, json.dumps(two).encode(), *rest[1:]]
    path = forged(tmp_path / "archive", {**members, DOCUMENTS: b"\n".join(lines)})
    assert "two passages have the same id" in refuse(target, path)


def test_invalid_vectors_are_refused(
    members: Members, target: marklight.Library, tmp_path: Path
) -> None:
    keys, rows = json.loads(members[KEYS]), np.frombuffer(members[ROWS], "<f4")
    cases: list[tuple[Members, str]] = []
    for bad in (np.nan, np.inf, -np.inf):
        changed = rows.copy()
        changed[5] = bad
        cases.append(({ROWS: changed.tobytes()}, "not finite"))
    cases += [
        ({ROWS: members[ROWS][:-1]}, "64 numbers each"),
        ({ROWS: members[ROWS] + bytes(4)}, "64 numbers each"),
        ({KEYS: json.dumps([*keys[:-1], keys[0]]).encode()}, "repeated or out of order"),
        ({KEYS: json.dumps([*keys[:-1], "f" * 16]).encode()}, "belongs to no passage"),
        ({KEYS: json.dumps([*keys[:-1], "z"]).encode()}, "invalid key"),
        ({KEYS: json.dumps([*keys[:-1], None]).encode()}, "has missing or invalid fields"),
        ({KEYS: b"[]"}, "64 numbers each"),
        ({KEYS: b'{"a": 1}'}, "has missing or invalid fields"),
        ({KEYS: b"["}, "not valid JSON"),
    ]
    for change, reason in cases:
        assert reason in refuse(target, forged(tmp_path / "archive", {**members, **change}))


@pytest.mark.parametrize(
    "manifest",
    [
        {"format": "other"},
        {"version": 0},
        {"version": "1"},
        {"version": None},
        {"documents": 4},
        {"documents": -1},
        {"documents": 10**18},
        {"passages": "3"},
        {"models": []},
        {"models": {}},
        {"models": None},
        {"models": [["fake-64", 0]]},
        {"models": [["fake-64", 10**9]]},
        {"models": [["fake-64", 65]]},
        {"models": [["fake-64", 64], ["fake-64", 64]]},
        {"models": [["", 64]]},
        {"models": [["\x1b[2J", 64]]},
        {"models": [["x" * 300, 64]]},
        {"models": [[[], 64]]},
        {"models": 7},
        {"manifest": {"model fake-64": "openai:evil"}},
        {"manifest": {"copy": "", "failures_recipe": "x"}},
        {"manifest": {"words fake-64": "other"}},
        {"manifest": []},
        {"members": []},
        {"members": None},
        {"members": {}},
    ],
)
def test_an_invalid_manifest_is_refused(
    members: Members, target: marklight.Library, tmp_path: Path, manifest: dict[str, Any]
) -> None:
    assert "invalid" in refuse(target, forged(tmp_path / "archive", members, **manifest))


def test_a_newer_format_names_the_remedy(
    members: Members, target: marklight.Library, tmp_path: Path
) -> None:
    message = refuse(target, forged(tmp_path / "archive", members, version=2))
    assert "newer version of Marklight (format 2; this version supports 1)" in message
    assert "pip install --upgrade" in message
