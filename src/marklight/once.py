"""A property that is made once, by the first thread that asks for it, while others wait."""

from __future__ import annotations

from collections.abc import Callable
from threading import RLock
from typing import Any, Generic, TypeVar, overload

Value = TypeVar("Value")


class once(Generic[Value]):  # noqa: N801 - used as a decorator, like `property`
    """As `functools.cached_property`, which since Python 3.12 lets two threads make two.

    What was made stands in the instance itself, so asking again takes no lock. One lock for all
    properties of an instance, and the same thread may take it again: they are made of each other.
    """

    def __init__(self, make: Callable[[Any], Value]) -> None:
        self._make = make
        self._name = make.__name__
        self.__doc__ = make.__doc__

    @overload
    def __get__(self, whole: None, owner: type) -> once[Value]: ...

    @overload
    def __get__(self, whole: object, owner: type) -> Value: ...

    def __get__(self, whole: object | None, owner: type) -> once[Value] | Value:
        if whole is None:
            return self
        made = whole.__dict__
        with made.setdefault(_LOCK, RLock()):
            if self._name not in made:
                made[self._name] = self._make(whole)
            value: Value = made[self._name]
            return value


def taken(whole: object, name: str) -> Any:
    """What was made, or is being made right now, taken out of its instance; None where nothing was."""
    made = whole.__dict__
    with made.setdefault(_LOCK, RLock()):
        return made.pop(name, None)


_LOCK = "_once"
