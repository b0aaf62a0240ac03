"""Short pauses between retries."""

from __future__ import annotations

import pytest

from marklight.models.remote import client


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "FIRST_PAUSE_SECONDS", 0.01)
