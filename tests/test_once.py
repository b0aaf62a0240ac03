"""Once means once, whoever asks and however many at a time."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from marklight.once import once, taken


class House:
    def __init__(self) -> None:
        self.built: list[str] = []

    @once
    def cellar(self) -> object:
        """Below."""
        self.built.append("cellar")
        time.sleep(0.02)  # long enough for every other thread to ask as well
        return object()

    @once
    def roof(self) -> tuple[object, object]:
        return self.cellar, object()

    @once
    def ruin(self) -> object:
        self.built.append("ruin")
        raise OSError("no money")


def test_many_threads_get_one_and_the_same() -> None:
    house = House()
    with ThreadPoolExecutor(8) as threads:
        roofs = list(threads.map(lambda _: house.roof, range(16)))
        cellars = list(threads.map(lambda _: house.cellar, range(16)))
    assert house.built == ["cellar"]
    assert len({*map(id, roofs)}) == 1
    assert {id(roofs[0][0])} == {*map(id, cellars)}


def test_each_instance_has_its_own() -> None:
    assert House().cellar is not House().cellar


def test_what_failed_is_tried_again() -> None:
    house = House()
    for _ in range(2):
        with pytest.raises(OSError, match="no money"):
            _ = house.ruin
    assert house.built == ["ruin", "ruin"]


def test_what_is_being_made_is_awaited_and_taken_out() -> None:
    house = House()
    with ThreadPoolExecutor(1) as threads:
        cellar = threads.submit(lambda: house.cellar)
        while not house.built:
            time.sleep(0.001)
        assert taken(house, "cellar") is cellar.result()
    assert taken(house, "cellar") is None
    assert house.cellar is not cellar.result()


def test_the_class_shows_what_it_says() -> None:
    assert House.cellar.__doc__ == "Below."
