"""What many tests need: where the real documents are."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

_DEFAULT = Path(__file__).resolve().parents[2] / "shared" / "eval"


@pytest.fixture(scope="session")
def eval_root() -> Path:
    """The folder of real documents and questions; tests that need it are skipped without it."""
    root = Path(os.environ.get("EVAL_ROOT", _DEFAULT))
    if not root.is_dir():
        pytest.skip(f"no real documents at {root}; set EVAL_ROOT to the folder that has them")
    return root
