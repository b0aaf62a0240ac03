"""Archives: the same index in another folder, with nothing read or embedded again; equal bytes, written whole."""

from __future__ import annotations

import os
import shutil
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

import marklight
from marklight.errors import NotFound, StoreError, UsageError
from marklight.library.transfer import archive as archives
from marklight.library.transfer.archive_records import decode_entry, encode_entry
from marklight.library.transfer.copying import Summary, snapshot_source, summarize
from marklight.models import fake
from tests import making
from tests.making import write

FILES = {
    "guide/anchor.md": "---\ntags: [sea, boats/sail]\nauthor: Ada\ndate: 2026-01-31\nn: 7\n---\n\n# Anchor\n\n"
    "Drop the *anchor* in [the harbour](../harbour.md).\n\n## Rope\n\nThree lengths of rope.\n\n```python\nx = 1\n```\n",
    "harbour.md": "# Harbour\n\nShips rest here. See [[anchor]].\n\n| a | b |\n|---|---|\n| 1 | 2 |\n",
    "größe/日本.md": "# 日本\n\n港に船がある。 NUL and emoji: \U0001f6a2\n\n[[harbour#Harbour|link]] ^block1\n",
    "plain.md": "Only text, without a heading.\n",
    "empty.md": "",
}


def library(folder: Path, **settings: object) -> marklight.Library:
    """A library in which the times of files do not change scores."""
    return making.library(folder, search={"recency": {"strength": 0.0}}, **settings)


@pytest.fixture
def source(tmp_path: Path) -> Iterator[marklight.Library]:
    with library(write(tmp_path / "source", FILES)) as lib:
        lib.index()
        yield lib


def empty(folder: Path) -> Path:
    folder.mkdir()
    return folder


def summary_of(lib: marklight.Library) -> Summary:
    with lib.engine.snapshot() as snapshot:
        return summarize(snapshot_source(snapshot), files=False)


def test_an_import_elsewhere_reads_and_embeds_nothing_again(
    source: marklight.Library, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, other = tmp_path / "docs.marklight", tmp_path / "other"
    shutil.copytree(tmp_path / "source", other, ignore=shutil.ignore_patterns(".marklight"))
    for path in other.rglob("*"):
        os.utime(path, (1_600_000_000, 1_600_000_000))
    marklight.export_index(source, file)
    with library(other) as lib:
        report = marklight.import_index(file, lib)
        assert (report.documents, report.written, report.notices) == (5, 5, ())
        assert not summary_of(source).differences(summary_of(lib))

        def fail(*_: object) -> None:
            pytest.fail("a document was parsed or a passage was embedded")

        monkeypatch.setattr("marklight.ingest.file_batch.parse_document", fail)
        monkeypatch.setattr(fake.FakeEmbedder, "embed_passages", fail)
        index = lib.index()
        assert (*index.added, *index.changed, *index.moved, *index.removed) == ()
        assert index.newly_embedded == 0
        assert index.index.pending == 0
        with lib.engine.snapshot() as snapshot:
            generation = snapshot.generation
            times = {each.file.mtime_ns for each in snapshot.documents.files().values()}
        assert times == {1_600_000_000 * 10**9}
        assert not lib.index().changed
        with lib.engine.snapshot() as snapshot:
            assert snapshot.generation == generation
        monkeypatch.undo()
        for query in ("anchor rope", "ships rest", "日本", "x = 1"):
            ours, theirs = (each.search(query, min_confidence=0.0) for each in (source, lib))
            assert [hit.chunk for hit in ours.hits] == [hit.chunk for hit in theirs.hits]
            assert [hit.score for hit in ours.hits] == pytest.approx(
                [hit.score for hit in theirs.hits]
            )


def test_files_that_differ_are_indexed_again_after_an_import(
    source: marklight.Library, tmp_path: Path
) -> None:
    marklight.export_index(source, tmp_path / "docs.marklight")
    changed = {**FILES, "harbour.md": "# Harbour\n\nEmpty now.\n", "new.md": "# New\n\nA quay.\n"}
    del changed["plain.md"]
    with library(write(tmp_path / "other", changed)) as lib:
        marklight.import_index(tmp_path / "docs.marklight", lib)
        report = lib.index()
        assert [id.path for id in report.added] == ["new.md"]
        assert [id.path for id in report.changed] == ["harbour.md"]
        assert [id.path for id in report.removed] == ["plain.md"]
        assert lib.search("quay", mode="keyword").hits[0].chunk.path == "new.md"


def test_a_search_after_an_import_shows_no_text_that_the_file_does_not_have(
    source: marklight.Library, tmp_path: Path
) -> None:
    marklight.export_index(source, tmp_path / "docs.marklight")
    # Of the same size and time as the file in the archive.
    place = write(tmp_path / "other", FILES)
    text = FILES["harbour.md"].replace("Ships", "Boats")
    (place / "harbour.md").write_text(text)
    os.utime(place / "harbour.md", ns=(0, (tmp_path / "source/harbour.md").stat().st_mtime_ns))
    with library(place) as lib:
        marklight.import_index(tmp_path / "docs.marklight", lib)
        answer = lib.search("rest here", mode="keyword", min_confidence=0.0)
        assert "Boats rest here" in answer.hits[0].chunk.text


def test_equal_indexes_give_equal_archives(source: marklight.Library, tmp_path: Path) -> None:
    one = marklight.export_index(source, tmp_path / "one")
    with library(empty(tmp_path / "other")) as lib:
        marklight.import_index(tmp_path / "one", lib)
        two = marklight.export_index(lib, tmp_path / "two")
    assert one.digest == two.digest
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()


def test_an_archive_names_no_place_on_this_machine(
    source: marklight.Library, tmp_path: Path
) -> None:
    (tmp_path / "source/locked.md").mkdir()
    (tmp_path / "source/binary.md").write_bytes(b"\0\1\2" * 100)
    source.index()
    marklight.export_index(source, tmp_path / "docs.marklight")
    with zipfile.ZipFile(tmp_path / "docs.marklight") as archive:
        assert archive.testzip() is None
        content = b"".join(map(archive.read, archive.namelist()))
    for secret in (str(tmp_path), os.environ["HOME"], "binary.md", source.engine.describe()):
        assert secret.encode() not in content
    assert (tmp_path / "docs.marklight").stat().st_mode & 0o777 == 0o600


def test_an_archive_can_be_read_without_marklight(
    source: marklight.Library, tmp_path: Path
) -> None:
    import json

    import numpy as np

    marklight.export_index(source, tmp_path / "docs.marklight")
    with zipfile.ZipFile(tmp_path / "docs.marklight") as archive:
        manifest = json.loads(archive.read("manifest.json"))
        lines = archive.read("documents/000000.jsonl").splitlines()
        keys = json.loads(archive.read("vectors/0/000000.json"))
        rows = np.frombuffer(archive.read("vectors/0/000000.f32"), "<f4")
    assert manifest["format"] == "marklight index"
    assert sorted(json.loads(line)["path"] for line in lines) == sorted(FILES)
    assert rows.size == len(keys) * dict(manifest["models"])["fake-64"]


def test_many_pages_are_written_and_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archives, "PAGE_BYTES", 2000)
    files = {f"{at}.md": f"# Note {at}\n\nAbout {at}, see [[{at + 1}]].\n" for at in range(60)}
    with library(write(tmp_path / "source", files)) as lib:
        lib.index()
        marklight.export_index(lib, tmp_path / "docs.marklight")
        with zipfile.ZipFile(tmp_path / "docs.marklight") as archive:
            assert "documents/000012.jsonl" in archive.namelist()
        with library(empty(tmp_path / "other")) as other:
            marklight.import_index(tmp_path / "docs.marklight", other)
            assert not summary_of(lib).differences(summary_of(other))


def test_an_export_that_fails_leaves_the_old_archive_and_no_other_file(
    source: marklight.Library, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "out"
    folder.mkdir()
    marklight.export_index(source, folder / "docs.marklight")
    before = (folder / "docs.marklight").read_bytes()
    monkeypatch.setattr(archives, "MAX_LINE", 500)
    with pytest.raises(StoreError, match=r"empty\.md is too large for an archive"):
        marklight.export_index(source, folder / "docs.marklight")
    monkeypatch.undo()

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("marklight.library.transfer.archive.os.fsync", full)
    with pytest.raises(StoreError, match="No space left on device"):
        marklight.export_index(source, folder / "docs.marklight")
    assert [path.name for path in folder.iterdir()] == ["docs.marklight"]
    assert (folder / "docs.marklight").read_bytes() == before


def test_a_document_that_no_import_would_accept_is_named_by_the_export(
    source: marklight.Library, tmp_path: Path
) -> None:
    write(tmp_path / "source", {"a\u202eb.md": "# A\n"})
    source.index()
    with pytest.raises(StoreError, match=r"cannot contain a\\u202eb\.md: .* control characters"):
        marklight.export_index(source, tmp_path / "docs.marklight")


def test_communities_of_an_archive_with_many_links_are_left_to_the_next_run(
    source: marklight.Library, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def communities(lib: marklight.Library) -> dict[str, int]:
        with lib.engine.snapshot() as snapshot:
            found = snapshot.links.communities(snapshot.documents.files())
        return {id.path: community for id, community in found.items()}

    file, other = tmp_path / "docs.marklight", tmp_path / "other"
    marklight.export_index(source, file)
    monkeypatch.setattr("marklight.library.transfer.copying.MAX_ARCHIVE_PAIRS", 1)
    with library(write(other, FILES)) as lib:
        marklight.import_index(file, lib)
        assert communities(lib) == {}
        lib.index()
        assert communities(lib) == communities(source) != {}


def test_a_file_that_is_no_archive_is_not_overwritten(
    source: marklight.Library, tmp_path: Path
) -> None:
    for name, data in (
        ("note.md", b"# My note"),
        ("empty", b""),
        ("other.zip", b"PK\3\4" + b"x" * 99),
    ):
        (tmp_path / name).write_bytes(data)
        with pytest.raises(UsageError, match="is not an archive of Marklight"):
            marklight.export_index(source, tmp_path / name)
        assert (tmp_path / name).read_bytes() == data
    with pytest.raises(UsageError, match="is not an archive"):
        marklight.export_index(source, tmp_path)


def test_a_library_without_an_index_cannot_be_exported(tmp_path: Path) -> None:
    with library(empty(tmp_path / "empty")) as lib, pytest.raises(NotFound):
        marklight.export_index(lib, tmp_path / "docs.marklight")
    assert not (tmp_path / "docs.marklight").exists()


def test_an_archive_with_another_digest_is_refused(
    source: marklight.Library, tmp_path: Path
) -> None:
    report = marklight.export_index(source, tmp_path / "docs.marklight")
    with library(empty(tmp_path / "other")) as lib:
        with pytest.raises(UsageError, match=report.digest):
            marklight.import_index(tmp_path / "docs.marklight", lib, digest="0" * 64)
        assert lib.status()["generation"] == 0
        marklight.import_index(tmp_path / "docs.marklight", lib, digest=report.digest.upper())


def test_an_import_replaces_only_what_differs(source: marklight.Library, tmp_path: Path) -> None:
    marklight.export_index(source, tmp_path / "docs.marklight")
    with library(write(tmp_path / "other", FILES)) as lib:
        lib.index()
        with pytest.raises(UsageError, match="already contains an index with 5 documents"):
            marklight.import_index(tmp_path / "docs.marklight", lib)
        report = marklight.import_index(tmp_path / "docs.marklight", lib, replace=True)
        assert (report.documents, report.written, report.removed) == (5, 0, 0)


@pytest.mark.parametrize(
    ("settings", "notice"),
    [
        ({"collections": {"notes": "."}}, "collections that this library does not have: default"),
        ({"chunk": {"max_chars": 700}}, "the next run reads all documents again"),
    ],
)
def test_an_import_says_what_does_not_fit_the_library(
    source: marklight.Library, tmp_path: Path, settings: dict[str, object], notice: str
) -> None:
    marklight.export_index(source, tmp_path / "docs.marklight")
    with library(write(tmp_path / "other", FILES), **settings) as lib:
        report = marklight.import_index(tmp_path / "docs.marklight", lib)
        assert [notice in each for each in report.notices] == [True]


def test_a_record_is_decoded_as_it_was_encoded(source: marklight.Library) -> None:
    with source.engine.snapshot() as snapshot:
        entries = list(snapshot.contents.entries())
    for entry in entries:
        line = encode_entry(entry)
        again = decode_entry(line)
        assert encode_entry(again) == line
        assert again.chunks == entry.chunks
        assert again.sections == entry.sections


def test_progress_names_the_phases(source: marklight.Library, tmp_path: Path) -> None:
    phases: list[str] = []

    def progress(phase: str, done: int, total: int) -> None:
        assert 0 <= done <= total
        phases.append(phase)

    marklight.export_index(source, tmp_path / "docs.marklight", progress=progress)
    with library(empty(tmp_path / "other")) as lib:
        marklight.import_index(tmp_path / "docs.marklight", lib, progress=progress)
    assert _distinct(phases) == [
        "Exporting documents",
        "Exporting vectors",
        "Verifying archive",
        "Verifying documents",
        "Verifying archive",
        "Verifying documents",
        "Copying documents",
        "Copying vectors",
        "Verifying documents",
        "Verifying vectors",
    ]


def _distinct(phases: Sequence[str]) -> list[str]:
    return [phase for at, phase in enumerate(phases) if at == 0 or phases[at - 1] != phase]
