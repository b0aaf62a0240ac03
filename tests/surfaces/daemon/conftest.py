"""A small indexed library with its own state folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.making import library, write

PAGES = {
    "guide/auth.md": "# Auth\n\n## Token refresh\n\nTokens expire after an hour; refresh them as in [deploy](deploy.md).\n",
    "guide/deploy.md": "# Deploy\n\nRoll back a deployment with the undo command.\n\n```python\ngetUserById(1)\n```\n",
    "espresso.md": "---\ntags: [kitchen]\n---\n# Espresso\n\nGrind the beans finely. See [[nowhere]].\n",
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Three documents, indexed; the current folder is theirs."""
    monkeypatch.setenv("MARKLIGHT_MODEL_NAME", "fake")
    monkeypatch.setenv("MARKLIGHT_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setenv("MARKLIGHT_STATE_DIR", str(tmp_path / "state"))
    folder = write(tmp_path / "docs", PAGES)
    with library(folder) as made:
        made.index()
    monkeypatch.chdir(folder)
    return folder
