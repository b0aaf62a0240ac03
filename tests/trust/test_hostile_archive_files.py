"""Files of archives from strangers: other members, bombs and damaged bytes are refused, and memory is bounded."""

from __future__ import annotations

import json
import os
import random
import struct
import subprocess
import sys
import zipfile
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

import marklight
from marklight.errors import StoreError
from marklight.library.transfer import archive as archives
from tests.trust.archives import DOCUMENTS, NOISE, Members, forged, refuse


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


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc")
def test_memory_is_bounded_by_one_member_however_many_documents_there_are(
    members: Members, tmp_path: Path
) -> None:
    (tmp_path / "target").mkdir()
    record = json.loads(members[DOCUMENTS].split(b"\n")[0])
    record |= {"passages": [], "sections": [], "outline": [], "links": [], "names": []}
    noise = random.Random(1).randbytes(90_000).hex()  # enough for the archive to be unpacked at all

    def document(number: int) -> bytes:
        values = {"path": f"{number:06}.md", "collection": f"{number:0250}", "description": noise}
        return json.dumps({**record, **values}).encode()

    content = {f"documents/{number:06}.jsonl": document(number) for number in range(450)}
    content["manifest.json"] = members["manifest.json"]
    manifest = {"documents": 450, "passages": 0, "models": [], "manifest": {}}
    path = forged(tmp_path / "archive", content, **manifest)
    script = (
        "import re, sys, marklight\n"
        "from pathlib import Path\n"
        "def peak(): return int(re.search(r'VmHWM:\\s+(\\d+)', Path('/proc/self/status').read_text())[1])\n"
        "with marklight.open(sys.argv[2]) as library:\n"
        "    before = library.engine and peak()\n"
        "    report = marklight.import_index(sys.argv[1], library)\n"
        "    print(report.documents, peak() - before)"
    )
    run = subprocess.run(
        [sys.executable, "-c", script, path, tmp_path / "target"],
        capture_output=True,
        text=True,
        env={"OPENBLAS_NUM_THREADS": "1", "MARKLIGHT_DATA_DIR": str(tmp_path / "data")},
    )
    documents_read, kilobytes = map(int, run.stdout.split())
    assert documents_read == 450
    assert kilobytes < 140_000  # 200,000 if all documents were in memory at once


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
    with archives.Archive(path) as archive:
        archive.verify()
        return [archive._data(name) for name in archive.members if name != "manifest.json"]


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
    assert "cannot be read" in refuse(target, tmp_path)
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
    real = archives.Archive.verify

    def verify(self: archives.Archive, *args: Any) -> None:
        real(self, *args)
        path.write_bytes(other[:5000] + bytes(100) + other[5100:])

    monkeypatch.setattr(archives.Archive, "verify", verify)
    with pytest.raises(StoreError, match=r"changed while it was read|decompressed|incomplete"):
        marklight.import_index(path, target)
    assert target.status()["incomplete_copy"]
