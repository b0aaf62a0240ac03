"""Layers of settings, later ones win, turned into the fields of the parts they belong to."""

from __future__ import annotations

import dataclasses
import difflib
import re
import tomllib
import types
import typing
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from math import inf, nextafter
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from marklight import bounded_toml
from marklight.errors import SettingsError

SHARED_FILE, SHARED_TABLE = "pyproject.toml", ("tool", "marklight")
"""A file that a folder shares with other programs, and the table in it that is ours."""

Table = Mapping[str, Any]
Part = TypeVar("Part")

ENVIRONMENT_PREFIX = "MARKLIGHT_"
NOT_SETTINGS = frozenset(
    {"MARKLIGHT_CACHE_DIR", "MARKLIGHT_DATA_DIR", "MARKLIGHT_STATE_DIR", "MARKLIGHT_DAEMON"}
)
"""Variables that name folders of this machine, or who does the work, rather than a setting."""


@dataclass(frozen=True, slots=True)
class Layer:
    """Settings from one place; `source` is what an error names."""

    source: str
    values: Table


class Ignored(NamedTuple):
    """A setting in a folder's file that is not honoured."""

    key: str
    value: Any
    source: str
    reason: str
    entry: str = ""
    """Its name in a table of which other entries are honoured; empty for the whole setting."""

    def in_force(self, values: Mapping[str, Any]) -> Any:
        """Return what these values have in its place."""
        return values[self.key].get(self.entry) if self.entry else values[self.key]


@dataclass(frozen=True)
class Settings:
    """All settings in force: a value and its origin for every key of the schema."""

    values: Mapping[str, Any]
    sources: Mapping[str, str]
    ignored: tuple[Ignored, ...] = ()
    """Settings in the folder's file that would change a value and may not."""
    notices: tuple[str, ...] = ()
    """Sentences for the user about a folder's file that is not honoured in full."""

    def build(self, part: type[Part], table: str) -> Part:
        """A part with its own table of settings as fields."""
        prefix = f"{table}." if table else ""
        names = [field.name for field in dataclasses.fields(part)]  # type: ignore[arg-type]
        return part(**{name: self.values[prefix + name] for name in names})

    def __getitem__(self, key: str) -> Any:
        return self.values[key]


ABOVE_ZERO = nextafter(0.0, 1.0)
"""The least number that is more than nothing."""


def demand_within(table: str, part: object, /, **ranges: tuple[float, float]) -> None:
    """Fields of a part are numbers from the first to the second of their range; NaN is in none."""
    for name, (least, most) in ranges.items():
        value = getattr(part, name)
        if not least <= value <= most:
            raise SettingsError(f"{table}.{name} must be {_range(least, most)}, but is {value}")


def _range(least: float, most: float) -> str:
    if most == inf:
        return f"at least {least}"
    return f"above 0 and at most {most}" if least == ABOVE_ZERO else f"{least} to {most}"


_SECRET = re.compile(
    r"[._](api_?)?(key|token|secret|password)(_variable|_command)?$", re.IGNORECASE
)
"""Settings whose value may be a key, or that someone takes for the place of one."""

Schema = Mapping[str, type]
"""Tables by dotted name, each with the dataclass whose fields are its keys."""


def combine(layers: Sequence[Layer], schema: Schema) -> Settings:
    """Lay the layers over the defaults; an unknown key or a value of the wrong kind is an error."""
    values = {
        f"{table}.{field.name}" if table else field.name: _default(field)
        for table, part in schema.items()
        for field in dataclasses.fields(part)
    }
    sources = dict.fromkeys(values, "built-in")
    for layer in layers:
        own = typed_values(layer, schema)
        values |= own
        sources |= dict.fromkeys(own, layer.source)
    return Settings(values, sources)


def typed_values(layer: Layer, schema: Schema) -> dict[str, Any]:
    """Return a layer's values by dotted key, each as its setting's type; an unknown key is an error."""
    kinds = {
        f"{table}.{name}" if table else name: kind
        for table, part in schema.items()
        for name, kind in _kinds(part).items()
    }
    found: dict[str, Any] = {}
    for key, value in _flatten(layer.values, kinds):
        if key not in kinds:
            raise SettingsError(f"unknown setting {key!r} in {layer.source}", _nearest(key, kinds))
        found[key] = _fit(value, kinds[key], key, layer.source)
    return found


@cache
def _kinds(part: type) -> dict[str, Any]:
    """Return the types of a part's fields, without those of its class variables."""
    hints = typing.get_type_hints(part)
    return {field.name: hints[field.name] for field in dataclasses.fields(part)}


def user_file() -> Path:
    """Return the path of the user's own settings file."""
    import platformdirs

    return Path(platformdirs.user_config_dir("marklight", appauthor=False)) / "config.toml"


def from_user_file() -> Iterator[Layer]:
    """Yield the user's own settings, if there are any."""
    file = user_file()
    if file.is_file():
        try:
            data = file.read_bytes()
        except OSError as error:
            raise SettingsError(f"cannot read {file}: {error.strerror}") from error
        yield layer_of(data, file)


def layer_of(data: bytes, path: Path, *table: str) -> Layer:
    """Parse the content of a settings file; `table` is the path of our table in it."""
    try:
        values: Any = bounded_toml.parse(data)
    except (ValueError, RecursionError) as error:
        # Not only TOML's own: a number of 5,000 digits, a thousand lists within each other.
        raise SettingsError(f"{path} is not valid TOML: {error}") from error
    for name in table:
        values = values.get(name, {})
        if not isinstance(values, dict):
            raise SettingsError(f"{name} in {path} must be a table")
    return Layer(str(path), values)


def from_environment(environ: Mapping[str, str], schema: Schema) -> Iterator[Layer]:
    """`MARKLIGHT_SEARCH_RECENCY_STRENGTH=0` and the like; one that fits no setting is an error."""
    keys = {ENVIRONMENT_PREFIX + key.upper().replace(".", "_"): key for key in known_keys(schema)}
    for variable, value in environ.items():
        if not variable.startswith(ENVIRONMENT_PREFIX) or variable in NOT_SETTINGS:
            continue
        if variable not in keys:
            raise SettingsError(
                f"the environment variable {variable} fits no setting", _nearest(variable, keys)
            )
        yield Layer(f"the variable {variable}", nested(keys[variable], Written(value)))


def from_assignments(assignments: Sequence[str]) -> Iterator[Layer]:
    """`--set search.recency.strength=0` and the like."""
    for assignment in assignments:
        key, equals, value = assignment.partition("=")
        if not equals or not key.strip():
            raise SettingsError(f"--set takes KEY=VALUE, not {assignment!r}")
        # Without the value, which may be what must not be shown.
        yield Layer(f"--set {key.strip()}", nested(key.strip(), Written(value.strip())))


def known_keys(schema: Schema) -> list[str]:
    """Every setting by its dotted name, sorted."""
    return sorted(
        f"{table}.{field.name}" if table else field.name
        for table, part in schema.items()
        for field in dataclasses.fields(part)
    )


def nested(key: str, value: Any) -> dict[str, Any]:
    """A dotted key and its value as tables within tables."""
    for name in reversed(key.split(".")):
        value = {name: value}
    return typing.cast(dict[str, Any], value)


def merged(under: Table, over: Table) -> dict[str, Any]:
    """Both, table by table; where they disagree the second has its way."""
    found = dict(under)
    for name, value in over.items():
        below = found.get(name)
        both = isinstance(below, Mapping) and isinstance(value, Mapping)
        found[name] = merged(below, value) if both else value  # type: ignore[arg-type]
    return found


def tables(values: Table) -> dict[str, Any]:
    """The same where some keys are dotted, as `--set` has them."""
    found: dict[str, Any] = {}
    for key, value in values.items():
        found = merged(found, nested(str(key), value))
    return found


class Written(str):
    """A value typed by a person outside TOML: its kind is that of its setting."""


def _default(field: dataclasses.Field[Any]) -> Any:
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return field.default


def _flatten(
    values: Table, kinds: Mapping[str, Any], prefix: str = ""
) -> Iterator[tuple[str, Any]]:
    for name, value in values.items():
        key = f"{prefix}{name}"
        if isinstance(value, Mapping) and key not in kinds:
            if not value and not any(known.startswith(f"{key}.") for known in kinds):
                yield key, value
            yield from _flatten(value, kinds, f"{key}.")
        else:
            yield key, value


def _nearest(key: str, known: Mapping[str, Any]) -> str:
    if secret := _SECRET.search(key):
        table = key[: secret.start()]
        for instead in (f"{table}.key_variable", f"{table}_KEY_VARIABLE"):
            if instead in known:
                return f"Keys are not for settings: name the variable that holds it in {instead}"
    close = difflib.get_close_matches(key, known, n=3, cutoff=0.6)
    if close:
        return f"Did you mean {' or '.join(close)}? `marklight settings` lists all"
    table = key.rpartition(".")[0]
    # At the top stand tables too, and a table that is none was meant for one of them.
    beside = [name for name in known if table and name.rpartition(".")[0] == table] or list(known)
    return f"Known: {', '.join(sorted(beside))}"


def _fit(value: Any, kind: Any, key: str, source: str) -> Any:
    """The value as its setting's type, or an error that says what was expected."""
    try:
        return _convert(value, kind)
    except (TypeError, ValueError, OverflowError, RecursionError):
        shown = "what is given" if _SECRET.search(key) else repr(str(value))
        raise SettingsError(f"{key} must be {_word_for(kind)}, not {shown} ({source})") from None


def _convert(value: Any, kind: Any) -> Any:
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (types.UnionType, typing.Union):
        if value is None or (isinstance(value, Written) and value in ("", "none")):
            return None
        return _convert(value, next(one for one in arguments if one is not type(None)))
    if isinstance(value, Written) and kind is not str:
        value = _parse(value)
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if origin is tuple:
        items = ([value] if value else []) if isinstance(value, str) else value
        if not isinstance(items, (list, tuple)):
            raise TypeError
        return tuple(_convert(item, arguments[0]) for item in items)
    if origin is not None and issubclass(origin, Mapping):
        if not isinstance(value, Mapping):
            raise TypeError
        return {str(name): _convert(item, arguments[1]) for name, item in value.items()}
    if kind is str:
        if not isinstance(value, str):
            raise TypeError
        quoted = isinstance(value, Written) and len(value) > 1 and value[0] == value[-1] in "\"'"
        return str(value)[1:-1] if quoted else str(value)
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise TypeError
    if value != value:  # NaN passes every check of a range that asks what is wrong with it
        raise ValueError
    return value


def _parse(written: str) -> Any:
    try:
        return tomllib.loads(f"value = {written}")["value"]
    except tomllib.TOMLDecodeError:
        return [part.strip() for part in written.split(",")] if "," in written else str(written)


def _word_for(kind: Any) -> str:
    origin = typing.get_origin(kind)
    if origin in (types.UnionType, typing.Union):
        return _word_for(typing.get_args(kind)[0])
    if origin is tuple:
        return "a list of texts"
    if origin is not None:
        return "a table"
    return {bool: "true or false", int: "a whole number", float: "a number", str: "a text"}[kind]
