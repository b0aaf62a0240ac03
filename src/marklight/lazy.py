"""Dataclasses and regular expressions that are compiled on first use, not while a module is imported, and cached properties.

`dataclasses.dataclass` generates and compiles the source of six methods of a frozen class, 0.7 ms; a search imports a
hundred of them, and that took a quarter of `marklight search --mode keyword`. Here `__init__` is compiled when the
first instance is made, and the other methods are ordinary functions. Type checkers see the standard functions.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from operator import attrgetter
from threading import RLock
from typing import TYPE_CHECKING, Any, Generic, NoReturn, TypeVar, overload

__all__ = ["dataclass", "lazy_pattern", "once", "pop_cached"]

Value = TypeVar("Value")
_LOCK = "_once"

if TYPE_CHECKING:
    from dataclasses import dataclass
    from re import compile as lazy_pattern
else:

    def dataclass(
        cls: type | None = None, /, *, frozen: bool = False, eq: bool = True, slots: bool = False
    ) -> Any:
        """Return the class as a dataclass; the options are those of `dataclasses.dataclass`."""
        if cls is None:
            return lambda cls: dataclass(cls, frozen=frozen, eq=eq, slots=slots)
        # The standard decorator collects the fields and makes the slots.
        cls = dataclasses.dataclass(init=False, repr=False, eq=False, slots=slots)(cls)
        methods: dict[str, Any] = {"__init__": _first_init(cls, frozen), "__repr__": _repr}
        if eq:
            compared = tuple(field.name for field in dataclasses.fields(cls) if field.compare)
            values = attrgetter(*compared) if compared else type
            methods["__eq__"] = _eq(values)
            methods["__hash__"] = (lambda self: hash(values(self))) if frozen else None
        if frozen:
            methods |= {"__setattr__": _refuse, "__delattr__": _refuse, "__setstate__": _restore}
        for name, method in methods.items():
            if name not in cls.__dict__:
                setattr(cls, name, method)
        return cls

    class lazy_pattern:  # noqa: N801 - used like the function `re.compile`
        """A regular expression, compiled on first use, with the attributes of `re.Pattern`."""

        def __init__(self, source: str, flags: re.RegexFlag = re.NOFLAG) -> None:
            self.pattern = source
            self._flags = flags

        def __getattr__(self, name: str) -> Any:
            if name.startswith("__"):
                raise AttributeError(name)
            # The attribute is kept, so the next access is as fast as that of a compiled expression.
            value = self.__dict__[name] = getattr(re.compile(self.pattern, self._flags), name)
            return value


def _first_init(cls: type, frozen: bool) -> Callable[..., None]:
    """Return an initialiser that replaces itself by a compiled one."""

    def __init__(self: object, *args: Any, **kwargs: Any) -> None:  # noqa: N807
        cls.__init__ = _compile_init(cls, frozen)  # type: ignore[misc]
        cls.__init__(self, *args, **kwargs)  # type: ignore[misc]

    return __init__


def _compile_init(cls: type, frozen: bool) -> Callable[..., None]:
    """Compile `__init__` from the fields, as `dataclasses` does."""
    scope: dict[str, Any] = {"_set": object.__setattr__, "_missing": dataclasses.MISSING}
    positional, named, body = ["self"], list[str](), list[str]()
    for field in dataclasses.fields(cls):
        if not field.init:
            continue  # `__post_init__` sets it
        name = parameter = value = field.name
        if field.default is not dataclasses.MISSING:
            scope[f"_default_{name}"] = field.default
            parameter = f"{name}=_default_{name}"
        elif field.default_factory is not dataclasses.MISSING:
            scope[f"_default_{name}"] = field.default_factory
            parameter = f"{name}=_missing"
            value = f"_default_{name}() if {name} is _missing else {name}"
        (named if field.kw_only else positional).append(parameter)
        member = getattr(cls, name, None) if name in getattr(cls, "__slots__", ()) else None
        if frozen and member is not None:  # twice as fast as `object.__setattr__`
            scope[f"_set_{name}"] = member.__set__
            body.append(f"_set_{name}(self, {value})")
        else:
            body.append(f"_set(self, {name!r}, {value})" if frozen else f"self.{name} = {value}")
    if hasattr(cls, "__post_init__"):
        body.append("self.__post_init__()")
    parameters = ", ".join([*positional, *(["*", *named] if named else [])])
    exec(f"def __init__({parameters}):\n " + "\n ".join(body or ["pass"]), scope)
    init: Callable[..., None] = scope["__init__"]
    init.__qualname__ = f"{cls.__qualname__}.__init__"
    return init


def _repr(self: Any) -> str:
    shown = (field.name for field in dataclasses.fields(self) if field.repr)
    values = ", ".join(f"{name}={getattr(self, name)!r}" for name in shown)
    return f"{type(self).__qualname__}({values})"


def _eq(values: Callable[[object], object]) -> Callable[[object, object], bool]:
    def __eq__(self: object, other: object) -> bool:  # noqa: N807
        if other.__class__ is not self.__class__:
            return NotImplemented
        return values(self) == values(other)

    return __eq__


def _refuse(self: object, name: str, *_: object) -> NoReturn:
    raise dataclasses.FrozenInstanceError(f"cannot change {name!r} of {type(self).__name__}")


def _restore(self: object, state: Any) -> None:
    """Set the attributes of a copy or of an unpickled instance, which `object.__getstate__` returned."""
    values, slots = state if isinstance(state, tuple) else (state, None)
    for name, value in {**(values or {}), **(slots or {})}.items():
        object.__setattr__(self, name, value)


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
