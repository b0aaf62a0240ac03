"""Servers that reject, disconnect, stall or return invalid responses."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pytest

from marklight.errors import ModelServerError
from tests.models.remote.opening import opened
from tests.models.serving import Behaviour, serving


def test_a_busy_server_is_retried(does: Behaviour, address: str, tmp_path: Path) -> None:
    does.statuses = [429, 503, 500]
    assert opened(address, tmp_path).embed_passages(["a"]).shape == (1, 64)


def test_retry_after_is_honoured(
    does: Behaviour, address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = opened(address, tmp_path)
    assert model.dimension
    waited: list[float] = []
    monkeypatch.setattr("time.sleep", waited.append)
    does.statuses, does.retry_after = [429, 503], "2"
    model.embed_passages(["a"])
    assert waited == [2.0, 2.0]


def test_a_pause_beyond_the_time_limit_fails_at_once(
    does: Behaviour, address: str, tmp_path: Path
) -> None:
    model = opened(address, tmp_path)
    assert model.dimension
    does.statuses, does.retry_after = [429], "3600"
    with pytest.raises(ModelServerError, match="status 429"):
        model.embed_passages(["a"])
    assert not does.statuses


@pytest.mark.parametrize("status", [400, 401, 403, 404, 422])
def test_permanent_errors_are_not_retried(
    status: int, does: Behaviour, address: str, tmp_path: Path
) -> None:
    model = opened(address, tmp_path)
    assert model.dimension
    before = len(does.requests)
    does.statuses = [status]
    with pytest.raises(ModelServerError, match=f"status {status}.*not now"):
        model.embed_passages(["a"])
    assert len(does.requests) == before + 1


def test_an_incomplete_response_is_retried(does: Behaviour, address: str, tmp_path: Path) -> None:
    does.cut_at = [50, 0]
    assert opened(address, tmp_path).embed_passages(["a"]).shape == (1, 64)


def test_an_unreachable_server_is_reported_in_one_line(tmp_path: Path) -> None:
    with serving(Behaviour()) as address:
        pass
    with pytest.raises(ModelServerError) as raised:
        opened(address, tmp_path, retries=1).embed_passages(["a"])
    message = str(raised.value)
    assert f"openai:m at {address} cannot be reached" in message
    assert "--mode keyword" in message
    assert "\n" not in message


@pytest.mark.parametrize("drips", [True, False])
def test_a_slow_response_times_out(
    drips: bool, does: Behaviour, address: str, tmp_path: Path
) -> None:
    assert opened(address, tmp_path).dimension  # stored, and requested without a time limit
    model = opened(address, tmp_path, timeout_seconds=0.4, query_seconds=0.4, retries=0)
    if drips:
        does.drip_seconds = 0.01  # 64 numbers are a thousand bytes and more
    else:
        does.waits = threading.Event()
    with pytest.raises(ModelServerError, match="does not respond in time"):
        model.embed_passages(["a"])


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"<!DOCTYPE html><html><body>Welcome</body></html>", "a web page instead of JSON"),
        (b"", "nothing instead of JSON"),
        (b"{", "instead of JSON"),
        (b"[" * 100_000, "not of this API"),
        (b"[]", "not of this API"),
        (b"null", "not of this API"),
        (b'{"data": 3}', r"not of this API: .*\$.data"),
        (b'{"data": [3]}', "not of this API"),
        (b'{"data": []}', "0 vectors for 1 texts"),
        (b'{"data": [{"embedding": null}]}', "not of this API"),
        (b'{"data": [{"embedding": []}]}', "vectors without numbers"),
        (b'{"data": [{"embedding": ["1"]}]}', "not of this API"),
        (b'{"data": [{"embedding": "QUI="}]}', "not of this API"),
        (b'{"data": [{"embedding": [1, NaN]}]}', "instead of JSON"),
        (b'{"data": [{"embedding": [1, Infinity]}]}', "instead of JSON"),
        (b'{"data": [{"embedding": [0, 0]}]}', "zeros"),
        (b'{"data": [{"embedding": [1]}, {"embedding": [1]}]}', "2 vectors for 1 texts"),
        (b'{"data": [{"embedding": [1], "index": 7}]}', "are not 0 to 0"),
        (b'{"data": [{"embedding": [1], "index": "0"}]}', "not of this API"),
        (b'{"data": [{"embedding": [1e999]}]}', "instead of JSON|not of this API"),
    ],
)
def test_an_invalid_response_is_reported_precisely(
    body: bytes, message: str, does: Behaviour, address: str, tmp_path: Path
) -> None:
    does.body = body
    with pytest.raises(ModelServerError, match=message) as raised:
        opened(address, tmp_path).embed_passages(["a"])
    assert raised.value.hint


def test_rows_of_different_lengths_are_rejected(
    does: Behaviour, address: str, tmp_path: Path
) -> None:
    model = opened(address, tmp_path)
    assert model.dimension
    does.body = b'{"data": [{"embedding": [1, 2]}, {"embedding": [1]}]}'
    with pytest.raises(ModelServerError, match="different lengths"):
        model.embed_passages(["a", "b"])


def test_huge_numbers_are_normalised_without_a_warning(
    does: Behaviour, address: str, tmp_path: Path
) -> None:
    does.body = b'{"data": [{"embedding": [3e300, 4e300]}]}'
    found = opened(address, tmp_path).embed_query("a")
    np.testing.assert_allclose(found, [0.6, 0.8], atol=1e-6)


def test_an_oversized_response_is_not_read_to_its_end(
    does: Behaviour, address: str, tmp_path: Path
) -> None:
    does.body = b" " * 3_000_000
    with pytest.raises(ModelServerError, match="more than 1200000"):
        opened(address, tmp_path).embed_query("a")
    assert len(does.requests) == 1


def test_a_changed_dimension_is_rejected_until_facts_are_read_again(
    does: Behaviour, address: str, tmp_path: Path
) -> None:
    model = opened(address, tmp_path)
    before = model.fingerprint
    does.dimension = 32
    with pytest.raises(ModelServerError, match="32 numbers per vector, not 64 as before") as raised:
        model.embed_passages(["a"])
    assert "marklight models verify openai:m" in str(raised.value)
    model.learn()
    assert model.embed_passages(["a"]).shape == (1, 32)
    assert model.fingerprint != before
