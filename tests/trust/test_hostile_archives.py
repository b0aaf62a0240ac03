"""Archives from strangers: whatever they contain, nothing is imported, nothing is written elsewhere, and memory is bounded."""

from __future__ import annotations

import json
import os
import random
import struct
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import reduce
from hashlib import sha256
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import marklight
from marklight.errors import MarklightError, NotFound, StoreError, UsageError
from marklight.library.transfer import archive_reader
from marklight.text import digest
from marklight.text.markdown import embedding_text
from tests.making import library, write

Members = dict[str, bytes]
FILES = {
    f"{name}.md": f"# {name}\n\nAbout {name}, see [[one]].\n" for name in ("one", "two", "six")
}
NOISE = random.Random(7).randbytes(20_000).hex()
DOCUMENTS, KEYS, ROWS = "documents/000000.jsonl", "vectors/0/000000.json", "vectors/0/000000.f32"


@pytest.fixture(scope="module")
def members(tmp_path_factory: pytest.TempPathFactory) -> Members:
    """The members of a valid archive, without the manifest's list of them."""
    folder = tmp_path_factory.mktemp("source")
    with library(write(folder / "docs", FILES)) as lib:
        lib.index()
        marklight.export_index(lib, folder / "archive")
    with zipfile.ZipFile(folder / "archive") as archive:
        return {name: archive.read(name) for name in archive.namelist()}


@pytest.fixture
def target(tmp_path: Path) -> Iterator[marklight.Library]:
    (tmp_path / "target").mkdir()
    with library(tmp_path / "target") as lib:
        yield lib


def forged(path: Path, members: Members, /, **manifest: Any) -> Path:
    """Write an archive whose digests are right, whatever its content is."""
    values = {**json.loads(members["manifest.json"]), **manifest}
    content = {name: data for name, data in members.items() if name != "manifest.json"}
    if "members" not in manifest:
        values["members"] = [
            (name, len(data), sha256(data).hexdigest()) for name, data in content.items()
        ]
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in {**content, "manifest.json": json.dumps(values).encode()}.items():
            archive.writestr(name, data)
    return path


def refuse(target: marklight.Library, path: Path) -> str:
    """Import an archive that must be refused before anything is written; return the reason."""
    with pytest.raises(MarklightError) as raised:
        marklight.import_index(path, target)
    assert isinstance(raised.value, StoreError | UsageError)
    assert not (target.place.folder / ".marklight").exists()
    message = str(raised.value)
    assert "\n" not in message
    assert len(message) < 1000
    return message


def test_the_forged_archive_is_accepted_if_nothing_is_wrong(
    members: Members, target: marklight.Library, tmp_path: Path
) -> None:
    report = marklight.import_index(forged(tmp_path / "archive", members), target)
    assert report.documents == 3


def changed_document(**values: Any) -> Callable[[dict[str, Any]], None]:
    return lambda document: document.update(values)


def changed_passage(**values: Any) -> Callable[[dict[str, Any]], None]:
    return lambda document: document["passages"][0].update(values)


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
        (changed_document(path=""), "not relative"),
        (changed_document(path="."), "not relative"),
        (changed_document(path="a\0b"), "not relative"),
        (changed_document(path="x" * 5000), "too long"),
        (changed_document(path=["a"]), "missing or too long"),
        (changed_document(path="a\ud800.md"), "not valid JSON"),
        (changed_document(collection=""), "printable name"),
        (changed_document(collection="a\x1b[31m"), "printable name"),
        (changed_document(collection="x" * 300), "too long"),
        (changed_document(text="\n" * 9), "does not match its digest"),
        (changed_document(digest="0" * 32), "does not match its digest"),
        (changed_document(title=7), "missing or too long"),
        (changed_document(title="\udfff"), "not valid JSON"),
        (changed_document(size=-1), "out of range"),
        (changed_document(size=3), "longer than its file"),
        (changed_document(size=True), "out of range"),
        (changed_document(mtime_ns=2**64), "out of range"),
        (changed_document(mtime_ns=1.5), "out of range"),
        (changed_document(date=20260101), "missing or too long"),
        (changed_document(metadata=[]), "missing or invalid fields"),
        (changed_document(metadata={"a": nested(40)}), "nested too deeply"),
        (changed_document(metadata={"a": 2**70}), "too large"),
        (changed_document(metadata={"a": float("nan")}), "not valid JSON"),
        (changed_document(tags="abc"), "missing or invalid fields"),
        (changed_document(tags=[1]), "missing or too long"),
        (changed_document(blocks={"a": "b"}), "out of range"),
        (changed_document(outline=[[1, "a", "a", [1, 900]]]), "lines outside"),
        (changed_document(outline=[[1, "a", "a", [0, 1]]]), "lines outside"),
        (changed_document(outline=[[99, "a", "a", [1, 1]]]), "out of range"),
        (changed_document(outline=[[1, "a"]]), "missing or invalid fields"),
        (changed_document(links=[["evil", "", "", "", 1, []]]), "missing or invalid fields"),
        (changed_document(links=[["links_to", "", "", "", 1, [{}]]]), "missing or too long"),
        (changed_document(names=[["a", "0-best"]]), "missing or invalid fields"),
        (changed_document(names=[["a" * 5000, "1-path"]]), "too long"),
        (changed_document(sections=[["x", [], "", [1, 1], [0, 1]]]), "not hexadecimal"),
        (changed_document(sections=[["0" * 16, [], "", [1, 1], [5, 1]]]), "outside of its text"),
        (changed_document(sections=[["0" * 16, [], "", [1, 1], [0, 9999]]]), "outside of its text"),
        (changed_document(passages={}), "missing or invalid fields"),
        (changed_document(passages=[7]), "missing or invalid fields"),
        (changed_passage(text="poisoned"), "passage that does not match its digest"),
        (changed_passage(digest="f" * 32), "passage that does not match its digest"),
        (changed_passage(id="'; DROP TABLE documents; --"), "not hexadecimal"),
        (changed_passage(kind="evil"), "missing or invalid fields"),
        (changed_passage(lines=[1, 10**9]), "lines outside"),
        (changed_passage(lines=[1, 2, 3]), "missing or invalid fields"),
        (changed_passage(headings=["x"] * 100), "too long"),
        (changed_passage(merged=["x"] * 3000), "too long"),
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
                text = embedding_text(each["title"], tuple(each["headings"]), each["text"])
                each["digest"] = digest(text)
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
        ({KEYS: json.dumps([*keys[:-1], "f" * 32]).encode()}, "belongs to no passage"),
        ({KEYS: json.dumps([*keys[:-1], "z"]).encode()}, "invalid key"),
        ({KEYS: json.dumps([*keys[:-1], None]).encode()}, "not a list of strings"),
        ({KEYS: b"[]"}, "not a list of strings"),
        ({KEYS: b'{"a": 1}'}, "not a list of strings"),
        ({KEYS: b"["}, "not valid JSON"),
        ({"communities/000000.jsonl": b'["default", "one.md", "x"]'}, "community has invalid"),
        ({"communities/000000.jsonl": b"[1]"}, "community cannot be parsed"),
        ({"communities/000000.jsonl": b'["default", "one.md", -1]'}, "community has invalid"),
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
        {"current_communities": "yes"},
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


@pytest.mark.parametrize(
    "name",
    [
        "../evil.md",
        "/etc/cron.d/evil",
        "documents/../../evil.jsonl",
        "documents/000005.jsonl",
        "vectors/7/000000.json",
        "vectors/0/000009.f32",
        "code.py",
        "documents/000001.jsonl\0",
        "documents/00000١.jsonl",
    ],
)
def test_other_members_are_refused_and_never_written(
    members: Members, target: marklight.Library, tmp_path: Path, name: str
) -> None:
    before = set(tmp_path.rglob("*"))
    refuse(target, forged(tmp_path / "archive", {**members, name: b'["x"]'}))
    assert set(tmp_path.rglob("*")) - before == {tmp_path / "archive"}


def test_repeated_members_are_refused(
    members: Members, target: marklight.Library, tmp_path: Path
) -> None:
    path = tmp_path / "archive"
    forged(path, members)
    with pytest.warns(UserWarning, match="Duplicate"), zipfile.ZipFile(path, "a") as archive:
        archive.writestr(DOCUMENTS, b"{}")
    assert "after its manifest" in refuse(target, path)


def test_a_bomb_is_refused_before_it_is_unpacked(
    members: Members, target: marklight.Library, tmp_path: Path
) -> None:
    path = tmp_path / "archive"
    bomb = {f"documents/{at:06}.jsonl": b"a" * 60_000_000 for at in range(3)}
    forged(path, {**bomb, "manifest.json": members["manifest.json"]})
    assert path.stat().st_size < 1_000_000
    assert "too much data for the size of the file" in refuse(target, path)
    # A header that promises more than any member has.
    data = bytearray(forged(path, members).read_bytes())
    data[22:26] = struct.pack("<L", 2**32 - 1)
    path.write_bytes(data)
    assert "too large" in refuse(target, path)


def test_a_member_with_another_size_than_its_header_is_refused(
    members: Members, target: marklight.Library, tmp_path: Path
) -> None:
    path = forged(tmp_path / "archive", members)
    data = path.read_bytes()
    size = len(members[DOCUMENTS])
    for wrong in (size - 1, size + 1, 0):
        path.write_bytes(data[:22] + struct.pack("<L", wrong) + data[26:])
        refuse(target, path)


def test_memory_stays_bounded_whatever_a_line_contains(members: Members, tmp_path: Path) -> None:
    (tmp_path / "target").mkdir()
    line = b'{"path":"a","collection":"a","tags":[' + b"[]," * 15_000_000 + b"[]]}"
    many = {f"documents/{at:06}.jsonl": b"\n" * 20_000_000 for at in range(2)}
    noise = random.Random(1).randbytes(1_000_000).hex()
    for number, hostile in enumerate(({DOCUMENTS: line}, many)):
        path = tmp_path / f"archive{number}"
        # Noise, so that the archive is large enough to be unpacked at all.
        padding = {"terms/0/000000.json": json.dumps([noise]).encode()}
        forged(path, {**hostile, **padding, "manifest.json": members["manifest.json"]})
        script = (
            "import resource, sys, marklight\n"
            "resource.setrlimit(resource.RLIMIT_AS, (1_500_000_000, -1))\n"
            "try: marklight.import_index(sys.argv[1], sys.argv[2])\n"
            "except marklight.StoreError as error: print(error)"
        )
        run = subprocess.run(
            [sys.executable, "-c", script, path, tmp_path / "target"],
            capture_output=True,
            text=True,
            env={"OPENBLAS_NUM_THREADS": "1", "MARKLIGHT_DATA_DIR": str(tmp_path / "data")},
        )
        assert "The archive is invalid" in run.stdout, run.stderr


def test_flipped_and_cut_bytes_are_noticed(members: Members, tmp_path: Path) -> None:
    intact = forged(tmp_path / "archive", members)
    data, content = intact.read_bytes(), _read(intact)
    end = data.index(b"PK\1\2")
    chance, accepted = random.Random(20261117), 0
    for at in (chance.randrange(end) for _ in range(1000)):
        flipped = bytes([data[at] ^ (1 << chance.randrange(8))])
        intact.write_bytes(data[:at] + (flipped + data[at + 1 :] if at % 5 else b""))
        try:
            # Only what means nothing may differ, such as dates and versions of the ZIP format.
            assert _read(intact) == content
            accepted += 1
        except StoreError:
            continue
    assert accepted < 100


def _read(path: Path) -> list[bytes]:
    with archive_reader.Archive(path) as archive:
        archive.verify()
        return [archive._data(name) for name in archive.names if name != "manifest.json"]


def test_a_file_that_is_no_archive_is_refused(target: marklight.Library, tmp_path: Path) -> None:
    for name, data in {
        "empty": b"",
        "text": b"# A note\n",
        "pickle": b"cos\nsystem\n(S'id'\ntR.",
        "cut": b"PK\3\4",
        "nothing": b"PK\5\6" + bytes(18),
    }.items():
        (tmp_path / name).write_bytes(data)
        assert "not an archive of Marklight" in refuse(target, tmp_path / name)
    plain = BytesIO()
    with zipfile.ZipFile(plain, "w") as archive:
        archive.writestr("readme.txt", "hello")
    (tmp_path / "zip").write_bytes(plain.getvalue())
    assert "not an archive of Marklight" in refuse(target, tmp_path / "zip")
    os.mkfifo(tmp_path / "fifo")
    assert "not a regular file" in refuse(target, tmp_path / "fifo")
    assert "not a regular file" in refuse(target, tmp_path)
    assert "not a regular file" in refuse(target, Path("/dev/zero"))
    assert "cannot be read" in refuse(target, tmp_path / "missing")


def test_an_archive_that_changes_while_it_is_imported_is_refused(
    members: Members, target: marklight.Library, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Longer than what the reader has buffered.
    first = json.loads(members[DOCUMENTS].split(b"\n")[0])
    first["description"] = NOISE
    lines = [json.dumps(first).encode(), *members[DOCUMENTS].split(b"\n")[1:]]
    path = forged(tmp_path / "archive", {**members, DOCUMENTS: b"\n".join(lines)})
    other = path.read_bytes()
    real = archive_reader.Archive.verify

    def verify(self: archive_reader.Archive, *args: Any) -> None:
        real(self, *args)
        path.write_bytes(other[:5000] + bytes(100) + other[5100:])

    monkeypatch.setattr(archive_reader.Archive, "verify", verify)
    with pytest.raises(StoreError, match=r"changed while it was read|decompressed|incomplete"):
        marklight.import_index(path, target)
    assert target.status()["incomplete_copy"]
