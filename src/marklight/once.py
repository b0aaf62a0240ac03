"""Thread-safe cached property: computed once, by the first thread that reads it, while others wait."""

from __future__ import annotations

from collections.abc import Callable
from threading import RLock
from typing import Any, Generic, TypeVar, overload

Value = TypeVar("Value")


class once(Generic[Value]):  # noqa: N801 - used as a decorator, like `property`
    """A cached property; `functools.cached_property` since Python 3.12 lets two threads compute it twice.

    The value is stored in the instance, so reading it again takes no lock. All properties of an instance share one
    re-entrant lock, since they may depend on each other.
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
    """Remove a cached value from its instance and return it, after waiting for its computation; None if there is none."""
    made = whole.__dict__
    with made.setdefault(_LOCK, RLock()):
        return made.pop(name, None)


_LOCK = "_once"
