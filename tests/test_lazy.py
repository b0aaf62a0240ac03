"""Our decorator `dataclass` makes classes that behave like those of the standard library."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from dataclasses import field
from typing import Any

import pytest

from marklight import lazy


@lazy.dataclass(frozen=True, slots=True)
class Point:
    """A frozen class at the top of a module, which can be pickled."""

    x: int
    y: int = 0
    labels: list[str] = field(default_factory=list, compare=False, repr=False)
    unit: str = field(default="mm", kw_only=True)


def variants(**options: Any) -> list[Any]:
    """Return the same class, made by the standard decorator and by ours."""

    def make(decorator: Any) -> Any:
        @decorator(**options)
        class Pair:
            """Two values."""

            left: int
            right: str = "r"
            items: list[int] = field(default_factory=list, compare=False)

            def __post_init__(self) -> None:
                assert self.left is not None

        @decorator(**options)
        class Child(Pair):
            """Another field, and a method of its own."""

            more: tuple[int, ...] = ()

            def __repr__(self) -> str:
                return "child"

        return Pair, Child

    return [make(dataclasses.dataclass), make(lazy.dataclass)]


@pytest.mark.parametrize("slots", [False, True])
@pytest.mark.parametrize("frozen", [False, True])
def test_both_decorators_make_the_same_class(frozen: bool, slots: bool) -> None:
    for expected, actual in zip(*variants(frozen=frozen, slots=slots), strict=True):
        one, other = actual(1, "x"), actual(left=1, right="x", items=[2])
        assert repr(one).rpartition(".")[2] == repr(expected(1, "x")).rpartition(".")[2]
        assert one == other
        assert one != actual(2, "x")
        assert one != expected(1, "x")
        assert one.items == []
        assert one.items is not actual(1, "x").items
        assert dataclasses.replace(one, left=5) == actual(5, "x")
        assert dataclasses.asdict(one) == dataclasses.asdict(expected(1, "x"))
        assert copy.copy(one) == copy.deepcopy(one) == one
        assert actual.__match_args__ == expected.__match_args__
        assert hasattr(one, "__dict__") is hasattr(expected(1), "__dict__")
        with pytest.raises(TypeError, match="missing 1 required positional argument: 'left'"):
            actual()
        with pytest.raises(TypeError, match="unexpected keyword argument 'other'"):
            actual(1, other=2)
        if frozen:
            assert hash(one) == hash(other)
            with pytest.raises(dataclasses.FrozenInstanceError, match="'left'"):
                one.left = 3
            with pytest.raises(dataclasses.FrozenInstanceError, match="'left'"):
                del one.left
        else:
            one.left = 3
            assert one.left == 3
            with pytest.raises(TypeError, match="unhashable"):
                hash(one)


def test_a_class_may_compare_by_identity() -> None:
    (_, (pair, _)) = variants(frozen=True, eq=False)
    assert pair(1) != pair(1)
    assert hash(pair(1)) != hash(pair(1))


def test_instances_are_pickled_before_and_after_the_first_one() -> None:
    point = Point(1, labels=["a"], unit="m")
    again = pickle.loads(pickle.dumps(point))
    assert (again, again.labels) == (point, ["a"])
    assert repr(again) == "Point(x=1, y=0, unit='m')"
    with pytest.raises(TypeError, match="positional"):
        Point(1, 2, [], "m")  # type: ignore[call-arg]
