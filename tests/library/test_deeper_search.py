"""Duplicates and deleted files do not crowd out other results: the search goes deeper."""

from __future__ import annotations

from pathlib import Path

import pytest

from marklight.operations import ModeName
from tests.making import library, write

COPY = "# Backups\n\nBackups of the database are kept for thirty days and tried out once a month.\n"


OTHERS = (
    "Who asks for database backups of a weekend writes to the people on call.",
    "In spring the database moved, and with it went all backups to the new house.",
    "Nobody may read backups of the customers' database without a second person.",
    "A restored database is compared by counting rows; backups that differ are kept apart.",
    "Tapes were given up: backups of every database now stand on disks abroad.",
    "The bill for backups doubled when pictures came into the database last year.",
)


def pages(copies: int) -> dict[str, str]:
    found = {f"v{number}/backups.md": COPY for number in range(copies)}
    return {
        **found,
        **{f"notes/{at}.md": f"# Note {at}\n\n{each}\n" for at, each in enumerate(OTHERS)},
    }


@pytest.mark.parametrize("mode", ["hybrid", "keyword"])
def test_copies_of_one_document_do_not_crowd_out_others(tmp_path: Path, mode: ModeName) -> None:
    with library(write(tmp_path, pages(60))) as lib:
        lib.index()
        found = lib.search("database backups", mode=mode, limit=5, min_confidence=0.0)
    assert len(found.hits) == 5
    assert len({hit.chunk.text for hit in found.hits}) == 5


def test_deleted_files_do_not_crowd_out_others(tmp_path: Path) -> None:
    gone = {
        f"old/{number}.md": f"# Old {number}\n\nBackups {number}: database backups.\n"
        for number in range(60)
    }
    with library(write(tmp_path, {**pages(0), **gone})) as lib:
        lib.index()
        for path in gone:
            (tmp_path / path).unlink()
        found = lib.search("database backups", mode="keyword", refresh=False, min_confidence=0.0)
    assert {hit.chunk.path.split("/")[0] for hit in found.hits} == {"notes"}
    assert len(found.hits) == 5
