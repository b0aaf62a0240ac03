"""Hostile requests: each gets the right status, leaks nothing and leaves the server working."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import pytest

from marklight.library.configuration import Serve
from tests.making import write
from tests.surfaces.http.attacks import NAME, Attack, attacks
from tests.surfaces.http.serving import PAGES, SECRET, Served, serving

ALL = list(attacks())


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    root = tmp_path_factory.mktemp("attacked")
    folder = write(root / "docs", PAGES)
    write(root, {"secret.md": f"# Secret\n\n{SECRET}\n", "out/secret.md": f"# Out\n\n{SECRET}\n"})
    for link, target in (("link-to-secret.md", "secret.md"), ("folder-out", "out")):
        try:
            (folder / link).symlink_to(root / target)
        except OSError:
            pytest.skip("no symbolic links here")
    with mock.patch.object(Serve, "timeout_seconds", 1.0), serving(folder) as each:
        yield each


def status_of(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1]) if answer else 0


def test_there_are_at_least_one_hundred_attacks() -> None:
    assert len(ALL) >= 100


@pytest.mark.parametrize("attack", ALL, ids=[f"{at}-{each.title}" for at, each in enumerate(ALL)])
def test_an_attack_is_rejected_and_leaks_nothing(served: Served, attack: Attack) -> None:
    answer = served.exchange(attack.sent.replace(NAME, served.name.encode()))
    assert status_of(answer) in attack.allowed, answer[:500]
    assert SECRET.encode() not in answer
    assert b"Traceback" not in answer
    assert b"root:" not in answer
    head, _, body = answer.partition(b"\r\n\r\n")
    if answer:
        assert b"x-content-type-options: nosniff" in head.lower()
        assert b"access-control" not in head.lower()
        assert b"x-evil" not in head.lower()
        # One answer for one request: nothing in it was taken for a second.
        assert answer.count(b"HTTP/1.1 ") == 1
    if body:
        assert set(json.loads(body)["error"]) == {"type", "message", "hint"}


def test_after_all_attacks_searches_work_and_no_document_has_changed(
    served: Served,
) -> None:
    response = served.get("/api/search?q=refresh+token")
    assert response.status == 200
    assert response.json()["results"][0]["path"] == "auth.md"
    folder: Path = served.host.library.place.folder
    assert {path: (folder / path).read_text() for path in PAGES} == PAGES
    assert SECRET not in served.get("/api/search?q=crown+jewels&min_confidence=0").body.decode()
