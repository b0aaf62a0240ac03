"""Language models on a server: both APIs, and every way in which a server misbehaves."""

from __future__ import annotations

import re
import time

import pytest

from marklight.errors import ModelServerError, Stopped
from marklight.models.remote import Key, Server, client, generator, parse_server, verify
from marklight.models.remote.generator import RemoteLanguageModel
from marklight.ports import Prompt
from tests.models.chatting import Chat, chatting

PROMPT = Prompt("Answer.", "Why?", 100)


def server(address: str, kind: str = "openai", seconds: float = 10.0, variable: str = "") -> Server:
    kind_, model, shown, base = parse_server("ask", f"{kind}:m", address)
    return Server(
        kind_, model, shown, base, Key("ask", variable), batch_texts=1, timeout_seconds=seconds
    )


def written(address: str, kind: str = "openai") -> str:
    model = RemoteLanguageModel(server(address, kind))
    return "".join(model.generate(PROMPT, lambda: None))


def partly(address: str, kind: str = "openai", seconds: float = 10.0) -> tuple[str, str]:
    """Return the text that was written, and the error that ended it."""
    pieces: list[str] = []
    model = RemoteLanguageModel(server(address, kind, seconds))
    with pytest.raises(ModelServerError) as error:
        pieces.extend(model.generate(PROMPT, lambda: None))
    return "".join(pieces), str(error.value)


@pytest.mark.parametrize("kind", ["openai", "ollama"])
def test_the_response_arrives_as_it_was_written(kind: str) -> None:
    does = Chat("Grüße an 世界 [1].\n")
    with chatting(does) as address:
        assert written(address, kind) == does.reply
    path, given = does.requests[0]
    assert given["model"] == "m"
    assert given["stream"] is True
    assert [each["content"] for each in given["messages"]] == ["Answer.", "Why?"]
    if kind == "openai":
        assert path == "/v1/chat/completions"
        assert given["max_tokens"] == 100
    else:
        assert path == "/api/chat"
        assert given["options"]["num_predict"] == 100
        assert given["options"]["num_ctx"] == 2048


@pytest.mark.parametrize("kind", ["openai", "ollama"])
def test_a_server_that_does_not_stream_is_read_at_once(kind: str) -> None:
    with chatting(Chat("Yes [1].", streams=False)) as address:
        assert written(address, kind) == "Yes [1]."


def test_reasoning_before_the_response_is_dropped() -> None:
    with chatting(Chat("<think>Passage 2 [2].</think>\n\nYes [1].")) as address:
        assert written(address) == "Yes [1]."


def test_a_response_that_is_nothing_but_reasoning_is_an_error() -> None:
    with chatting(Chat("<think>Let me see")) as address:
        text, error = partly(address)
    assert not text
    assert "returned no text" in error


def test_parameters_that_a_model_rejects_are_renamed_or_left_out() -> None:
    does = Chat("Yes.", rejects=("max_tokens", "temperature"))
    with chatting(does) as address:
        assert written(address) == "Yes."
    last = does.requests[-1][1]
    assert last["max_completion_tokens"] == 100
    assert "temperature" not in last


def test_an_overloaded_server_is_tried_again() -> None:
    does = Chat("Yes.", statuses=[429, 503], retry_after="0")
    with chatting(does) as address:
        assert written(address) == "Yes."
    assert len(does.requests) == 3


def test_a_server_that_stays_overloaded_is_an_error_with_its_reason() -> None:
    with chatting(Chat(statuses=[429] * 9, retry_after="0", error="quota used up")) as address:
        text, error = partly(address)
    assert not text
    assert "status 429" in error
    assert "quota used up" in error


@pytest.mark.parametrize("kind", ["openai", "ollama"])
@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ({"cut_after": 2}, "ended the response early|cannot be reached"),
        ({"broken_after": 2}, "not of this API"),
        ({"error_after": 2}, "failed: out of memory"),
        ({"finish": "length"}, "reached the token limit"),
    ],
)
def test_what_was_written_before_a_fault_is_kept(
    kind: str, fault: dict[str, int], reason: str
) -> None:
    with chatting(Chat("Tokens expire. [1]", **fault)) as address:  # type: ignore[arg-type]
        text, error = partly(address, kind)
    assert text
    assert "Tokens expire. [1]".startswith(text)
    assert re.search(reason, error)


def test_an_endless_response_ends_at_the_token_limit() -> None:
    does = Chat("word " * 20, endless=True)
    with chatting(does) as address:
        text, error = partly(address)
        assert does.left.wait(10), "the connection is closed, so that the server stops"
    assert len(text) < 100 * generator.MAX_CHARACTERS_PER_TOKEN + 100
    assert "token limit" in error


def test_an_endless_response_without_text_ends_at_the_time_limit() -> None:
    with chatting(Chat(" ", endless=True, pause_seconds=0.01)) as address:
        _, error = partly(address, seconds=0.5)
    assert "did not finish within" in error


def test_a_silent_server_ends_at_the_time_limit() -> None:
    with chatting(Chat("Yes.", pause_seconds=30)) as address:
        text, error = partly(address, seconds=0.5)
    assert not text
    assert "did not finish" in error or "in time" in error


def test_all_events_together_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generator, "MAX_RESPONSE_BYTES", 2000)
    with chatting(Chat("word " * 1000, piece=1)) as address:
        _, error = partly(address)
    assert "sent more than 2,000 bytes" in error


def test_a_huge_line_is_refused() -> None:
    huge = b'data: {"choices": "' + b"x" * 2_000_000
    with chatting(Chat(body=huge)) as address:
        text, error = partly(address)
    assert not text
    assert "more than 1000000 bytes" in error


@pytest.mark.parametrize(
    ("body", "content_type", "reason"),
    [
        (b"<!doctype html><p>Welcome", "text/html", "a web page instead of JSON"),
        (b"\x89PNG", "image/png", "something else instead of JSON"),
        (b"[1, 2]", "application/json", "not of this API"),
        (b'{"choices": [{"message": {"content": 5}}]}', "application/json", "not of this API"),
        (b"data: []\n\n", "text/event-stream", "not of this API"),
        (b'data: {"choices": [5]}\n\n', "text/event-stream", "not of this API"),
        (b"data: " + b"[" * 100_000 + b"\n\n", "text/event-stream", "not of this API"),
        (b"", "text/event-stream", "ended the response early"),
        (b"data: [DONE]\n\n", "text/event-stream", "returned no text"),
    ],
)
def test_a_response_of_another_kind_is_an_error(
    body: bytes, content_type: str, reason: str
) -> None:
    with chatting(Chat(body=body, content_type=content_type)) as address:
        text, error = partly(address)
    assert not text
    assert reason in error


def test_cancelling_ends_a_response_that_has_not_begun() -> None:
    does = Chat("Yes.", pause_seconds=30)
    started = time.monotonic()

    def check() -> None:
        if does.requests and time.monotonic() > started + 3 * client.POLL_SECONDS:
            raise Stopped("The request was cancelled")

    with chatting(does) as address, pytest.raises(Stopped):
        list(RemoteLanguageModel(server(address)).generate(PROMPT, check))


def test_cancelling_ends_the_pause_before_another_attempt() -> None:
    does = Chat("Yes.", statuses=[429] * 9, retry_after="25")
    checks: list[None] = []

    def check() -> None:
        checks.append(None)
        if does.requests and len(checks) > 5:
            raise Stopped("The request was cancelled")

    with chatting(does) as address, pytest.raises(Stopped):
        list(RemoteLanguageModel(server(address, seconds=60.0)).generate(PROMPT, check))
    assert len(does.requests) == 1


def test_a_key_that_the_server_repeats_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CHAT_KEY", "secret-word")
    does = Chat(key="another")
    with chatting(does) as address:
        model = RemoteLanguageModel(server(address, variable="CHAT_KEY"))
        with pytest.raises(ModelServerError) as error:
            list(model.generate(PROMPT, lambda: None))
    assert does.keys == ["Bearer secret-word"]
    assert "secret-word" not in str(error.value)
    assert "requires a valid API key" in str(error.value)


def test_verification_sends_a_prompt_without_text_of_the_user() -> None:
    does = Chat("Green.")
    with chatting(does) as address:
        assert verify(server(address), "generator") == []
        does.statuses = [404]
        [problem] = verify(server(address), "generator")
    assert "status 404" in problem
    assert does.prompts[0] == "Which colour has grass?"


def test_a_lone_surrogate_in_the_prompt_is_replaced() -> None:
    does = Chat("Yes.")
    with chatting(does) as address:
        model = RemoteLanguageModel(server(address))
        assert "".join(model.generate(PROMPT._replace(text="a\ud800b"), lambda: None)) == "Yes."
    assert does.prompts == ["a?b"]
