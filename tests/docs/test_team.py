"""The commands and files of the page on teams work on a real server: roles, backup, restore."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from tests.library.conftest import PAGES, paths
from tests.making import library, write
from tests.servers.postgres import PostgresServer, new_server

from .examples import ROOT

PAGE = (ROOT / "docs" / "team.md").read_text()
EXAMPLES = ROOT / "examples"


def command(program: str) -> str:
    """Return the command line of a program as the page shows it."""
    (line,) = re.findall(rf"^{program} .+$", PAGE, re.MULTILINE)
    return str(line)


def run(server: PostgresServer, line: str, folder: Path) -> None:
    """Run a command as the administrator of a server."""
    environment = {
        **os.environ,
        "PATH": f"{server.bin}:{os.environ['PATH']}",
        "PGHOST": str(server.folder),
        "PGPORT": str(server.port),
        "PGUSER": "postgres",
    }
    done = subprocess.run(
        line.split(), capture_output=True, text=True, cwd=folder, env=environment, check=False
    )
    assert (done.returncode, done.stderr) == (0, ""), line


def create_roles(server: PostgresServer) -> None:
    server.sql("CREATE DATABASE marklight")
    run(
        server,
        "psql --quiet --set ON_ERROR_STOP=1 --dbname marklight --file roles.sql",
        EXAMPLES / "team",
    )


def address(server: PostgresServer, role: str) -> str:
    return server.address("marklight", library="docs").replace("://postgres@", f"://{role}@")


def test_a_library_is_backed_up_and_restored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MARKLIGHT_DATA_DIR", str(tmp_path / "data"))
    folder = write(tmp_path / "documents", PAGES)
    with new_server() as first:
        create_roles(first)
        with library(folder, engine=address(first, "docs_owner")) as lib:
            before = lib.index().index
        run(first, command("pg_dump"), tmp_path)
    with new_server() as second:
        create_roles(second)
        for _ in range(2):  # into empty schemas, and over a library
            run(second, command("pg_restore"), tmp_path)
            with library(folder, engine=address(second, "ben")) as lib:
                assert paths(lib.search("refresh token"))[0] == "auth.md"
                counts = lib.status()
                assert counts["documents"] == before.documents
                assert counts["embedded"] == counts["chunks"] == before.chunks
            with library(folder, engine=address(second, "docs_owner")) as lib:
                assert lib.engine.check() == []
            with library(folder, engine=address(second, "ann")) as lib:
                report = lib.index()
                assert (report.added, report.changed, report.newly_embedded) == ((), (), 0)
                write(folder, {"new.md": "# Zebra\n\nA zebra has stripes.\n"})
                assert paths(lib.search("zebra stripes"))[0] == "new.md"
                (folder / "new.md").unlink()
                lib.index()


@pytest.mark.parametrize("file", sorted(EXAMPLES.glob("*/compose.yaml")), ids=str)
def test_compose_files_are_valid_and_name_official_images(file: Path) -> None:
    import yaml

    made = yaml.safe_load(file.read_text())
    images = {service["image"].partition(":")[0] for service in made["services"].values()}
    assert images <= {"pgvector/pgvector", "qdrant/qdrant"}
    for service in made["services"].values():
        assert service["restart"] == "unless-stopped"
        assert all(port.startswith("127.0.0.1:") for port in service["ports"])
        names = {volume.partition(":")[0] for volume in service["volumes"]}
        assert names <= made["volumes"].keys()
