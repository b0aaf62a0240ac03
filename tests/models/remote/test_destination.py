"""Destination of requests: redirects, proxies, certificates."""

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


def test_redirects_within_the_host_are_followed_up_to_a_limit(
    does: Behaviour, address: str, tmp_path: Path
) -> None:
    does.redirect = "/v1/embeddings"
    with pytest.raises(ModelServerError, match="redirects more than 3 times"):
        opened(address, tmp_path).embed_query("a")
    assert len(does.requests) == 4


def test_the_proxy_is_used_except_for_loopback(
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


def test_an_untrusted_certificate_is_rejected_without_a_retry(address: str, tmp_path: Path) -> None:
    with pytest.raises(ModelServerError, match="cannot be reached"):
        opened(address.replace("http:", "https:"), tmp_path, retries=0).embed_query("a")


def test_after_a_timeout_no_process_sends_requests_for_a_while(
    does: Behaviour, address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert opened(address, tmp_path).dimension  # stored, and requested without a time limit
    model = opened(address, tmp_path, query_seconds=1.2, timeout_seconds=1.2)
    does.waits = threading.Event()
    with pytest.raises(ModelServerError, match="in time"):
        model.embed_query("a")
    before = len(does.requests)
    for query in (model, opened(address, tmp_path)):
        with pytest.raises(
            ModelServerError, match=r"in time \(\d+ s ago\). The next attempt is in"
        ):
            query.embed_query("b")
    assert len(does.requests) == before
    does.waits.set()
    other = opened(address, tmp_path)
    other.embed_passages(["indexing tries all the same"])
    other.embed_query("and who answers is asked again")
    opened(address, tmp_path).embed_query("by all")
