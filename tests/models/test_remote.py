"""A model on a server: what is asked of it, and what its answers become."""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from marklight.errors import ModelError, SettingsError, Unanswered
from marklight.library.chosen import Model
from marklight.library.compose import read_settings
from marklight.models import load
from marklight.models.fake import FakeEmbedder
from marklight.models.remote import client
from marklight.models.remote.embedder import RemoteEmbedder
from marklight.models.remote.tokens import estimate
from marklight.ports import Embedder
from tests.models.serving import Behaviour, serving

FAKE = FakeEmbedder()
KINDS = ("openai", "ollama")


@pytest.fixture
def does() -> Behaviour:
    return Behaviour()


@pytest.fixture
def address(does: Behaviour) -> Iterator[str]:
    with serving(does) as address:
        yield address


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "FIRST_PAUSE_SECONDS", 0.01)


def opened(address: str, cache: Path, kind: str = "openai", **more: Any) -> RemoteEmbedder:
    given: dict[str, Any] = {"timeout_seconds": 5.0, "query_seconds": 5.0, **more}
    server = Model(name=f"{kind}:m", address=address, **given).server
    assert server is not None
    return RemoteEmbedder(server, cache)


# Answers


@pytest.mark.parametrize("kind", KINDS)
def test_its_vectors_are_the_servers_brought_to_length_one(
    kind: str, address: str, tmp_path: Path
) -> None:
    model = opened(address, tmp_path, kind)
    texts = ["the cat sat", "a dog ran"]
    np.testing.assert_allclose(model.embed_passages(texts), FAKE.embed_passages(texts), atol=1e-6)
    np.testing.assert_allclose(model.embed_query("a cat"), FAKE.embed_query("a cat"), atol=1e-6)
    assert (model.name, model.dimension) == (f"{kind}:m", 64)


def test_rows_stand_where_their_numbers_say(does: Behaviour, address: str, tmp_path: Path) -> None:
    does.shuffled = True
    texts = ["one", "two", "three"]
    found = opened(address, tmp_path).embed_passages(texts)
    np.testing.assert_allclose(found, FAKE.embed_passages(texts), atol=1e-6)


def test_vectors_in_base64_are_read_too(does: Behaviour, address: str, tmp_path: Path) -> None:
    does.base64 = True
    found = opened(address, tmp_path).embed_passages(["one", "two"])
    np.testing.assert_allclose(found, FAKE.embed_passages(["one", "two"]), atol=1e-6)


def test_prefixes_are_put_before_questions_and_passages(
    does: Behaviour, address: str, tmp_path: Path
) -> None:
    model = opened(address, tmp_path, query_prefix="Q: ", passage_prefix="P: ")
    model.embed_query("one")
    model.embed_passages(["two"])
    assert [given["input"] for given in does.asked("/v1/embeddings")][-2:] == [
        ["Q: one"],
        ["P: two"],
    ]


def test_requests_are_bounded_by_texts_and_by_characters(
    does: Behaviour, address: str, tmp_path: Path
) -> None:
    model = opened(address, tmp_path, batch_texts=3, batch_characters=20, threads=1)
    texts = ["abcd"] * 4 + ["x" * 18, "y" * 30, "z"]
    found = model.embed_passages(texts)
    sent = [given["input"] for given in does.asked("/v1/embeddings")][1:]
    assert sent == [["abcd"] * 3, ["abcd"], ["x" * 18], ["y" * 30], ["z"]]
    np.testing.assert_allclose(found, FAKE.embed_passages(texts), atol=1e-6)


def test_shorter_vectors_are_asked_for_where_the_settings_want_them(
    does: Behaviour, address: str, tmp_path: Path
) -> None:
    assert opened(address, tmp_path, dimension=16).embed_passages(["a"]).shape == (1, 16)
    does.wrong = _all_of_64
    with pytest.raises(Unanswered, match="gives 64 numbers, not 16"):
        opened(address, tmp_path / "new", dimension=16).embed_query("a")


def _all_of_64(told: Any) -> Any:
    for item in told["data"]:
        item["embedding"] = [1.0] * 64
    return told


def test_connections_are_kept(does: Behaviour, address: str, tmp_path: Path) -> None:
    model = opened(address, tmp_path)
    for number in range(5):
        model.embed_query(f"question {number}")
    assert does.connections == 1


def test_an_empty_text_is_never_sent(does: Behaviour, address: str, tmp_path: Path) -> None:
    opened(address, tmp_path).embed_passages(["", " \n"])
    assert does.asked("/v1/embeddings")[-1]["input"] == [".", "."]


# Who it is


@pytest.mark.parametrize("kind", KINDS)
def test_what_the_server_told_is_remembered_so_that_opening_asks_nothing(
    kind: str, does: Behaviour, address: str, tmp_path: Path
) -> None:
    first = opened(address, tmp_path, kind)
    known = (first.fingerprint, first.dimension, first.token_limit)
    before = len(does.requests)
    again = opened(address, tmp_path, kind)
    assert (again.fingerprint, again.dimension, again.token_limit) == known
    assert again.token_limit == 2048
    assert len(does.requests) == before


def test_the_same_model_elsewhere_has_the_same_fingerprint(address: str, tmp_path: Path) -> None:
    with serving(Behaviour()) as other:
        assert opened(address, tmp_path).fingerprint == opened(other, tmp_path).fingerprint


@pytest.mark.parametrize("more", [{"query_prefix": "q"}, {"passage_prefix": "p"}, {"dimension": 8}])
def test_what_changes_vectors_changes_the_fingerprint(
    more: dict[str, Any], address: str, tmp_path: Path
) -> None:
    plain, other = opened(address, tmp_path), opened(address, tmp_path, **more)
    assert plain.fingerprint != other.fingerprint


def test_other_weights_under_the_same_name_are_noticed_before_passages_are_embedded(
    does: Behaviour, address: str, tmp_path: Path
) -> None:
    first = opened(address, tmp_path, "ollama").fingerprint
    does.digest = "sha256:two"
    model = opened(address, tmp_path, "ollama")
    assert model.fingerprint == first  # asking nothing
    model.embed_passages(["a"])
    assert model.fingerprint != first


def test_a_server_that_never_answered_has_a_name_all_the_same(tmp_path: Path) -> None:
    with serving(Behaviour()) as address:
        pass
    model = opened(address, tmp_path, query_seconds=1.0)
    assert model.fingerprint == model.fingerprint
    assert model.token_limit == 512
    with pytest.raises(Unanswered):
        _ = model.dimension


def test_the_settings_may_say_the_token_limit(address: str, tmp_path: Path) -> None:
    assert opened(address, tmp_path, token_limit=100).token_limit == 100


def test_tokens_are_estimated_rather_too_many_than_too_few(granite: Embedder) -> None:
    pages = Path(__file__).resolve().parents[2] / "docs"
    texts = [
        part
        for page in sorted(pages.glob("*.md"))
        for part in page.read_text().split("\n\n")
        if len(part) > 200
    ]
    real = granite.count_tokens(texts)
    over = sum(estimate(text) >= count for text, count in zip(texts, real, strict=True))
    assert len(texts) > 100
    assert over / len(texts) > 0.95
    assert sum(map(estimate, texts)) < 2 * sum(real)


# Texts that are too long


@pytest.mark.parametrize(
    "refusal",
    [
        (400, "the input length exceeds the context length"),
        (400, "This model's maximum context length is 8192 tokens"),
        (413, "Payload too large"),
        (422, "Input validation error: `inputs` must have less than 512 tokens. Given: 700"),
        (500, "input is too large to process. increase the physical batch size"),
    ],
)
def test_a_text_that_the_server_refuses_as_too_long_is_cut_and_the_others_are_not(
    refusal: tuple[int, str], does: Behaviour, address: str, tmp_path: Path
) -> None:
    does.longest, does.too_long = 300, refusal
    long = "word " * 200
    found = opened(address, tmp_path, retries=0).embed_passages(["one", long, "two", "three"])
    expected = FAKE.embed_passages(["one", long[:250], "two", "three"])
    np.testing.assert_allclose(found, expected, atol=1e-6)


def test_a_server_that_finds_everything_too_long_is_not_asked_for_ever(
    does: Behaviour, address: str, tmp_path: Path
) -> None:
    model = opened(address, tmp_path)
    assert model.dimension == 64
    does.longest = 1
    before = len(does.requests)
    with pytest.raises(Unanswered, match="exceeds the context length"):
        model.embed_passages(["some text that is not long at all " * 4])
    assert len(does.requests) - before < 5


# Refusals and retries


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
    with pytest.raises(Unanswered, match="status 429"):
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
    with pytest.raises(Unanswered, match=f"status {status}.*not now"):
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
    with pytest.raises(Unanswered) as told:
        opened(address, tmp_path, retries=1).embed_passages(["a"])
    said = str(told.value)
    assert f"openai:m at {address} does not answer" in said
    assert "--mode keyword" in said
    assert "\n" not in said


@pytest.mark.parametrize("drips", [True, False])
def test_one_that_answers_too_slowly_is_given_up(
    drips: bool, does: Behaviour, address: str, tmp_path: Path
) -> None:
    model = opened(address, tmp_path, timeout_seconds=0.4, query_seconds=0.4, retries=0)
    assert model.dimension
    if drips:
        does.drip_seconds = 0.01  # 64 numbers are a thousand bytes and more
    else:
        does.waits = threading.Event()
    with pytest.raises(Unanswered, match="does not answer in time"):
        model.embed_passages(["a"])


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"<!DOCTYPE html><html><body>Welcome</body></html>", "a web page, not with JSON"),
        (b"", "nothing, not with JSON"),
        (b"{", "not with JSON"),
        (b"[" * 100_000, "not with JSON"),
        (b"[]", "without vectors"),
        (b"null", "without vectors"),
        (b'{"data": 3}', "without vectors"),
        (b'{"data": [3]}', "without vectors"),
        (b'{"data": []}', "0 vectors for 1 texts"),
        (b'{"data": [{"embedding": null}]}', "something else than vectors"),
        (b'{"data": [{"embedding": []}]}', "something else than vectors"),
        (b'{"data": [{"embedding": ["1"]}]}', "something else than vectors"),
        (b'{"data": [{"embedding": "%%%"}]}', "something else than vectors"),
        (b'{"data": [{"embedding": "QUI="}]}', "something else than vectors"),
        (b'{"data": [{"embedding": [1, NaN]}]}', "no number"),
        (b'{"data": [{"embedding": [1, Infinity]}]}', "no number"),
        (b'{"data": [{"embedding": [0, 0]}]}', "zeros"),
        (b'{"data": [{"embedding": [1]}, {"embedding": [1]}]}', "2 vectors for 1 texts"),
        (b'{"data": [{"embedding": [1], "index": 7}]}', "otherwise than asked"),
        (b'{"data": [{"embedding": [1], "index": null}]}', "otherwise than asked"),
    ],
)
def test_an_answer_that_is_none_is_told_as_what_it_is(
    body: bytes, said: str, does: Behaviour, address: str, tmp_path: Path
) -> None:
    does.body = body
    with pytest.raises(Unanswered, match=said) as told:
        opened(address, tmp_path).embed_passages(["a"])
    assert told.value.hint


def test_rows_of_several_lengths_are_refused(does: Behaviour, address: str, tmp_path: Path) -> None:
    model = opened(address, tmp_path)
    assert model.dimension
    does.body = b'{"data": [{"embedding": [1, 2]}, {"embedding": [1]}]}'
    with pytest.raises(Unanswered, match="several lengths"):
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
    with pytest.raises(Unanswered, match="more than 1200000"):
        opened(address, tmp_path).embed_query("a")
    assert len(does.requests) == 1


def test_another_number_of_numbers_than_before_is_refused_until_it_is_learned_anew(
    does: Behaviour, address: str, tmp_path: Path
) -> None:
    model = opened(address, tmp_path)
    before = model.fingerprint
    does.dimension = 32
    with pytest.raises(Unanswered, match="32 numbers, not 64 as before") as told:
        model.embed_passages(["a"])
    assert "marklight models verify openai:m" in str(told.value)
    model.learn()
    assert model.embed_passages(["a"]).shape == (1, 32)
    assert model.fingerprint != before


# Where it goes


def test_a_redirect_to_another_host_is_not_followed(
    does: Behaviour, address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_KEY", "secret-key-of-the-test")
    other = Behaviour()
    with serving(other) as there:
        does.redirect = f"{there}/v1/embeddings"
        with pytest.raises(Unanswered, match="sends us on to http://127"):
            opened(address, tmp_path, key_variable="MY_KEY").embed_query("a")
    assert not other.requests


def test_a_redirect_within_the_host_is_followed_and_not_for_ever(
    does: Behaviour, address: str, tmp_path: Path
) -> None:
    does.redirect = "/v1/embeddings"
    with pytest.raises(Unanswered, match="again and again"):
        opened(address, tmp_path).embed_query("a")
    assert len(does.requests) == 4


def test_the_proxy_of_the_environment_is_used_but_not_for_this_machine(
    does: Behaviour, address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("no_proxy", "NO_PROXY", "HTTP_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("http_proxy", address)
    with pytest.raises(Unanswered, match=r"status 404.*no such path http://model\.example/v1/emb"):
        opened("http://model.example", tmp_path).embed_query("a")
    with serving(Behaviour()) as other:
        opened(other, tmp_path).embed_query("a")
    assert len(does.requests) == 1


def test_a_certificate_that_nobody_vouches_for_is_refused_at_once(
    address: str, tmp_path: Path
) -> None:
    with pytest.raises(Unanswered, match="does not answer"):
        opened(address.replace("http:", "https:"), tmp_path, retries=0).embed_query("a")


def test_a_server_that_kept_us_waiting_is_left_alone_for_a_while_by_every_process(
    does: Behaviour, address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = opened(address, tmp_path, query_seconds=1.2, timeout_seconds=1.2)
    assert model.dimension
    does.waits = threading.Event()
    with pytest.raises(Unanswered, match="in time"):
        model.embed_query("a")
    before = len(does.requests)
    for asked in (model, opened(address, tmp_path)):
        with pytest.raises(Unanswered, match=r"in time \(\d+ s ago\). It is asked again in"):
            asked.embed_query("b")
    assert len(does.requests) == before
    does.waits.set()
    other = opened(address, tmp_path)
    other.embed_passages(["indexing tries all the same"])
    other.embed_query("and who answers is asked again")
    opened(address, tmp_path).embed_query("by all")


# Keys


def test_the_key_comes_from_a_variable(
    does: Behaviour, address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_KEY", "secret-key-of-the-test\n")
    does.key = "secret-key-of-the-test"
    opened(address, tmp_path, key_variable="MY_KEY").embed_query("a")
    assert set(does.keys) == {"Bearer secret-key-of-the-test"}


def test_the_key_comes_from_a_command_that_no_shell_sees(
    does: Behaviour, address: str, tmp_path: Path
) -> None:
    script = tmp_path / "a command.py"
    script.write_text("import sys; print(sys.argv[1])")
    command = f'"{sys.executable}" "{script}" "$HOME;echo"'
    does.says_key = True
    with pytest.raises(Unanswered, match="refuses our key"):
        opened(address, tmp_path, key_command=command).embed_query("a")
    assert does.keys[-1] == "Bearer $HOME;echo"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"key_variable": "NOT_SET_ANYWHERE"}, "NOT_SET_ANYWHERE .* is empty"),
        ({"key_command": "no-such-program-anywhere show"}, "cannot be run"),
        ({"key_command": f"{sys.executable} -c exit(3)"}, "status 3"),
        ({"key_command": f'{sys.executable} -c "print(str(1) + chr(10) + str(2))"'}, "is no key"),
    ],
)
def test_a_key_that_cannot_be_had_is_told_before_anything_is_sent(
    given: dict[str, str], said: str, does: Behaviour, address: str, tmp_path: Path
) -> None:
    with pytest.raises(ModelError, match=said):
        opened(address, tmp_path, **given).embed_query("a")
    assert not does.requests


def test_a_key_that_a_server_repeats_is_not_repeated_by_us(
    does: Behaviour, address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_KEY", "secret-key-of-the-test")
    does.says_key = True
    model = opened(address, tmp_path, key_variable="MY_KEY")
    with pytest.raises(Unanswered) as told:
        model.embed_query("a")
    assert "wrong key: Bearer …" in str(told.value)
    assert "secret" not in repr(model) + repr(model.server) + str(told.value)


@pytest.mark.parametrize(
    "given",
    [
        {"key_variable": "sk-proj-abcdefghijklmnop123456"},
        {"key_variable": "hf_AbCdEfGhIjKlMnOpQr"},
        {"key_command": "echo sk-proj-abcdefghijklmnop123456"},
        {"key_command": "sk-proj-abcdefghijklmnop123456"},
        {"key_command": "/bin/echo 0123456789abcdef01234567"},
        {"key_command": "keeper --key=x sk-proj-abcdefghijklmnop123456"},
        {"address": "https://me:secret@example.com"},
        {"address": "https://example.com/v1?api_key=abcdef"},
        {"api_key": "abcdef"},
        {"key": "abcdef"},
        {"key_variable": ["abcdef"]},
    ],
)
def test_a_key_in_the_settings_is_refused_and_not_shown(given: dict[str, Any]) -> None:
    (name, value), *_ = given.items()
    with pytest.raises(SettingsError) as told:
        read_settings(None, given={"model": {"name": "openai:m", "address": "http://h", **given}})
    assert str(value) not in str(told.value)
    assert "key_variable" in str(told.value)
    written = value if isinstance(value, str) else value[0]
    with pytest.raises(SettingsError) as told:
        read_settings(None, ["model.name=openai:m", f"model.{name}={written}"])
    assert written not in str(told.value)


@pytest.mark.parametrize(
    "given",
    [
        {"key_variable": "OPENAI_API_KEY_OF_THE_SECOND_TEAM_2"},
        {"key_variable": "hf_token"},
        {"key_command": "op read op://Private/abcdefghij1234567890klmnop/credential"},
        {"key_command": "pass show openai/key-2"},
    ],
)
def test_names_of_variables_and_of_entries_are_not_taken_for_keys(given: dict[str, str]) -> None:
    read_settings(None, given={"model": {"name": "ollama:m", **given}})


# Settings


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"name": "openai:"}, "names no model"),
        ({"name": "openai:m"}, "model.address is missing"),
        ({"name": "ollama:m", "address": "example"}, "no address"),
        ({"name": "ollama:m", "address": "ftp://example.com"}, "no address"),
        ({"name": "ollama:m", "address": "http://h:99999"}, "no address"),
        ({"name": "ollama:m", "address": "http://[::1"}, "no address"),
        ({"name": "ollama:m", "key_variable": "A", "key_command": "b"}, "both given"),
        ({"name": "ollama:m", "key_command": '"'}, "cannot be read"),
        ({"retries": -1}, "model.retries"),
        ({"timeout_seconds": 0.0}, "model.timeout_seconds"),
        ({"batch_texts": 0}, "model.batch_texts"),
        ({"token_limit": 3}, "model.token_limit"),
    ],
)
def test_settings_that_make_no_sense_are_refused(given: dict[str, Any], said: str) -> None:
    with pytest.raises(SettingsError, match=said):
        read_settings(None, given={"model": given})


@pytest.mark.parametrize(
    ("name", "address", "base"),
    [
        ("ollama:m", "", "http://127.0.0.1:11434"),
        ("ollama:m", "http://h:1/", "http://h:1"),
        ("openai:m", "http://h:1", "http://h:1/v1"),
        ("openai:m", "http://h:1/v1/", "http://h:1/v1"),
        ("openai:m", "https://h/v1beta/openai", "https://h/v1beta/openai"),
    ],
)
def test_an_address_is_taken_as_people_write_it(name: str, address: str, base: str) -> None:
    server = Model(name=name, address=address).server
    assert server is not None
    assert server.base == base


@pytest.mark.parametrize(
    "table",
    [
        'address = "http://192.168.1.5:11434"',
        'address = "https://example.com"\nkey_variable = "HOME"',
        'key_command = "touch it"',
    ],
)
def test_a_folder_does_not_decide_what_leaves_this_machine_nor_what_is_run(
    table: str, tmp_path: Path
) -> None:
    (tmp_path / "marklight.toml").write_text(f'[model]\nname = "ollama:m"\n{table}\n')
    with pytest.raises(SettingsError, match=r"config\.toml.*MARKLIGHT_MODEL_"):
        read_settings(tmp_path)


def test_a_folder_may_name_a_server_on_this_machine(tmp_path: Path) -> None:
    given = '[model]\nname = "ollama:m"\naddress = "http://127.0.0.1:9"\nkey_variable = "K"\n'
    (tmp_path / "marklight.toml").write_text(given)
    assert read_settings(tmp_path)["model.address"] == "http://127.0.0.1:9"


def test_a_folder_does_not_send_a_key_of_the_user_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "marklight.toml").write_text('[model]\naddress = "https://example.com"\n')
    environ = {"MARKLIGHT_MODEL_NAME": "openai:m", "MARKLIGHT_MODEL_KEY_VARIABLE": "MY_KEY"}
    with pytest.raises(SettingsError, match="must not decide"):
        read_settings(tmp_path, environ=environ)


def test_a_server_that_the_settings_do_not_name_is_never_asked() -> None:
    with pytest.raises(ModelError, match="name no server for ollama:m"):
        load("ollama:m")
    other = Model(name="ollama:other").server
    with pytest.raises(ModelError, match="name no server for ollama:m"):
        load("ollama:m", server=other)


def test_what_is_remembered_may_be_damaged_or_impossible_to_keep(
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
