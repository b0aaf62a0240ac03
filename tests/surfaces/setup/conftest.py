"""A temporary home folder."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.surfaces.setup.user import User


@pytest.fixture
def user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[User]:
    monkeypatch.setattr(sys, "platform", "linux")
    for name in os.environ:
        if name.startswith(("MARKLIGHT_", "CLAUDE_", "CODEX_", "GEMINI_", "CLINE_", "XDG_")):
            monkeypatch.delenv(name)
    home, notes = tmp_path / "home", tmp_path / 'my "nötes" 日本'
    home.mkdir()
    notes.mkdir()
    (notes / "a.md").write_text("# Backups\n\nKept for thirty days.\n")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.chdir(notes)
    yield User(home, notes, capsys)
    assert not list(tmp_path.rglob(".*.marklight")), "something half-written was left behind"
