"""A folder with a few documents for the tests of surfaces."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.making import write
from tests.surfaces.command_line import PAGES


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MARKLIGHT_MODEL_NAME", "fake")
    monkeypatch.setenv("MARKLIGHT_DATA_DIR", str(tmp_path / "data"))
    folder = write(tmp_path / "docs", PAGES)
    monkeypatch.chdir(folder)
    return folder
