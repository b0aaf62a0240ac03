"""A scan returns the documents of a library; every exclusion has a reason."""

from __future__ import annotations

import os
import shutil
import time
import tracemalloc
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest

from marklight.errors import UsageError
from marklight.ingest import discover as discovering
from marklight.ingest.discover import Discover, ScannedFile, ScannedFiles, visible_files
from marklight.ingest.scan_record import ScanRecord
from marklight.model import DocumentId, FileState
from tests.making import write


def found(root: Path, **options: object) -> list[str]:
    scan = Discover(**options)({"docs": root})  # type: ignore[arg-type]
    return [id.path for id in scan.files]


def test_a_pattern_with_too_many_wildcards_matches_nothing(tmp_path: Path) -> None:
    (tmp_path / ".gitignore").write_text("*a" * 25 + "z.md\nb.md\n*.tmp.*.md\n")
    for name in ("a" * 60 + ".md", "b.md", "x.tmp.1.md"):
        (tmp_path / name).write_text("text")
    found = Discover()({"docs": tmp_path}).files
    assert [id.path for id in found] == ["a" * 60 + ".md"]


def test_a_scan_returns_documents_with_the_state_of_their_file(tmp_path: Path) -> None:
    write(
        tmp_path,
        {"a.md": "abc", "b/c.markdown": "", "d.MDX": "", "e.txt": "", "f.py": "", "md": ""},
    )
    scan = Discover()({"docs": tmp_path})
    assert [id.path for id in scan.files] == ["a.md", "b/c.markdown", "d.MDX", "e.txt"]
    status = (tmp_path / "a.md").stat()
    file = scan.files[DocumentId("docs", "a.md")]
    assert file.file == FileState.from_stat(status)
    assert Path(file.path) == (tmp_path / "a.md").resolve()


def test_a_scan_keeps_few_bytes_for_each_file(tmp_path: Path) -> None:
    for number in range(2_000):
        (tmp_path / f"{number}.md").touch()
    Discover()({"docs": tmp_path})
    tracemalloc.start()
    try:
        scan = Discover()({"docs": tmp_path})
        assert tracemalloc.get_traced_memory()[0] < 500 * len(scan.files)
    finally:
        tracemalloc.stop()


def test_files_of_a_scan_are_found_by_document() -> None:
    files = ScannedFiles({"docs": "/root", "top": "/"})
    first, second = DocumentId("docs", "a/b.md"), DocumentId("top", "c.md")
    files.add(second, FileState(1, 2, 3), (7, 2**64 + 1))
    files.add(first, FileState(4, 5, 6))
    files.add(second, FileState(8, 9, 10), (7, 2**64 + 1))
    files.sort()
    assert dict(files) == {
        first: ScannedFile(first, FileState(4, 5, 6), os.path.join("/root", "a/b.md"), None),
        second: ScannedFile(second, FileState(8, 9, 10), "/c.md", (7, 2**64 + 1)),
    }
    assert list(files) == [first, second]
    assert DocumentId("docs", "c.md") not in files


def test_the_count_of_checked_files_has_no_ignore_files(tmp_path: Path) -> None:
    root = write(tmp_path, {"a/.gitignore": "x", "a/a.md": "", "b/.gitignore": "x", "b/b.md": ""})
    scan = Discover()({"docs": root})
    while scan.checked is None:  # full as long as the ignore files are racily clean
        scan = Discover()({"docs": root}, scan.record, until=time.monotonic() - 1)
    assert scan.checked == 1


def test_a_scan_with_a_time_limit_begins_with_the_folders_that_changed_last(tmp_path: Path) -> None:
    root = write(tmp_path, dict.fromkeys(("a/a.md", "b/b.md", "c/c.md"), ""))
    record = Discover()({"docs": root}).record
    while any(folder.stamps[0] < 0 for folder in record.folders.values()):  # racily clean
        record = Discover()({"docs": root}, record).record
    write(root, {"a/a.md": "new"})
    record = Discover()({"docs": root}, record).record
    write(root, dict.fromkeys(("a/a.md", "b/b.md", "c/c.md"), "newer"))
    scan = Discover()({"docs": root}, record, until=time.monotonic() - 1)
    assert {id.path for id in scan.files} == {"a/a.md"}


def test_parsers_decide_which_files_are_documents(tmp_path: Path) -> None:
    write(tmp_path, {"a.md": "", "b.rst": "", "notes/c": "", "d/c": ""})
    more = {"*.rst": "plain", "notes/*": "plain"}
    assert found(tmp_path, parsers=more) == ["a.md", "b.rst", "notes/c"]


def test_a_pattern_can_exclude_files_from_parsing(tmp_path: Path) -> None:
    write(tmp_path, {"a.md": "", "b.mdx": "", "c.txt": "", "CHANGES.md": "", "d/LICENSE.txt": ""})
    assert found(tmp_path, parsers={"*.TXT": "none", "*.mdx": ""}) == ["CHANGES.md", "a.md"]
    some = {"changes.md": "none", "d/*": "none", "*.mdx": "none"}
    assert found(tmp_path, parsers=some) == ["a.md", "c.txt"]
    first = {"*.md": "markdown", "*": "none"}
    assert found(tmp_path, parsers=first) == ["CHANGES.md", "a.md"]
    why = Discover(parsers=some).reason_ignored(tmp_path / "CHANGES.md", {"docs": tmp_path})
    assert why == "the setting files.parsers excludes 'changes.md'"


def test_hidden_names_and_the_index_folder_are_not_indexed(tmp_path: Path) -> None:
    write(
        tmp_path, {".a.md": "", ".b/c.md": "", ".marklight/d.md": "", ".git/e.md": "", "f.md": ""}
    )
    assert found(tmp_path) == ["f.md"]
    assert found(tmp_path, hidden=True) == [".a.md", ".b/c.md", "f.md"]


def test_ignore_files_nest_and_negate_as_in_git(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            ".gitignore": "*.txt\n/build/\ndrafts/*\n!drafts/keep.md\n# comment\n\ntrailing\\ \n",
            "a.txt": "", "build/a.md": "", "sub/build/b.md": "", "drafts/x.md": "",
            "drafts/keep.md": "", "sub/.gitignore": "!b.txt\n/c.md\n", "sub/b.txt": "",
            "sub/c.md": "", "sub/deep/c.md": "", "d.md": "",
        },
    )  # fmt: skip
    assert found(tmp_path) == [
        "d.md", "drafts/keep.md", "sub/b.txt", "sub/build/b.md", "sub/deep/c.md",
    ]  # fmt: skip


def test_marklightignore_overrides_the_other_ignore_files(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            ".gitignore": "a.md\nb.md\n", ".ignore": "!a.md\nc.md\n", ".marklightignore": "!b.md\nd.md\n",
            "a.md": "", "b.md": "", "c.md": "", "d.md": "",
        },
    )  # fmt: skip
    assert found(tmp_path) == ["a.md", "b.md"]


def test_ignore_files_above_the_collection_apply_up_to_the_repository(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            ".gitignore": "outside.md\n", "repo/.git/HEAD": "", "repo/.gitignore": "docs/a.md\n*.tmp.md\n",
            "repo/.git/info/exclude": "b.md\n",
            "repo/docs/a.md": "", "repo/docs/b.md": "", "repo/docs/outside.md": "", "repo/docs/x/c.tmp.md": "",
        },
    )  # fmt: skip
    assert found(tmp_path / "repo/docs") == ["outside.md"]


def test_a_collection_that_git_ignores_is_indexed(tmp_path: Path) -> None:
    write(tmp_path, {".git/HEAD": "", ".gitignore": "/vendor/\n", "vendor/docs/a.md": ""})
    assert found(tmp_path) == []
    assert found(tmp_path / "vendor/docs") == ["a.md"]


def test_exclude_wins_over_include(tmp_path: Path) -> None:
    write(tmp_path, {"a/x.md": "", "a/y.md": "", "b/x.md": "", "b/c/x.md": ""})
    assert found(tmp_path, include=("a/**", "b/c/")) == ["a/x.md", "a/y.md", "b/c/x.md"]
    assert found(tmp_path, include=("a/**",), exclude=("y.md",)) == ["a/x.md"]
    assert found(tmp_path, exclude=("/b/",)) == ["a/x.md", "a/y.md"]


def test_the_innermost_collection_owns_a_file(tmp_path: Path) -> None:
    write(tmp_path, {"a.md": "", "sub/b.md": "", "sub/deep/c.md": ""})
    scan = Discover()({"all": tmp_path, "sub": tmp_path / "sub", "deep": tmp_path / "sub/deep"})
    assert list(scan.files) == [("all", "a.md"), ("deep", "c.md"), ("sub", "b.md")]


def test_symbolic_links_are_followed_once_and_never_out_of_the_collection(tmp_path: Path) -> None:
    inside, outside = tmp_path / "in", tmp_path / "out"
    write(inside, {"a/x.md": "", "b.md": ""})
    write(outside, {"secret.md": "", "folder/s.md": ""})
    (inside / "a/loop").symlink_to(inside)
    (inside / "a/again").symlink_to(inside / "a")
    (inside / "copy.md").symlink_to("b.md")
    (inside / "out").symlink_to(outside / "folder")
    (inside / "out.md").symlink_to(outside / "secret.md")
    (inside / "self.md").symlink_to("self.md")
    (inside / "dead.md").symlink_to("nothing.md")
    scan = Discover()({"docs": inside})
    assert [id.path for id in scan.files] == ["a/x.md", "b.md"]
    assert {(f.document.path, f.reason) for f in scan.unreadable} == {
        ("self.md", "is a broken symbolic link"),
        ("dead.md", "is a broken symbolic link"),
    }
    followed = Discover(follow_outside=True)({"docs": inside})
    assert [id.path for id in followed.files] == ["a/x.md", "b.md", "out.md", "out/s.md"]


def test_a_symbolic_link_to_an_ignored_folder_is_followed(tmp_path: Path) -> None:
    write(tmp_path, {".store/notes/a.md": "", ".store/b.data": "text"})
    (tmp_path / "notes").symlink_to(".store/notes")
    (tmp_path / "b.md").symlink_to(".store/b.data")
    assert found(tmp_path) == ["b.md", "notes/a.md"]


def test_unusual_file_names_are_indexed_or_reported(tmp_path: Path) -> None:
    write(tmp_path, {"new\nline.md": "", "emoji 😀/né.md": "", " .md": "", "a\\b.md": ""})
    with open(os.fsencode(tmp_path) + b"/\xff.md", "w"):
        pass
    scan = Discover()({"docs": tmp_path})
    assert {id.path for id in scan.files} == {
        "new\nline.md",
        "emoji 😀/né.md",
        " .md",
        "a\\b.md",
    }
    assert [(f.document.path, f.reason) for f in scan.unreadable] == [
        ("\ufffd.md", "its name is not valid Unicode")
    ]


def test_pipes_are_reported_and_folders_may_have_any_name(tmp_path: Path) -> None:
    write(tmp_path, {"folder.md/a.md": ""})
    os.mkfifo(tmp_path / "pipe.md")
    scan = Discover()({"docs": tmp_path})
    assert [id.path for id in scan.files] == ["folder.md/a.md"]
    assert scan.unreadable[0].reason == "is not a regular file"


def test_a_pipe_in_place_of_an_ignore_file_does_not_block(tmp_path: Path) -> None:
    write(tmp_path, {"a.md": ""})
    os.mkfifo(tmp_path / ".gitignore")
    assert found(tmp_path) == ["a.md"]


def test_a_folder_that_cannot_be_listed_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, {"a.md": "", "closed/b.md": ""})
    listing = os.scandir

    def closed(path: str) -> object:
        if path.endswith("closed"):
            raise PermissionError(13, "Permission denied")
        return listing(path)

    monkeypatch.setattr(os, "scandir", closed)
    scan = Discover()({"docs": tmp_path})
    assert [id.path for id in scan.files] == ["a.md"]
    failure = scan.unreadable[0]
    assert (failure.document.path, failure.reason) == (
        "closed/",
        "cannot be listed: permission denied",
    )


def test_very_deep_folders_are_walked(tmp_path: Path) -> None:
    deep = tmp_path
    for _ in range(300):
        deep = deep / "d"
    deep.mkdir(parents=True)
    (deep / "a.md").touch()
    assert found(tmp_path) == ["d/" * 300 + "a.md"]


def test_a_missing_folder_or_a_folder_of_two_collections_is_an_error(tmp_path: Path) -> None:
    write(tmp_path, {"a.md": ""})
    with pytest.raises(UsageError, match="does not exist"):
        Discover()({"docs": tmp_path / "no"})
    with pytest.raises(UsageError, match="is not a folder"):
        Discover()({"docs": tmp_path / "a.md"})
    with pytest.raises(UsageError, match="the same folder"):
        Discover()({"one": tmp_path, "two": tmp_path / "."})


def test_the_reason_why_a_path_is_ignored_is_returned(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "a.md": "", ".gitignore": "x\n*.log.md\n", "b/.ignore": "\ndraft*\n", "b/draft1.md": "",
            "c.log.md": "", ".hidden/d.md": "", "e.py": "", "x/deep/f.md": "", "out/g.md": "",
        },
    )  # fmt: skip
    (tmp_path / "dead.md").symlink_to("nothing")
    discover = Discover(exclude=("out/",))

    def why(name: str) -> str | None:
        return discover.reason_ignored(tmp_path / name, {"docs": tmp_path})

    assert why("a.md") is None
    assert why("c.log.md") == "ignored by .gitignore:2: *.log.md"
    assert why("b/draft1.md") == "ignored by b/.ignore:2: draft*"
    assert why("x/deep/f.md") == "ignored by .gitignore:1: x"
    assert why(".hidden/d.md") == ".hidden/ is hidden, and the setting files.hidden is off"
    assert why("e.py") == "no pattern in the setting files.parsers matches its name"
    assert why("out/g.md") == "the setting files.exclude contains 'out/'"
    assert why("dead.md") == "dead.md is a broken symbolic link"
    assert why("no.md") == "no such file"
    assert (
        discover.reason_ignored(Path("/elsewhere.md"), {"docs": tmp_path})
        == "it is in no collection"
    )


TREE = ("a.md", "a/b.md", "a/c/d.md", "a/e.md", "a-b.md", "b/c.md", "é/x.md", "z.md")
FOLDERS = ("", "a", "a/c", "b", "é", "n/m")


def change(root: Path, random: Random, *, links: bool = False) -> None:
    """Make a random change, as editors, file managers and git do."""
    file, other = root / random.choice(TREE), root / random.choice(TREE)
    folder, away = root / random.choice(FOLDERS[1:]), root / random.choice(FOLDERS[1:])
    edits: list[Callable[[], object]] = [
        lambda: write(root, {str(file.relative_to(root)): random.choice("xyz") * 3}),
        lambda: write(root, {f"{folder.relative_to(root)}/{random.choice('pq')}.md": "new"}),
        lambda: file.unlink(),
        lambda: file.rename(other),
        lambda: shutil.rmtree(folder),
        lambda: folder.rename(away),
        lambda: (root / random.choice(FOLDERS) / ".ignore").write_text(random.choice(TREE)),
        lambda: (root / random.choice(FOLDERS) / ".ignore").unlink(),
        lambda: os.mkfifo(folder / "pipe.md"),
        lambda: (folder / "pipe.md").unlink(),
    ]
    if links:
        edits += [
            lambda: (folder / "link.md").symlink_to(root / ".store" / random.choice("st")),
            lambda: (root / "linked").symlink_to(random.choice((".store", "a", "nothing"))),
            lambda: (root / "linked").unlink(),
            lambda: write(root, {".store/s": random.choice("xyz") * 3}),
        ]
    with suppress(OSError):
        random.choice(edits)()


@pytest.mark.parametrize(("is_local", "links"), [(True, False), (True, True), (False, False)])
def test_a_scan_by_a_record_returns_exactly_what_changed(
    tmp_path: Path, is_local: bool, links: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not is_local:
        monkeypatch.setattr(discovering, "LOCAL", frozenset())
        monkeypatch.setattr(discovering, "_local_devices", {})
    random, collections = Random(26), {"docs": tmp_path / "docs"}
    root = write(tmp_path / "docs", dict.fromkeys((*TREE, ".store/s", ".store/t.md"), "x"))
    scan = Discover()(collections)
    files = {id: scanned.file for id, scanned in scan.files.items()}
    partial = 0
    for _ in range(150):
        for _ in range(random.randint(0, 2)):
            change(root, random, links=links)
        record = ScanRecord.from_bytes(scan.record.to_bytes())
        scan, truth = Discover()(collections, record), Discover()(collections)
        changed = {id: scanned.file for id, scanned in scan.files.items()}
        if scan.is_full:
            files = changed
        else:
            assert not scan.gone & changed.keys()
            files = {id: file for id, file in files.items() if id not in scan.gone} | changed
            partial += 1
        assert files == {id: scanned.file for id, scanned in truth.files.items()}
        assert set(scan.unreadable) == set(truth.unreadable)
        assert scan.record.folders.keys() == truth.record.folders.keys()
    # A folder that is a link makes scans full for as long as it is there.
    assert partial > (0 if links else 100)


def test_a_scan_with_repeated_time_limits_compares_everything(tmp_path: Path) -> None:
    collections = {"docs": write(tmp_path, dict.fromkeys(TREE, ""))}
    scan = Discover()(collections)
    write(tmp_path, dict.fromkeys(TREE, "new"))
    changed: set[DocumentId] = set()
    for _ in range(len(FOLDERS)):
        scan = Discover()(collections, scan.record, until=time.monotonic() - 1)
        changed |= scan.files.keys()
    assert {id.path for id in changed} == set(TREE)
    assert scan.checked is not None


def test_a_record_that_is_damaged_or_of_other_settings_is_not_used(tmp_path: Path) -> None:
    collections = {"docs": write(tmp_path, dict.fromkeys(TREE, ""))}
    record = Discover()(collections).record
    assert not Discover()(collections, record).is_full
    assert Discover(exclude=("z.md",))(collections, record).is_full
    for data in (b"", b"[]", record.to_bytes()[:-8], b"{}\n"):
        with pytest.raises((ValueError, KeyError, TypeError)):
            ScanRecord.from_bytes(data)


def test_the_first_of_several_links_to_a_target_is_followed(tmp_path: Path) -> None:
    write(tmp_path, {".store/a.md": "", "m.md": ""})
    (tmp_path / "first").symlink_to(".store")
    (tmp_path / "second").symlink_to(".store")
    scan = Discover()({"docs": tmp_path})
    assert [id.path for id in scan.files] == ["first/a.md", "m.md"]
    (tmp_path / "first").unlink()
    later = Discover()({"docs": tmp_path}, scan.record)
    assert [id.path for id in later.files] == ["m.md", "second/a.md"]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no named pipes")
def test_an_ignore_file_that_is_a_pipe_or_a_device_has_no_effect(tmp_path: Path) -> None:
    write(tmp_path, {"a.md": "", "below/b.md": "", "linked/c.md": ""})
    os.mkfifo(tmp_path / ".gitignore")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "below" / ".gitignore").symlink_to(tmp_path / "pipe")
    (tmp_path / "linked" / ".gitignore").symlink_to("/dev/zero")
    assert found(tmp_path) == ["a.md", "below/b.md", "linked/c.md"]


def test_the_files_of_folders_deeper_than_the_stack_are_listed(tmp_path: Path) -> None:
    here = os.open(tmp_path, os.O_RDONLY)
    for _ in range(1100):
        os.mkdir("d", dir_fd=here)
        below = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(os.open("a.pdf", os.O_CREAT, dir_fd=here))
    os.close(here)
    (tmp_path / ".hidden").mkdir()
    write(tmp_path, {".hidden/b.pdf": "", "node_modules/c.pdf": "", "d.pdf": ""})
    assert {entry.name for entry in visible_files(tmp_path)} == {"a.pdf", "d.pdf"}
    while (tmp_path / "d").exists():  # `shutil.rmtree` is recursive
        os.rename(tmp_path / "d", tmp_path / "old")
        if (tmp_path / "old" / "d").exists():
            os.rename(tmp_path / "old" / "d", tmp_path / "d")
        shutil.rmtree(tmp_path / "old")
