"""Libraries above and below each other are named in notices and never mixed up."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.making import index_of, write
from tests.trust.hostile_folder import marklight


@pytest.fixture
def above(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MARKLIGHT_DATA_DIR", str(tmp_path / "data"))
    pages = {"a.md": "# A\n\nA wombat.\n", "below/b.md": "# B\n\nAn otter.\n"}
    return write(tmp_path / "above", pages)


def test_every_command_that_indexes_names_the_folder(above: Path) -> None:
    done = marklight(above, "search", "otter")
    assert f"Indexing {above}: 2 files …" in done.stderr
    write(above, {"c.md": "# C\n\nA heron.\n"})
    done = marklight(above / "below", "index")
    assert f"Indexing {above}: 1 file …" in done.stderr
    assert done.stdout.rstrip().endswith(f"in {above}")
    assert json.loads(marklight(above / "below", "index", "--json").stdout)["folder"] == str(above)


@pytest.mark.parametrize("command", [("index",), ("search", "otter")])
def test_a_library_made_above_others_names_them(above: Path, command: tuple[str, ...]) -> None:
    assert marklight(above, "index", "below").returncode == 0
    done = marklight(above, *command)
    assert (
        f"{above} contains other libraries, which keep their own index and are left out: {above / 'below'}."
        in done.stderr
    )
    assert "contains other libraries" not in marklight(above, *command).stderr


@pytest.mark.parametrize("command", [("index",), ("search", "otter")])
def test_a_library_made_inside_another_names_it(above: Path, command: tuple[str, ...]) -> None:
    assert marklight(above, "index").returncode == 0
    write(above / "below", {"marklight.toml": ""})
    done = marklight(above / "below", *command)
    assert (
        f"{above / 'below'} is inside the library {above}, which leaves it out from now on"
        in done.stderr
    )


def test_a_nested_library_is_never_indexed_by_the_one_around_it(above: Path) -> None:
    assert marklight(above, "index", "below").returncode == 0
    assert marklight(above, "index").returncode == 0
    assert paths(above) == ["a.md"]
    assert paths(above / "below") == ["b.md"]
    assert (
        "below/ is a library with an index of its own"
        in marklight(above, "ignored", "below/b.md").stdout
    )
    # A library that becomes nested leaves the one around it; without its index it returns.
    shutil.rmtree(index_of(above / "below"))
    assert paths(above) == ["a.md", "below/b.md"]
    write(above / "below", {"marklight.toml": ""})
    assert marklight(above / "below", "index").returncode == 0
    assert paths(above) == ["a.md"]


def test_a_nested_library_that_is_named_as_a_collection_is_indexed(above: Path) -> None:
    assert marklight(above, "index", "below").returncode == 0
    write(above, {"marklight.toml": '[collections]\nall = "."\nbelow = "below"\n'})
    assert paths(above) == ["a.md", "b.md"]


def paths(folder: Path) -> list[str]:
    """Return the paths of all documents that a search in a folder finds."""
    found = marklight(folder, "search", "a wombat an otter", "--json", "--min-confidence", "0")
    return sorted(each["path"] for each in json.loads(found.stdout)["results"])


def test_a_damaged_database_is_reported_from_folders_below_too(above: Path) -> None:
    assert marklight(above, "index").returncode == 0
    (index_of(above) / "library.db").write_bytes(b"nothing")
    done = marklight(above / "below", "search", "otter")
    assert done.returncode == 3
    assert "library.db is damaged" in done.stderr
    assert not index_of(above / "below").exists()


@pytest.mark.parametrize("command", [("index",), ("search", "wombat")])
def test_a_library_names_a_nested_one_whose_documents_leave_it(
    above: Path, command: tuple[str, ...]
) -> None:
    assert marklight(above, "index").returncode == 0
    write(above / "below", {"marklight.toml": ""})
    assert marklight(above / "below", "index").returncode == 0
    notice = f"1 document in {above / 'below'} has left this library"
    done = marklight(above, *command)
    assert notice in done.stderr
    assert "list it under [collections]" in done.stderr
    assert paths(above) == ["a.md"]
    assert notice not in marklight(above, *command).stderr
