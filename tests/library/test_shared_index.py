"""A library whose index is on a PostgreSQL server: several machines, roles that only read, a server that restarts."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import marklight
from marklight.errors import ReadOnly, StoreError, UsageError
from marklight.library.shared_index import ELSEWHERE
from tests.library.conftest import PAGES, paths
from tests.making import library, write
from tests.servers.postgres import PostgresServer, new_library, new_server, shared_server
from tests.servers.qdrant import new_fleet_library


@pytest.fixture
def address() -> Iterator[str]:
    with new_library() as made:
        yield made


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a function that continues as another machine, with its own user data folder."""

    def become(name: str) -> None:
        monkeypatch.setenv("MARKLIGHT_DATA_DIR", str(tmp_path / f"data of {name}"))

    become("first")
    return become


@contextmanager
def opened(folder: Path, address: str, **settings: Any) -> Iterator[marklight.Library]:
    with library(folder, engine=address, **settings) as lib:
        yield lib


@pytest.fixture(params=["PostgreSQL", "Qdrant"])
def any_address(request: pytest.FixtureRequest) -> Iterator[str]:
    with new_library() if request.param == "PostgreSQL" else new_fleet_library() as made:
        yield made


@pytest.mark.usefixtures("machine")
def test_a_search_indexes_and_finds_and_leaves_no_files(folder: Path, any_address: str) -> None:
    address = any_address
    with opened(folder, address) as lib:
        answer = lib.search("refresh token")
        assert paths(answer)[0] == "auth.md"
        assert answer.notices == []
        write(folder, {"new.md": "# Zebra\n\nA zebra has stripes.\n"})
        assert paths(lib.search("zebra stripes"))[0] == "new.md"
        (folder / "new.md").unlink()
        assert "new.md" not in paths(lib.search("zebra stripes", min_confidence=0.0))
        assert lib.get("auth.md").text.startswith("---")
    assert sorted(path.name for path in folder.iterdir()) == ["auth.md", "deploy", "notes.txt"]


@pytest.mark.usefixtures("machine")
def test_a_folder_inside_is_part_of_the_same_library(folder: Path, address: str) -> None:
    with opened(folder, address) as lib:
        lib.index()
    with opened(folder / "deploy", address) as lib:
        assert lib.place.folder == folder
        assert paths(lib.search("undo command"))[0] == "deploy/rollback.md"
        assert paths(lib.search("espresso machine", min_confidence=0.0)) != ["notes.txt"]


def test_a_second_clone_is_compared_by_content_and_changes_nothing(
    folder: Path, address: str, machine: Any, tmp_path: Path
) -> None:
    with opened(folder, address) as lib:
        before = lib.index().index
    machine("second")
    clone = write(tmp_path / "clone", PAGES)
    os.utime(clone / "auth.md", (1_000_000_000, 1_000_000_000))
    with opened(clone, address, collections={"default": "."}) as lib:
        report = lib.index()
        assert (report.added, report.changed, report.removed, report.newly_embedded) == (
            (),
        ) * 3 + (0,)
        assert report.index.documents == before.documents
        generation = lib.index().index.generation
        assert lib.index().index.generation == generation
        write(clone, {"auth.md": "# Authentication\n\nTokens expire after a day.\n"})
        assert "day" in lib.search("when do tokens expire").hits[0].chunk.text
    machine("first")
    with opened(folder, address) as lib:
        assert "day" in lib.search("when do tokens expire").hits[0].chunk.text
        (folder / "notes.txt").unlink()
        lib.index()
        assert "notes.txt" not in paths(lib.search("espresso", min_confidence=0.0))


def test_a_machine_without_the_documents_finds_them_and_removes_nothing(
    folder: Path, address: str, machine: Any, tmp_path: Path
) -> None:
    with opened(folder, address) as lib:
        lib.index()
    machine("second")
    empty = write(tmp_path / "empty", {"own.md": "# Own\n\nMy private zebra.\n"})
    with opened(empty, address) as lib:
        answer = lib.search("refresh token")
        assert paths(answer)[0] == "auth.md"
        (notice,) = answer.notices
        assert "is not part of the index" in notice
        assert lib.search("refresh token").notices == []
        assert lib.get("auth.md").text == PAGES["auth.md"].rstrip()
        assert lib.outline("auth.md").headings
        assert lib.status()["documents"] == 4
        assert paths(lib.search("private zebra", min_confidence=0.0)) != ["own.md"]
    write(empty, {"auth.md": "# Another file\n\nWith the same name.\n"})
    with opened(empty, address) as lib:
        assert "hour" in lib.search("when do tokens expire").hits[0].chunk.text
        assert lib.status()["documents"] == 4
    machine("first")
    with opened(folder, address) as lib:
        assert lib.index().index.documents == 4


def test_a_folder_is_added_by_index(
    folder: Path, address: str, machine: Any, tmp_path: Path
) -> None:
    with opened(folder, address) as lib:
        lib.index()
    machine("second")
    more = write(tmp_path / "more", {"own.md": "# Own\n\nMy zebra.\n"})
    with opened(more, address) as lib:
        assert lib.index().index.documents == 5
        answer = lib.search("zebra", mode="keyword")
        assert paths(answer) == ["own.md"]
        assert lib.search("refresh token").notices == [ELSEWHERE]
        assert lib.search("refresh token").notices == []


def test_a_collection_that_is_not_on_this_machine_is_searched(
    folder: Path, address: str, machine: Any, tmp_path: Path
) -> None:
    with opened(folder, address, collections={"docs": "."}) as lib:
        lib.index()
    machine("second")
    here = write(tmp_path / "here", {"own.md": "# Own\n\nMy zebra.\n"})
    collections = {"own": ".", "docs": "missing"}
    with opened(here, address, collections=collections) as lib:
        lib.index()
        answer = lib.search("refresh token")
        assert paths(answer)[0] == "auth.md"
        assert not any("not on this machine:" in notice for notice in lib.search("zebra").notices)
        assert lib.get("docs/auth.md").text == PAGES["auth.md"].rstrip()
        assert lib.status()["collections"]["docs"]["documents"] == 4
    with opened(here, address, collections={"own": "."}) as lib:
        answer = lib.search("refresh token", collection="docs")
        assert paths(answer)[0] == "auth.md"
        assert answer.several_collections
        assert lib.status()["collections"]["docs"] == {"path": "", "documents": 4}
        with pytest.raises(UsageError, match="Known: own, docs"):
            lib.search("refresh token", collection="other")
    with opened(tmp_path, address, collections={"docs": "missing"}) as lib:
        assert paths(lib.search("refresh token"))[0] == "auth.md"


# Rights


@pytest.fixture
def reader_address(folder: Path, machine: Any) -> Iterator[str]:
    """The address of an index for a role that may only read."""
    server = shared_server()
    with new_library(server) as address:
        with opened(folder, address) as lib:
            lib.index()
            name = lib.address.library
        role = f"reader_of_{name}"
        server.sql(
            f"CREATE ROLE {role} LOGIN",
            f"GRANT USAGE ON SCHEMA {name} TO {role}",
            f"GRANT SELECT ON ALL TABLES IN SCHEMA {name} TO {role}",
        )
        try:
            yield address.replace("://postgres@", f"://{role}@")
        finally:
            server.sql(f"DROP OWNED BY {role}", f"DROP ROLE {role}")


def test_a_reader_searches_the_index_as_it_is(folder: Path, reader_address: str) -> None:
    write(folder, {"new.md": "# Zebra\n\nA zebra has stripes.\n", "auth.md": "# Changed\n"})
    with opened(folder, reader_address) as lib:
        answer = lib.search("refresh token")
        assert paths(answer)[0] == "auth.md"
        (notice,) = answer.notices
        assert notice.startswith("You may only read the index postgresql://reader_of_")
        assert "It was last updated 20" in notice
        assert lib.search("refresh token").notices == []
        assert lib.get("auth.md").text == PAGES["auth.md"].rstrip()
        assert lib.status()["server"]["access"] == "read"
        assert paths(lib.search("zebra stripes", min_confidence=0.0))[0] != "new.md"
        with pytest.raises(ReadOnly, match="reader_of_"):
            lib.index()


# Faults


@pytest.fixture
def own_server() -> Iterator[PostgresServer]:
    with new_server() as server:
        yield server


@pytest.mark.usefixtures("machine")
def test_the_next_search_works_after_the_server_was_restarted(
    folder: Path, own_server: PostgresServer
) -> None:
    with opened(folder, own_server.address(library="docs")) as lib:
        expected = paths(lib.search("refresh token"))
        for stop in (own_server.stop, own_server.kill):
            stop()
            with pytest.raises(StoreError) as caught:
                lib.search("refresh token")
            assert caught.value.exit_code == 3
            assert caught.value.hint
            own_server.start()
            assert paths(lib.search("refresh token")) == expected
            own_server.restart()
            assert paths(lib.search("refresh token")) == expected
            assert lib.search("refresh token").notices == []


@pytest.mark.usefixtures("machine")
def test_a_search_whose_connection_is_cut_is_repeated_once(
    folder: Path, own_server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    from marklight.library import search

    cuts: list[int] = []

    def cut_first(*args: Any, **kwargs: Any) -> Any:
        if len(cuts) < limit:
            cuts.append(1)
            own_server.sql(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE application_name = 'marklight' AND pid <> pg_backend_pid()"
            )
        return run(*args, **kwargs)

    with opened(folder, own_server.address(library="docs")) as lib:
        expected = paths(lib.search("refresh token"))
        run = search.open_search
        monkeypatch.setattr(search, "open_search", cut_first)
        limit = 1
        assert paths(lib.search("refresh token")) == expected
        cuts.clear()
        limit = 2
        with pytest.raises(StoreError, match="connection"):
            lib.search("refresh token")
        assert paths(lib.search("refresh token")) == expected
