"""A folder to ask from, unless tests have their own."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.making import write
from tests.surfaces.saying import PAGES


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MARKLIGHT_MODEL_NAME", "fake")
    monkeypatch.setenv("MARKLIGHT_DATA_DIR", str(tmp_path / "data"))
    folder = write(tmp_path / "docs", PAGES)
    monkeypatch.chdir(folder)
    return folder
