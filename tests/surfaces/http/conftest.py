"""No model but those that a test brings: what the user has pulled must not answer here."""

from __future__ import annotations

from collections.abc import Iterator

import pytest


@pytest.fixture(scope="package", autouse=True)
def no_models(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MARKLIGHT_DATA_DIR", str(tmp_path_factory.mktemp("data")))
        yield
