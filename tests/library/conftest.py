"""A small folder of documents, and the address of its index outside it."""

from __future__ import annotations

from pathlib import Path

import pytest

import marklight
from tests.making import write

PAGES = {
    "auth.md": "---\ntitle: Authentication\ntags: [security]\nstatus: draft\n---\n\nTokens expire after an hour.\n\n"
    "## Refresh\n\nA refresh token gives a new access token without asking the user again.\n",
    "deploy/rollback.md": "# Rolling back\n\nUse the undo command to return to an earlier revision of the deployment.\n",
    "deploy/scale.md": "# Scaling\n\nMore replicas carry more load. See [[rollback]].\n",
    "notes.txt": "Plain notes about the espresso machine in the kitchen.\n",
}


@pytest.fixture
def engine(tmp_path: Path) -> str:
    return f"file:{tmp_path / 'index'}"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write(tmp_path / "docs", PAGES)


def paths(answer: marklight.Answer) -> list[str]:
    return [hit.chunk.path for hit in answer.hits]
