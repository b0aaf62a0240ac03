"""A server that refuses, breaks off, dawdles or answers nonsense."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pytest

from marklight.errors import ModelServerError
from tests.models.remote.opening import opened
from tests.models.serving import Behaviour, serving


def test_a_busy_server_is_asked_again(does: Behaviour, address: str, tmp_path: Path) -> None:
    does.statuses = [429, 503, 500]
    assert opened(address, tmp_path).embed_passages(["a"]).shape == (1, 64)


def test_it_waits_as_long_as_it_is_told_to(
    does: Behaviour, address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = opened(address, tmp_path)
    assert model.dimension
    waited: list[float] = []
    monkeypatch.setattr("time.sleep", waited.append)
    does.statuses, does.retry_after = [429, 503], "2"
    model.embed_passages(["a"])
    assert waited == [2.0, 2.0]


def test_it_does_not_wait_longer_than_it_has(does: Behaviour, address: str, tmp_path: Path) -> None:
    model = opened(address, tmp_path)
    assert model.dimension
    does.statuses, does.retry_after = [429], "3600"
    with pytest.raises(ModelServerError, match="status 429"):
        model.embed_passages(["a"])
    assert not does.statuses


@pytest.mark.parametrize("status", [400, 401, 403, 404, 422])
def test_what_will_not_change_is_asked_once(
    status: int, does: Behaviour, address: str, tmp_path: Path
) -> None:
    model = opened(address, tmp_path)
    assert model.dimension
    before = len(does.requests)
    does.statuses = [status]
    with pytest.raises(ModelServerError, match=f"status {status}.*not now"):
        model.embed_passages(["a"])
    assert len(does.requests) == before + 1


def test_an_answer_that_breaks_off_is_asked_for_again(
    does: Behaviour, address: str, tmp_path: Path
) -> None:
    does.cut_at = [50, 0]
    assert opened(address, tmp_path).embed_passages(["a"]).shape == (1, 64)


def test_a_server_that_is_not_there_is_told_in_one_line(tmp_path: Path) -> None:
    with serving(Behaviour()) as address:
        pass
    with pytest.raises(ModelServerError) as told:
        opened(address, tmp_path, retries=1).embed_passages(["a"])
    said = str(told.value)
    assert f"openai:m at {address} cannot be reached" in said
    assert "--mode keyword" in said
    assert "\n" not in said


@pytest.mark.parametrize("drips", [True, False])
def test_one_that_answers_too_slowly_is_given_up(
    drips: bool, does: Behaviour, address: str, tmp_path: Path
) -> None:
    assert opened(address, tmp_path).dimension  # which is remembered, and asked for in no haste
    model = opened(address, tmp_path, timeout_seconds=0.4, query_seconds=0.4, retries=0)
    if drips:
        does.drip_seconds = 0.01  # 64 numbers are a thousand bytes and more
    else:
        does.waits = threading.Event()
    with pytest.raises(ModelServerError, match="does not respond in time"):
        model.embed_passages(["a"])


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"<!DOCTYPE html><html><body>Welcome</body></html>", "a web page instead of JSON"),
        (b"", "nothing instead of JSON"),
        (b"{", "instead of JSON"),
        (b"[" * 100_000, "instead of JSON"),
        (b"[]", "contains no vectors"),
        (b"null", "contains no vectors"),
        (b'{"data": 3}', "contains no vectors"),
        (b'{"data": [3]}', "contains no vectors"),
        (b'{"data": []}', "0 vectors for 1 texts"),
        (b'{"data": [{"embedding": null}]}', "values that are not vectors"),
        (b'{"data": [{"embedding": []}]}', "values that are not vectors"),
        (b'{"data": [{"embedding": ["1"]}]}', "values that are not vectors"),
        (b'{"data": [{"embedding": "%%%"}]}', "values that are not vectors"),
        (b'{"data": [{"embedding": "QUI="}]}', "values that are not vectors"),
        (b'{"data": [{"embedding": [1, NaN]}]}', "NaN or infinity"),
        (b'{"data": [{"embedding": [1, Infinity]}]}', "NaN or infinity"),
        (b'{"data": [{"embedding": [0, 0]}]}', "zeros"),
        (b'{"data": [{"embedding": [1]}, {"embedding": [1]}]}', "2 vectors for 1 texts"),
        (b'{"data": [{"embedding": [1], "index": 7}]}', "are not 0 to 0"),
        (b'{"data": [{"embedding": [1], "index": null}]}', "are not 0 to 0"),
    ],
)
def test_an_answer_that_is_none_is_told_as_what_it_is(
    body: bytes, said: str, does: Behaviour, address: str, tmp_path: Path
) -> None:
    does.body = body
    with pytest.raises(ModelServerError, match=said) as told:
        opened(address, tmp_path).embed_passages(["a"])
    assert told.value.hint


def test_rows_of_several_lengths_are_refused(does: Behaviour, address: str, tmp_path: Path) -> None:
    model = opened(address, tmp_path)
    assert model.dimension
    does.body = b'{"data": [{"embedding": [1, 2]}, {"embedding": [1]}]}'
    with pytest.raises(ModelServerError, match="different lengths"):
        model.embed_passages(["a", "b"])


def test_huge_numbers_are_brought_to_length_one_without_a_warning(
    does: Behaviour, address: str, tmp_path: Path
) -> None:
    does.body = b'{"data": [{"embedding": [3e300, 4e300]}]}'
    found = opened(address, tmp_path).embed_query("a")
    np.testing.assert_allclose(found, [0.6, 0.8], atol=1e-6)


def test_an_answer_without_end_is_not_read_to_its_end(
    does: Behaviour, address: str, tmp_path: Path
) -> None:
    does.body = b" " * 3_000_000
    with pytest.raises(ModelServerError, match="more than 1200000"):
        opened(address, tmp_path).embed_query("a")
    assert len(does.requests) == 1


def test_another_number_of_numbers_than_before_is_refused_until_it_is_learned_anew(
    does: Behaviour, address: str, tmp_path: Path
) -> None:
    model = opened(address, tmp_path)
    before = model.fingerprint
    does.dimension = 32
    with pytest.raises(ModelServerError, match="32 numbers per vector, not 64 as before") as told:
        model.embed_passages(["a"])
    assert "marklight models verify openai:m" in str(told.value)
    model.learn()
    assert model.embed_passages(["a"]).shape == (1, 32)
    assert model.fingerprint != before
