"""Layered settings: read files, environment variables and `--set`, convert them to the types of a schema, build dataclasses.

Later layers win. The schema is a set of dataclasses, one for each table; their fields are the keys.
"""

from __future__ import annotations

import dataclasses
import re
import typing
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from math import inf, nextafter
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from marklight.errors import SettingsError
from marklight.lazy import dataclass
from marklight.private_files import config_folder

SHARED_FILE, SHARED_TABLE = "pyproject.toml", ("tool", "marklight")
"""A settings file that a folder shares with other programs, and the path of our table in it."""

Table = Mapping[str, Any]
Part = TypeVar("Part")

ENVIRONMENT_PREFIX = "MARKLIGHT_"
NOT_SETTINGS = frozenset(
    {"MARKLIGHT_CACHE_DIR", "MARKLIGHT_DATA_DIR", "MARKLIGHT_STATE_DIR", "MARKLIGHT_DAEMON"}
)
"""Environment variables with our prefix that are not settings: folders of this machine, use of the daemon."""

BUILT_IN = "built-in"
"""The source of a default value."""

ABOVE_ZERO = nextafter(0.0, 1.0)
"""The smallest positive number: a lower bound that excludes zero."""


@dataclass(frozen=True, slots=True)
class Within:
    """Inclusive bounds of a numeric setting: `strength: Annotated[float, Within(0, 10)] = 1.0`.

    `Settings.build` checks them. None passes, NaN does not.
    """

    least: float
    most: float = inf

    def __str__(self) -> str:
        if self.most == inf:
            return f"at least {self.least}"
        if self.least == ABOVE_ZERO:
            return f"above 0 and at most {self.most}"
        return f"{self.least} to {self.most}"

    def check(self, key: str, value: float | None) -> None:
        """Raise `SettingsError` if the value of a setting is out of bounds."""
        if value is not None and not self.least <= value <= self.most:
            raise SettingsError(f"{key} must be {self}, but is {value}")


@dataclass(frozen=True, slots=True)
class Layer:
    """Settings from one source; error messages name the source."""

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
        """Return the value that is in force in its place."""
        return values[self.key].get(self.entry) if self.entry else values[self.key]


@dataclass(frozen=True)
class Settings:
    """All settings in force: a value and its source for every key of the schema."""

    values: Mapping[str, Any]
    sources: Mapping[str, str]
    ignored: tuple[Ignored, ...] = ()
    """Settings in the folder's file that are not honoured and would change a value."""
    notices: tuple[str, ...] = ()
    """Sentences for the user about settings in the folder's file that are ignored."""

    def build(self, part: type[Part], table: str) -> Part:
        """Build a dataclass from its table of settings; raise `SettingsError` for a number out of bounds."""
        prefix = f"{table}." if table else ""
        values: dict[str, Any] = {}
        for name, (_, bounds) in _fields(part).items():  # type: ignore[arg-type]
            values[name] = self.values[prefix + name]
            for within in bounds:
                within.check(prefix + name, values[name])
        return part(**values)

    def is_changed(self, table: str) -> bool:
        """Return true if any layer sets a key of a table."""
        prefix = f"{table}."
        return any(
            source != BUILT_IN for key, source in self.sources.items() if key.startswith(prefix)
        )

    def __getitem__(self, key: str) -> Any:
        return self.values[key]


_SECRET = re.compile(
    r"[._](api_?)?(key|token|secret|password)(_variable|_command)?$", re.IGNORECASE
)
"""Names of settings whose value may be a secret, or that a user may mistake for the place of one."""

Schema = Mapping[str, type]
"""Tables by dotted name, each with the dataclass whose fields are its keys."""


def combine(layers: Sequence[Layer], schema: Schema) -> Settings:
    """Merge the layers over the defaults; raise `SettingsError` for an unknown key or a value of the wrong type."""
    values = {
        f"{table}.{field.name}" if table else field.name: field.default
        if field.default_factory is dataclasses.MISSING
        else field.default_factory()
        for table, part in schema.items()
        for field in dataclasses.fields(part)
    }
    sources = dict.fromkeys(values, BUILT_IN)
    for layer in layers:
        typed = typed_layer(layer, schema)
        values |= typed.values
        sources |= dict.fromkeys(typed.values, typed.source)
    return Settings(values, sources)


def typed_layer(layer: Layer, schema: Schema) -> Layer:
    """Return a layer with its values by dotted key, converted to the types of their settings.

    Raise `SettingsError` for an unknown key or a value of the wrong type.
    """
    kinds = {
        f"{table}.{name}" if table else name: kind
        for table, part in schema.items()
        for name, (kind, _) in _fields(part).items()
    }
    values: dict[str, Any] = {}
    for key, value in _flatten(layer.values, kinds):
        if key not in kinds:
            raise SettingsError(f"Unknown setting {key!r} in {layer.source}", _nearest(key, kinds))
        values[key] = _fit(value, kinds[key], key, layer.source)
    return Layer(layer.source, values)


@cache
def _fields(part: type) -> dict[str, tuple[Any, list[Within]]]:
    """Return the types of a dataclass's fields, without annotations, and their bounds."""
    hints = typing.get_type_hints(part, include_extras=True)
    annotated = ((each.name, hints[each.name]) for each in dataclasses.fields(part))
    return {
        name: (hint.__origin__, [item for item in hint.__metadata__ if isinstance(item, Within)])
        if typing.get_origin(hint) is typing.Annotated
        else (hint, [])
        for name, hint in annotated
    }


def user_file() -> Path:
    """Return the path of the user's own settings file."""
    return config_folder() / "config.toml"


def from_user_file() -> Iterator[Layer]:
    """Yield the settings of the user's own file, if it exists."""
    file = user_file()
    if file.is_file():
        try:
            data = file.read_bytes()
        except OSError as error:
            raise SettingsError(f"Cannot read {file}: {error.strerror}") from error
        yield layer_of(data, file)


def layer_of(data: bytes, path: Path, *table: str) -> Layer:
    """Parse the content of a settings file; `table` is the path of our table in it."""
    try:
        from marklight.toml_values import parse

        values: Any = parse(data)
    except (ValueError, RecursionError) as error:
        # Not only TOML's own errors: a number of 5,000 digits, a thousand nested lists.
        raise SettingsError(f"{path} is not valid TOML: {error}") from error
    for name in table:
        values = values.get(name, {})
        if not isinstance(values, dict):
            raise SettingsError(f"{name} in {path} must be a table")
    return Layer(str(path), values)


def from_environment(environ: Mapping[str, str], schema: Schema) -> Iterator[Layer]:
    """Yield a layer for each variable such as `MARKLIGHT_SEARCH_RECENCY_STRENGTH=0`.

    Raise `SettingsError` for a variable with our prefix that matches no setting.
    """
    keys = {ENVIRONMENT_PREFIX + key.upper().replace(".", "_"): key for key in known_keys(schema)}
    for variable in sorted(environ):
        if not variable.startswith(ENVIRONMENT_PREFIX) or variable in NOT_SETTINGS:
            continue
        key = keys.get(variable)
        if key is None:
            raise SettingsError(
                f"The environment variable {variable} matches no setting", _nearest(variable, keys)
            )
        from marklight.toml_values import Written, nested

        yield Layer(f"the variable {variable}", nested(key, Written(environ[variable])))


def from_assignments(assignments: Sequence[str]) -> Iterator[Layer]:
    """Yield a layer for each assignment such as `search.recency.strength=0`, as `--set` takes them."""
    for assignment in assignments:
        key, equals, value = assignment.partition("=")
        if not equals or not key.strip():
            raise SettingsError(f"--set takes KEY=VALUE, not {assignment!r}")
        # Without the value, which may be a secret.
        from marklight.toml_values import Written, nested

        yield Layer(f"--set {key.strip()}", nested(key.strip(), Written(value.strip())))


def known_keys(schema: Schema) -> list[str]:
    """Return the dotted name of every setting, sorted."""
    return sorted(
        f"{table}.{field.name}" if table else field.name
        for table, part in schema.items()
        for field in dataclasses.fields(part)
    )


def _flatten(
    values: Table, kinds: Mapping[str, Any], prefix: str = ""
) -> Iterator[tuple[str, Any]]:
    """Yield dotted keys and their values; a table that is one setting stays whole."""
    for name, value in values.items():
        key = f"{prefix}{name}"
        if isinstance(value, Mapping) and key not in kinds:
            if not value and not any(setting.startswith(f"{key}.") for setting in kinds):
                yield key, value
            yield from _flatten(value, kinds, f"{key}.")
        else:
            yield key, value


def _nearest(key: str, known: Mapping[str, Any]) -> str:
    """Return a hint with the known names that are most similar to an unknown one."""
    if secret := _SECRET.search(key):
        table = key[: secret.start()]
        for instead in (f"{table}.key_variable", f"{table}_KEY_VARIABLE"):
            if instead in known:
                return f"Keys do not belong in settings: put the key into an environment variable and its name into {instead}"
    import difflib

    close = difflib.get_close_matches(key, known, n=3, cutoff=0.6)
    if close:
        return f"Did you mean {' or '.join(close)}? `marklight settings` lists all"
    table = key.rpartition(".")[0]
    # Keys of other tables are compared only for an unknown table.
    beside = [name for name in known if table and name.rpartition(".")[0] == table] or list(known)
    similar = difflib.get_close_matches(key, beside, n=5, cutoff=0)
    return f"The most similar settings are {', '.join(similar)}. `marklight settings` lists all"


def _fit(value: Any, kind: Any, key: str, source: str) -> Any:
    """Return the value as its setting's type; raise an error that names the expected type."""
    from marklight.toml_values import convert, type_name

    try:
        return convert(value, kind)
    except (TypeError, ValueError, OverflowError, RecursionError):
        shown = "the given value" if _SECRET.search(key) else repr(str(value))
        raise SettingsError(f"{key} must be {type_name(kind)}, not {shown} ({source})") from None
