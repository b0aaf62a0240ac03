"""Results match the disk, even if a scan runs out of time."""

from __future__ import annotations

import os
import shutil
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import marklight
from marklight.engines.relational.documents import RelationalDocuments
from marklight.errors import NotFound
from marklight.ingest import file_batch, pipeline
from marklight.ingest.scan_record import FILE
from marklight.library import refresh
from marklight.model import DocumentId
from marklight.ports import IndexedFile
from tests.library.conftest import paths
from tests.making import library, write

PAGES = {f"{topic}/page.md": f"# {topic}\n\nAll about {topic}.\n" for topic in "abcdef"}


@pytest.fixture
def impatient() -> Iterator[None]:
    """A scan compares one folder, and a search reads one file."""
    with pytest.MonkeyPatch.context() as patch:
        hurry(patch)
        yield


def hurry(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(refresh, "SCAN_SECONDS", -1.0)
    patch.setattr(file_batch, "SMALL_BATCH_FILES", 1)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    return write(tmp_path / "tree", PAGES)


def indexed(lib: marklight.Library) -> set[tuple[str, str, str]]:
    with lib.engine.snapshot() as snapshot:
        return {(*id, each.digest) for id, each in snapshot.documents.files().items()}


@pytest.mark.usefixtures("impatient")
def test_searches_of_several_processes_together_scan_a_huge_tree(
    tree: Path, tmp_path: Path
) -> None:
    place = f"file:{tmp_path / 'index'}"
    with library(tree, engine=place) as lib:
        lib.index()
    write(tree, {"f/page.md": "# f\n\nA walrus.\n", "e/new.md": "# New\n\nA walrus too.\n"})
    shutil.rmtree(tree / "b")
    noticed: list[str] = []
    for _ in range(20):  # each a command of its own
        with library(tree, engine=place) as lib:
            answer = lib.search("walrus", mode="keyword")
            noticed += answer.notices
            if {"f/page.md", "e/new.md"} <= set(paths(answer)) and len(indexed(lib)) == 6:
                break
    assert {"f/page.md", "e/new.md"} == set(paths(answer))
    assert any("Checked 1 of about 6 files" in each for each in noticed)
    with library(tree, engine=place) as lib:
        assert "b/page.md" not in {path for _, path, _ in indexed(lib)}


def test_states_of_indexed_files_are_read_some_at_a_time(
    tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts: list[int] = []
    files_of = RelationalDocuments.files_of

    def counted(
        self: RelationalDocuments, documents: Collection[DocumentId]
    ) -> Mapping[DocumentId, IndexedFile]:
        counts.append(len(documents))
        return files_of(self, documents)

    monkeypatch.setattr(pipeline, "COMPARED_AT_ONCE", 2)
    monkeypatch.setattr(RelationalDocuments, "files_of", counted)
    with library(tree, engine=f"file:{tmp_path / 'index'}") as lib:
        lib.index()
        assert counts == [2, 2, 2]


def test_a_scan_within_the_time_limit_is_complete(tree: Path, tmp_path: Path) -> None:
    with library(tree, engine=f"file:{tmp_path / 'index'}") as lib:
        lib.index()
        write(tree, {"z.md": "# Z\n\nA walrus.\n"})
        answer = lib.search("walrus")
    assert paths(answer)[0] == "z.md"
    assert not [each for each in answer.notices if "Checked" in each]


@pytest.mark.parametrize("damage", ["cut", "other", "empty", "bytes"])
def test_a_damaged_scan_record_is_ignored(tree: Path, tmp_path: Path, damage: str) -> None:
    place, record = f"file:{tmp_path / 'index'}", tmp_path / "index" / FILE
    with library(tree, engine=place) as lib:
        lib.index()
        assert lib.text_ingest.compare().scan.is_full is False
    data = record.read_bytes()
    with library(tree, engine=place) as lib:
        assert lib.text_ingest.compare().scan.is_full is False
    other = {"cut": data[:-1], "other": b"x" + data, "empty": b"", "bytes": b"\xff" * 99}
    record.write_bytes(other[damage])
    write(tree, {"b/page.md": "# b\n\nA walrus.\n"})
    with library(tree, engine=place) as lib:
        assert lib.text_ingest.compare().scan.is_full
        assert paths(lib.search("walrus", mode="keyword")) == ["b/page.md"]


@pytest.mark.usefixtures("impatient")
def test_a_changed_result_is_indexed_again_though_the_scan_did_not_reach_it(
    tree: Path, engine: str
) -> None:
    with library(tree, engine=engine) as lib:
        lib.index()
        write(tree, {"f/page.md": "# f\n\nAll about f and the walrus.\n"})
        answer = lib.search("all about f", mode="keyword", path="f/*")
        assert "walrus" in answer.hits[0].chunk.text
        write(tree, {"e/page.md": "# Other\n\nNothing.\n"})
        assert lib.get("e/page.md").text == "# Other\n\nNothing."
        write(tree, {"e/page.md": "# Third\n\n[[f/page]]\n"})
        assert [each.text for each in lib.outline("e/page.md").headings] == ["Third"]
        write(tree, {"e/page.md": "# Fourth\n\n[[d/page]]\n"})
        assert [each.link.target for each in lib.links("e/page.md").out] == ["d/page"]
        write(tree, {"e/page.md": "# Fifth\n\n[[c/page]]\n"})
        assert (
            next(each.document.path for each in lib.related("e/page.md").relatives) == "c/page.md"
        )


@pytest.mark.usefixtures("impatient")
def test_a_new_file_is_found_by_name_though_no_scan_reached_it(tree: Path, engine: str) -> None:
    with library(tree, engine=engine) as lib:
        lib.index()
        write(
            tree,
            {
                "f/new.md": "# New\n\n## Part\n\nA walrus.\n",
                "f/.ignore": "hid.md\n",
                "f/hid.md": "x",
            },
        )
        assert "walrus" in lib.get("f/new.md#part").text
        write(tree, {"f/newer.md": "# Newer\n"})
        assert [each.text for each in lib.outline("newer.md", near=tree / "f").headings] == [
            "Newer"
        ]
        with pytest.raises(NotFound):
            lib.get("f/hid.md")
        with pytest.raises(NotFound):
            lib.get("f/none.md")


@pytest.mark.usefixtures("impatient")
def test_a_deleted_result_is_never_returned(tree: Path, engine: str) -> None:
    with library(tree, engine=engine, search={"skip": ["existing_files"]}) as lib:
        lib.index()
        (tree / "f/page.md").unlink()
        answer = lib.search("all about f", mode="keyword", path="f/*")
        assert not answer.hits
        with pytest.raises(NotFound):
            lib.get("f/page.md")
        (tree / "e/page.md").unlink()
        answer = lib.search("all about e", mode="keyword", path="e/*", refresh=False)
        assert not answer.hits
        assert answer.abstained == "All matches were in files that have since been deleted"


def test_deleted_files_do_not_support_other_results(tmp_path: Path, engine: str) -> None:
    pages = {"owl.md": "# Owl\n\nThe owl hunts at night.\n", "tea.md": "# Tea\n\nNight tea.\n"}
    folder = write(tmp_path / "docs", pages)
    with library(folder, engine=engine, model={"name": "none"}) as lib:
        lib.index()
        assert paths(lib.search("owl hunts at night"))[0] == "owl.md"
        (folder / "owl.md").unlink()
        answer = lib.search("owl hunts at night", refresh=False)
        assert not answer.hits
        assert (answer.abstained or "").startswith("No passage is likely to answer this")


def test_deleted_files_take_no_place_at_any_depth(tmp_path: Path, engine: str) -> None:
    others = {name: " ".join(f"{name}{number}" for number in range(8)) for name in "bcdefghj"}
    pages = {f"{name}.md": f"# {name}\n\nkumquat {words}\n" for name, words in others.items()}
    folder = write(tmp_path / "docs", pages)
    for name in pages:
        os.utime(folder / name, (0, 0))
    with library(folder, engine=engine, model={"name": "none"}) as lib:
        lib.index()
        third = paths(lib.search("kumquat", limit=8, min_confidence=0))[2]
        # As the only new one it would be lifted to the front.
        os.utime(folder / third)
        lib.index()
        assert paths(lib.search("kumquat", limit=1, min_confidence=0)) == [third]
        (folder / third).unlink()
        for limit in (1, 3, 7):
            found = lib.search("kumquat", limit=limit, min_confidence=0, refresh=False)
            assert len(paths(found)) == limit


def test_without_a_refresh_a_changed_file_has_a_notice(tree: Path, engine: str) -> None:
    with library(tree, engine=engine) as lib:
        lib.index()
        write(tree, {"f/page.md": "# f\n\nAll about f and the walrus.\n"})
        answer = lib.search("all about f", mode="keyword", path="f/*", refresh=False)
        assert "walrus" not in answer.hits[0].chunk.text
        assert any("shown as indexed before the last change" in each for each in answer.notices)


def test_a_changed_result_has_a_notice_while_another_process_writes(
    tree: Path, tmp_path: Path
) -> None:
    place = f"file:{tmp_path / 'index'}"
    with library(tree, engine=place) as lib, library(tree, engine=place) as other:
        lib.index()
        write(tree, {"f/page.md": "# f\n\nAll about f and the walrus.\n"})
        with other.engine.writing(1):
            answer = lib.search("all about f", mode="keyword", path="f/*")
        assert "walrus" not in answer.hits[0].chunk.text
        assert any("Another process is indexing" in each for each in answer.notices)
        assert any("shown as indexed before the last change" in each for each in answer.notices)


def test_a_file_that_became_unreadable_is_removed(tree: Path, engine: str) -> None:
    with library(tree, engine=engine) as lib:
        lib.index()
        write(tree, {"f/page.md": b"\x00\x01\x02" * 100})
        assert "f/page.md" not in paths(lib.search("all about f", mode="keyword"))


def test_many_changes_are_indexed_in_steps_and_counted_as_pending(
    tree: Path, engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_batch, "SMALL_BATCH_FILES", 2)
    with library(tree, engine=engine, index={"search_seconds": 0.0}) as lib:
        lib.index()
        write(tree, {path: text + "\nAnd a walrus.\n" for path, text in PAGES.items()})
        unread = []
        for _ in range(3):
            answer = lib.search("walrus", mode="keyword", path="none")
            unread.append(answer.index.unread)
            assert answer.to_dict()["index"]["pending"] == answer.index.pending
            assert answer.index.pending >= answer.index.unread
            notices = [each for each in answer.notices if "changed files are not indexed" in each]
            assert bool(notices) == bool(answer.index.unread)
    assert unread == [4, 2, 0]


NAMES = ("a.md", "a/b.md", "a/c.md", "a-b.md", "b/c.md", "b/d/e.md", "z.txt")
WORDS = ("walrus", "otter", "heron")
EDITS = st.one_of(
    st.tuples(st.just("write"), st.sampled_from(NAMES), st.sampled_from(WORDS)),
    st.tuples(st.just("remove"), st.sampled_from((*NAMES, "a", "b", "b/d")), st.just("")),
    st.tuples(st.just("rename"), st.sampled_from((*NAMES, "a", "b", "b/d")), st.sampled_from(NAMES)),
    st.tuples(st.just("ignore"), st.sampled_from(("", "a/", "b")), st.sampled_from(NAMES)),
    st.tuples(st.just("search"), st.sampled_from(WORDS), st.just("")),
    st.tuples(st.just("open"), st.just(""), st.just("")),
)  # fmt: skip


def edit(root: Path, what: str, one: str, other: str) -> None:
    if what == "write":
        write(root, {one: f"# {one}\n\nThe {other} of {one}.\n"})
    elif what == "remove" and (root / one).is_dir():
        shutil.rmtree(root / one)
    elif what == "remove":
        (root / one).unlink(missing_ok=True)
    elif what == "rename" and (root / one).exists():
        os.renames(root / one, root / other)
    elif what == "ignore" and (root / one).is_dir():
        (root / one / ".ignore").write_text(other + "\n")


@given(st.lists(EDITS, max_size=12))
@example([("write", name, "walrus") for name in NAMES])  # copies, of which one is shown
@settings(max_examples=25, suppress_health_check=[HealthCheck.too_slow])
def test_repeated_searches_converge_to_the_state_of_the_disk(
    edits: list[tuple[str, str, str]],
) -> None:
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        hurry(patch)
        root = write(Path(folder) / "docs", {name: f"# {name}\n\nThe otter.\n" for name in NAMES})
        place = f"file:{folder}/index"
        limits = {"search_seconds": 0.0}
        lib = library(root, engine=place, index=limits, model={"name": "none"})
        try:
            lib.index()
            for what, one, other in (*edits, *[("search", "otter", "")] * 30):
                if what == "open":
                    lib.close()
                    lib = library(root, engine=place, index=limits, model={"name": "none"})
                elif what == "search":
                    answer = lib.search(one, mode="keyword", limit=20)
                    for hit in answer.hits:
                        text = (root / hit.chunk.path).read_text()
                        assert hit.chunk.text in text
                else:
                    try:
                        edit(root, what, one, other)
                    except OSError:  # a folder in the place of a file, and the like
                        continue
            with library(root, engine=f"file:{folder}/truth", model={"name": "none"}) as truth:
                truth.index()
                assert indexed(lib) == indexed(truth)
        finally:
            lib.close()


def test_an_index_that_is_deleted_under_an_open_library_is_rebuilt(
    tree: Path, tmp_path: Path
) -> None:
    index = tmp_path / "index"
    with library(tree, engine=f"file:{index}") as lib:
        lib.index()
        assert lib.search("all about f", refresh=False).hits
        shutil.rmtree(index)
        assert not lib.search("all about f", refresh=False).hits
        assert paths(lib.search("all about f", mode="keyword"))[0] == "f/page.md"
        shutil.rmtree(index)
        write(tree, {"f/page.md": "# f\n\nA walrus.\n"})
        lib.index()
        assert paths(lib.search("walrus"))[0] == "f/page.md"
        before = indexed(lib)
    with library(tree, engine=f"file:{index}") as again:
        assert indexed(again) == before
        assert not again.engine.check()


def test_an_open_library_reads_another_index_of_this_user_that_is_moved_there(
    tree: Path, tmp_path: Path
) -> None:
    index, other = tmp_path / "index", tmp_path / "other"
    with library(tree, engine=f"file:{index}") as lib:
        lib.index()
        assert lib.search("walrus", refresh=False).abstained
        write(tree, {"f/page.md": "# f\n\nA walrus.\n"})
        with library(tree, engine=f"file:{other}") as another:
            another.index()
        shutil.rmtree(index)
        other.rename(index)
        for refresh in (False, True):
            assert paths(lib.search("walrus", mode="keyword", refresh=refresh)) == ["f/page.md"]
