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

    def __init__(self, compute: Callable[[Any], Value]) -> None:
        self._compute = compute
        self._name = compute.__name__
        self.__doc__ = compute.__doc__

    @overload
    def __get__(self, instance: None, owner: type) -> once[Value]: ...

    @overload
    def __get__(self, instance: object, owner: type) -> Value: ...

    def __get__(self, instance: object | None, owner: type) -> once[Value] | Value:
        if instance is None:
            return self
        values = instance.__dict__
        with values.setdefault(_LOCK, RLock()):
            if self._name not in values:
                values[self._name] = self._compute(instance)
            value: Value = values[self._name]
            return value


def pop_cached(instance: object, name: str) -> Any:
    """Remove a cached value from its instance and return it, after waiting for its computation; None if there is none."""
    values = instance.__dict__
    with values.setdefault(_LOCK, RLock()):
        return values.pop(name, None)


_LOCK = "_once"
