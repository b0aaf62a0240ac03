"""Shared fixtures of the model tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from marklight.models import load
from marklight.ports import Embedder


@pytest.fixture(scope="session")
def converted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache folder that is filled once for all tests."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="session")
def granite(converted: Path) -> Embedder:
    """The real default model."""
    return load(cache_dir=converted)
