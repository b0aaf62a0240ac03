"""Shared fixtures of the model tests."""

from __future__ import annotations

import pytest

from marklight.models import load
from marklight.ports import Embedder


@pytest.fixture(scope="session")
def granite() -> Embedder:
    """The real default model."""
    return load()
