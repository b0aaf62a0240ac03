"""Identity of a model on a server: fingerprint and stored info."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from marklight.errors import ModelServerError
from marklight.models.remote.embedder import estimate_tokens
from marklight.ports import Embedder
from tests.models.remote.opening import KINDS, opened
from tests.models.serving import Behaviour, serving


@pytest.mark.parametrize("kind", KINDS)
def test_stored_facts_make_opening_free_of_requests(
    kind: str, does: Behaviour, address: str, tmp_path: Path
) -> None:
    first = opened(address, tmp_path, kind)
    known = (first.fingerprint, first.dimension, first.token_limit)
    before = len(does.requests)
    again = opened(address, tmp_path, kind)
    assert (again.fingerprint, again.dimension, again.token_limit) == known
    assert again.token_limit == 2048
    assert len(does.requests) == before


def test_the_fingerprint_does_not_depend_on_the_address(address: str, tmp_path: Path) -> None:
    with serving(Behaviour()) as other:
        assert opened(address, tmp_path).fingerprint == opened(other, tmp_path).fingerprint


@pytest.mark.parametrize("more", [{"query_prefix": "q"}, {"passage_prefix": "p"}, {"dimension": 8}])
def test_what_changes_vectors_changes_the_fingerprint(
    more: dict[str, Any], address: str, tmp_path: Path
) -> None:
    plain, other = opened(address, tmp_path), opened(address, tmp_path, **more)
    assert plain.fingerprint != other.fingerprint


def test_changed_weights_are_detected_before_embedding(
    does: Behaviour, address: str, tmp_path: Path
) -> None:
    first = opened(address, tmp_path, "ollama").fingerprint
    does.digest = "sha256:two"
    model = opened(address, tmp_path, "ollama")
    assert model.fingerprint == first  # asking nothing
    model.embed_passages(["a"])
    assert model.fingerprint != first


def test_an_unreachable_server_still_has_a_fingerprint(tmp_path: Path) -> None:
    with serving(Behaviour()) as address:
        pass
    model = opened(address, tmp_path, query_seconds=1.0)
    assert model.fingerprint == model.fingerprint
    assert model.token_limit == 512
    with pytest.raises(ModelServerError):
        _ = model.dimension


def test_the_settings_can_set_the_token_limit(address: str, tmp_path: Path) -> None:
    assert opened(address, tmp_path, token_limit=100).token_limit == 100


def test_token_estimates_are_rarely_too_low(granite: Embedder) -> None:
    pages = Path(__file__).resolve().parents[3] / "docs"
    texts = [
        part
        for page in sorted(pages.glob("*.md"))
        for part in page.read_text().split("\n\n")
        if len(part) > 200
    ]
    real = granite.count_tokens(texts)
    over = sum(estimate_tokens(text) >= count for text, count in zip(texts, real, strict=True))
    assert len(texts) > 100
    assert over / len(texts) > 0.95
    assert sum(map(estimate_tokens, texts)) < 2 * sum(real)


def test_damaged_or_unwritable_state_is_tolerated(
    does: Behaviour, address: str, tmp_path: Path
) -> None:
    assert opened(address, tmp_path).dimension == 64
    for file in (tmp_path / "models" / "remote").glob("*.json"):
        for bad in (b"{", b"[]", b'{"dimension": -1}', json.dumps({"dimension": "x"}).encode()):
            file.write_bytes(bad)
            assert opened(address, tmp_path).dimension == 64
    blocked = tmp_path / "a file"
    blocked.write_text("")
    assert opened(address, blocked).dimension == 64
    assert os.path.isfile(blocked)
