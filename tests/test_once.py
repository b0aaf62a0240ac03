"""A cached property is computed once, however many threads read it."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from marklight.lazy import once, pop_cached


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


def test_many_threads_get_the_same_value() -> None:
    house = House()
    with ThreadPoolExecutor(8) as threads:
        roofs = list(threads.map(lambda _: house.roof, range(16)))
        cellars = list(threads.map(lambda _: house.cellar, range(16)))
    assert house.built == ["cellar"]
    assert len({*map(id, roofs)}) == 1
    assert {id(roofs[0][0])} == {*map(id, cellars)}


def test_each_instance_has_its_own_value() -> None:
    assert House().cellar is not House().cellar


def test_a_failed_computation_is_repeated() -> None:
    house = House()
    for _ in range(2):
        with pytest.raises(OSError, match="no money"):
            _ = house.ruin
    assert house.built == ["ruin", "ruin"]


def test_removing_a_value_waits_for_its_computation() -> None:
    house = House()
    with ThreadPoolExecutor(1) as threads:
        cellar = threads.submit(lambda: house.cellar)
        while not house.built:
            time.sleep(0.001)
        assert pop_cached(house, "cellar") is cellar.result()
    assert pop_cached(house, "cellar") is None
    assert house.cellar is not cellar.result()


def test_the_class_attribute_has_the_docstring() -> None:
    assert House.cellar.__doc__ == "Below."
