"""What several tests of stages stand on."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from marklight.models.fake import FakeEmbedder
from marklight.ports import Tools
from tests.making import library, write
from tests.search.building import PAGES


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tools]:
    folder = write(tmp_path_factory.mktemp("docs"), PAGES)
    with library(folder) as lib:
        lib.index()
        with lib.engine.snapshot() as snapshot:
            yield Tools(snapshot, FakeEmbedder())
