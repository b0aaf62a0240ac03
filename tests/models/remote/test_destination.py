"""Where requests go, and where they must not."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from marklight.errors import ModelServerError
from tests.models.remote.opening import opened
from tests.models.serving import Behaviour, serving


def test_a_redirect_to_another_host_is_not_followed(
    does: Behaviour, address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_KEY", "secret-key-of-the-test")
    other = Behaviour()
    with serving(other) as there:
        does.redirect = f"{there}/v1/embeddings"
        with pytest.raises(ModelServerError, match="redirects to http://127"):
            opened(address, tmp_path, key_variable="MY_KEY").embed_query("a")
    assert not other.requests


def test_a_redirect_within_the_host_is_followed_and_not_for_ever(
    does: Behaviour, address: str, tmp_path: Path
) -> None:
    does.redirect = "/v1/embeddings"
    with pytest.raises(ModelServerError, match="redirects more than 3 times"):
        opened(address, tmp_path).embed_query("a")
    assert len(does.requests) == 4


def test_the_proxy_of_the_environment_is_used_but_not_for_this_machine(
    does: Behaviour, address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("no_proxy", "NO_PROXY", "HTTP_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("http_proxy", address)
    with pytest.raises(
        ModelServerError, match=r"status 404.*no such path http://model\.example/v1/emb"
    ):
        opened("http://model.example", tmp_path).embed_query("a")
    with serving(Behaviour()) as other:
        opened(other, tmp_path).embed_query("a")
    assert len(does.requests) == 1


def test_a_certificate_that_nobody_vouches_for_is_refused_at_once(
    address: str, tmp_path: Path
) -> None:
    with pytest.raises(ModelServerError, match="cannot be reached"):
        opened(address.replace("http:", "https:"), tmp_path, retries=0).embed_query("a")


def test_a_server_that_kept_us_waiting_is_left_alone_for_a_while_by_every_process(
    does: Behaviour, address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert opened(address, tmp_path).dimension  # which is remembered, and asked for in no haste
    model = opened(address, tmp_path, query_seconds=1.2, timeout_seconds=1.2)
    does.waits = threading.Event()
    with pytest.raises(ModelServerError, match="in time"):
        model.embed_query("a")
    before = len(does.requests)
    for asked in (model, opened(address, tmp_path)):
        with pytest.raises(
            ModelServerError, match=r"in time \(\d+ s ago\). The next attempt is in"
        ):
            asked.embed_query("b")
    assert len(does.requests) == before
    does.waits.set()
    other = opened(address, tmp_path)
    other.embed_passages(["indexing tries all the same"])
    other.embed_query("and who answers is asked again")
    opened(address, tmp_path).embed_query("by all")
