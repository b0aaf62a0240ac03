"""Our entry in a client's configuration file: there, taken out, or refused with nothing changed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from marklight.errors import MarklightError
from marklight.surfaces.setup import files, within_json, within_toml

BOM = "\ufeff"
TRIES = 5
"""How often a file is read again that its own program writes meanwhile: Claude Code does so all the time."""


class ByHand(MarklightError):
    """A file that only its owner can change without losing anything of it."""


class Change(NamedTuple):
    """What was done to a file, and where it is kept as it was before."""

    done: str
    """added, changed, removed; empty where all was as it should be."""
    file: Path
    backup: Path | None = None


def put_entry(file: Path, keys: Sequence[str], entry: Mapping[str, Any]) -> Change:
    """The entry in the file; what a person added to it (variables, time limits) stays."""

    def edit(text: str) -> tuple[str, str]:
        form, values = _read(file, text)
        old = _at(file, values, keys)
        if not isinstance(old, Mapping) or "command" not in old:
            # None yet, or one that is reached by an address: nothing of it goes with a command.
            cleared = text if old is None else form.take(text, keys)
            after = form.put(cleared, keys, entry)
            wanted = dict(entry)
        elif (wanted := {**old, **entry}) == old:
            return text, ""
        else:
            after = form.put(text, keys, wanted if form is within_json else entry)
        _check(file, form, after, _with(values, keys, wanted))
        return after, "added" if old is None else "changed"

    return _edited(file, edit)


def take_entry(file: Path, keys: Sequence[str]) -> Change:
    """The file without the entry, and without what we had made to hold it."""
    *outer, _ = keys

    def edit(text: str) -> tuple[str, str]:
        form, values = _read(file, text)
        if _at(file, values, keys) is None:
            return text, ""
        after, wanted = form.take(text, keys), _with(values, keys, None)
        # In TOML nobody has to write a table that holds others.
        if form is within_json and _at(file, wanted, outer) == {} and _is_ours(file, keys):
            after, wanted = form.take(after, outer), _with(wanted, outer, None)
        _check(file, form, after, wanted)
        return after, "removed"

    return _edited(file, edit)


def _is_ours(file: Path, keys: Sequence[str]) -> bool:
    """Whether there was nothing for entries before ours, as far as the copy of the file tells."""
    *outer, name = keys
    try:
        _, values = _read(file, _decoded(file, files.kept(file) or b"").removeprefix(BOM))
        before = _at(file, values, outer)
    except (ByHand, OSError):
        return False
    # Our own entry alone is there where it was changed since it was put in.
    return before is None or (isinstance(before, dict) and list(before) == [name])


def snippet(file: Path, keys: Sequence[str], entry: Mapping[str, Any]) -> str:
    """The entry as it can be pasted into such a file."""
    return str(_form(file).snippet(keys, entry))


def _edited(file: Path, edit: Callable[[str], tuple[str, str]]) -> Change:
    for _ in range(TRIES):
        try:
            before = files.load(file)
            text = _decoded(file, before or b"")
            mark = BOM if text.startswith(BOM) else ""
            after, done = edit(text.removeprefix(BOM))
            if not done:
                return Change("", file)
            return Change(done, file, files.replace(file, before, (mark + after).encode()))
        except files.Changed:
            continue
        except OSError as error:
            why = error.strerror or str(error)
            raise ByHand(f"{file} cannot be changed: {why}") from None
    raise ByHand(f"{file} is written all the time by another program, so nothing was changed in it")


def _form(file: Path) -> ModuleType:
    return within_toml if file.suffix == ".toml" else within_json


def _decoded(file: Path, data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise ByHand(f"{file} is not written in UTF-8, so nothing was changed in it") from None


def _read(file: Path, text: str) -> tuple[ModuleType, dict[str, Any]]:
    form = _form(file)
    try:
        values = form.parse(text)
    except (ValueError, RecursionError) as error:
        comments = "//" in text or "/*" in text
        why = "has comments, or is broken" if form is within_json and comments else "is broken"
        raise ByHand(f"{file} {why} ({error}), so nothing was changed in it") from None
    if not isinstance(values, dict):
        raise ByHand(f"{file} holds no object, so nothing was changed in it")
    return form, values


def _at(file: Path, values: dict[str, Any], keys: Sequence[str]) -> Any:
    *outer, last = keys
    for key in outer:
        if key not in values:
            return None
        values = values[key]
        if not isinstance(values, dict):
            raise ByHand(f"{key} in {file} holds no entries, so nothing was changed in it")
    return values.get(last)


def _with(values: dict[str, Any], keys: Sequence[str], entry: Any) -> dict[str, Any]:
    """The same values with another at the end of a path of keys; without it for None."""
    first, *rest = keys
    left = {key: value for key, value in values.items() if key != first or entry is not None}
    if rest:
        return {**values, first: _with(values.get(first, {}), rest, entry)}
    return left if entry is None else {**left, first: entry}


def _check(file: Path, form: ModuleType, after: str, wanted: dict[str, Any]) -> None:
    """What would be written says what it should, or nothing is written."""
    try:
        right = form.same(form.parse(after), wanted)
    except ValueError:
        right = False
    if not right:
        raise ByHand(f"{file} is written in a way that we cannot change, so nothing was changed")
