"""Fixtures for archives: the members of a valid one, and a library to import into."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import marklight
from tests.making import library, write
from tests.trust.archives import FILES, Members


@pytest.fixture(scope="module")
def members(tmp_path_factory: pytest.TempPathFactory) -> Members:
    """Return the members of a valid archive, without the manifest's list of them."""
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
