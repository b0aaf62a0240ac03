"""File-system events arrive in debounced batches of path ranges; ignored files cause none."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from threading import Event

import pytest
import watchfiles._rust_notify
from hypothesis import given
from hypothesis import strategies as st

from marklight.ingest.discover import Discover
from marklight.ingest.watch import MAX_RANGES, Watch, file_system, merged
from marklight.ports import PathRange
from tests.making import write

QUIET_MS = 200
"""Long enough that a busy machine delivers simultaneous changes in one batch."""
SECONDS = 60.0
"""Longer than any batch takes; only a failing test waits so long."""
PAGES = {
    "a.md": "A",
    "guide/b.md": "B",
    ".gitignore": "node_modules/\n",
    "node_modules/x/c.md": "C",
    ".git/HEAD": "",
}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return write(Path(os.path.realpath(tmp_path)) / "docs", PAGES)


@pytest.fixture
def watch(root: Path) -> Iterator[Watch]:
    watch = Watch(Discover(), {"docs": root}, QUIET_MS)
    watch.add_folders(Discover()({"docs": root}).folders)
    assert not watch.problem
    yield watch
    watch.close()


def assert_reported(watch: Watch, root: Path, *paths: str) -> None:
    """The next batches lead to all of these paths."""
    left, until = set(paths), time.monotonic() + SECONDS
    while left and time.monotonic() < until:
        spans = watch.wait(until - time.monotonic(), Event())
        left -= {
            path for path in left if any(s.first <= path < (s.end or "\U0010ffff") for s in spans)
        }
        watch.add_folders(Discover()({"docs": root}, spans).folders, spans)
    assert not left


def test_a_rename_is_one_batch_with_both_sides(watch: Watch, root: Path) -> None:
    (root / "a.md").rename(root / "guide/z.md")
    spans = watch.wait(SECONDS, Event())
    assert [span.first for span in spans] == ["a.md", "guide/z.md"]


def test_a_save_by_rename_is_one_change(watch: Watch, root: Path) -> None:
    write(root, {".a.md.swp": "1", "a.md~": "new"})
    (root / "a.md~").replace(root / "a.md")
    assert [span.first for span in watch.wait(SECONDS, Event())] == ["a.md"]


def test_changes_in_quick_succession_are_one_batch(watch: Watch, root: Path) -> None:
    for number in range(5):
        write(root, {f"n{number}.md": "x"})
    assert len(watch.wait(SECONDS, Event())) == 5


def test_events_in_ignored_folders_and_other_files_are_dropped(watch: Watch, root: Path) -> None:
    write(
        root,
        {"node_modules/x/c.md": "2", "node_modules/y.md": "", ".git/index": "", ".marklight/x": "", "log": ""},
    )  # fmt: skip
    write(root, {"guide/picture.png": b"\x89", "guide/b.md~": "", ".hidden.md": ""})
    assert not [span for span in watch.wait(0.5, Event()) if "guide" in span.first]
    write(root, {"a.md": "2"})
    assert_reported(watch, root, "a.md")


def test_a_folder_is_watched_from_when_it_appears(watch: Watch, root: Path) -> None:
    write(root, {"new/deep/one.md": "1"})
    assert_reported(watch, root, "new/deep/one.md")
    write(root, {"new/deep/two.md": "2"})
    assert_reported(watch, root, "new/deep/two.md")


def test_a_folder_that_is_deleted_and_created_again_is_watched(watch: Watch, root: Path) -> None:
    shutil.rmtree(root / "guide")
    assert_reported(watch, root, "guide/b.md")
    write(root, {"guide/b.md": "B again"})
    assert_reported(watch, root, "guide/b.md")
    write(root, {"guide/b.md": "B once more"})
    assert_reported(watch, root, "guide/b.md")


def test_a_moved_folder_is_scanned_at_both_paths(watch: Watch, root: Path) -> None:
    (root / "guide").rename(root / "manual")
    assert_reported(watch, root, "guide/b.md", "manual/b.md")
    write(root, {"manual/c.md": "C"})
    assert_reported(watch, root, "manual/c.md")


def test_a_changed_ignore_file_causes_a_scan_of_its_folder(watch: Watch, root: Path) -> None:
    write(root, {"guide/.ignore": "b.md\n"})
    assert_reported(watch, root, "guide/b.md")
    write(root, {".gitignore": ""})
    assert_reported(watch, root, "node_modules/x/c.md")
    write(root, {"node_modules/x/c.md": "now it counts"})
    assert_reported(watch, root, "node_modules/x/c.md")


def test_very_many_changes_cause_a_full_scan(watch: Watch, root: Path) -> None:
    write(root, {f"many/{number}.md": "" for number in range(3)})
    assert_reported(watch, root, "many/1.md")
    write(root, {f"many/{number}.md": "x" for number in range(MAX_RANGES + 20)})
    until = time.monotonic() + SECONDS
    while (spans := watch.wait(SECONDS, Event())) != [PathRange("docs")]:
        assert time.monotonic() < until, spans


def test_waking_the_watcher_loses_no_events(watch: Watch, root: Path) -> None:
    wake = Event()
    wake.set()
    write(root, {"a.md": "2"})
    assert watch.wait(SECONDS, wake) == []
    assert_reported(watch, root, "a.md")


def test_an_event_belongs_to_the_innermost_collection(root: Path) -> None:
    collections = {"all": root, "guide": root / "guide"}
    watch = Watch(Discover(), collections, 30)
    watch.add_folders(Discover()(collections).folders)
    write(root, {"guide/b.md": "2"})
    assert watch.wait(SECONDS, Event()) == [PathRange("guide", "b.md", "b.md0")]
    watch.close()


def test_watching_resumes_after_a_system_limit_is_lifted(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError("OS file watch limit reached")

    watch = Watch(Discover(), {"docs": root}, 30)
    with monkeypatch.context() as patch:
        patch.setattr(watchfiles._rust_notify, "RustNotify", full)
        watch.add_folders(Discover()({"docs": root}).folders)
    assert watch.problem == ("2 folders cannot be watched (OS file watch limit reached)")
    assert watch.wait(0.01, Event()) == []
    watch.restart()
    assert not watch.problem
    write(root, {"a.md": "2"})
    assert_reported(watch, root, "a.md")
    watch.close()


def test_a_network_file_system_is_recognised_by_its_mount(tmp_path: Path) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text(
        "/dev/sda1 / ext4 rw 0 0\nserver:/x /home/my\\040notes nfs4 rw 0 0\nbroken\n"
        "tmpfs /home/my\\040notes/fast tmpfs rw 0 0\n"
    )
    assert file_system("/home/my notes/docs", str(mounts)) == "nfs4"
    assert file_system("/home/my notes/fast/docs", str(mounts)) == "tmpfs"
    assert file_system("/home/other", str(mounts)) == "ext4"
    assert file_system("/home", str(tmp_path / "none")) == ""


ENDS = st.sampled_from("abcdefgh")


@given(st.lists(st.tuples(st.sampled_from("xy"), ENDS, st.one_of(st.none(), ENDS)), max_size=8))
def test_merged_ranges_contain_the_same_paths_once(
    given: list[tuple[str, str, str | None]],
) -> None:
    spans = [PathRange(*each) for each in given if each[2] is None or each[1] < each[2]]
    one = merged(spans)
    for collection in "xy":
        for path in "abcdefghi":
            held = [
                s for s in one if s.collection == collection and s.first <= path < (s.end or "z")
            ]
            assert len(held) <= 1
            assert bool(held) == any(
                s.collection == collection and s.first <= path < (s.end or "z") for s in spans
            )
    assert one == sorted(one, key=lambda each: each[:2])
