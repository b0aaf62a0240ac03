"""Add and remove an entry in a client's configuration file, or the skill file, by atomic replacement with a backup."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from marklight.errors import MarklightError
from marklight.surfaces.setup.config_formats import JSON, JSONC, TOML, Format

BACKUP_SUFFIX = ".before-marklight"
"""Suffix of the backup: the file as it was before our last change."""
BOM = "\ufeff"
MAX_ATTEMPTS = 5
"""Attempts to edit a file that its own program writes meanwhile, as Claude Code often does."""
SKILL = Path(__file__).with_name("SKILL.md")


class CannotEdit(MarklightError):
    """A file cannot be edited without losing some of its content."""


class ChangedMeanwhile(Exception):
    """Another program wrote the file since it was read."""


class Change(NamedTuple):
    """The change made to a file, and its backup."""

    done: str
    """added, changed or removed; empty if nothing had to be done."""
    file: Path
    backup: Path | None = None


class ConfigFile(NamedTuple):
    """A configuration file; with `comments` its program allows comments and trailing commas in JSON."""

    path: Path
    comments: bool = False

    @property
    def format(self) -> Format:
        """Return the syntax of the file."""
        if self.path.suffix == ".toml":
            return TOML
        return JSONC if self.comments else JSON


def read_values(file: ConfigFile) -> dict[str, Any]:
    """Return the values of a configuration file; a file that does not exist has none."""
    try:
        return _parse(file, _decode(file.path, _read(file.path) or b"").removeprefix(BOM))
    except OSError as error:
        raise CannotEdit(f"Cannot read {file.path}: {error.strerror or error}") from None


def put_entry(file: ConfigFile, keys: Sequence[str], entry: Mapping[str, Any]) -> Change:
    """Add or update the entry; keys that the user added to it, such as `env`, are kept."""

    def edit(text: str) -> tuple[str, str]:
        format, values = file.format, _parse(file, text)
        old = _get(file.path, values, keys)
        if not isinstance(old, Mapping) or "command" not in old:
            # None yet, or one with a URL: none of its keys fit a command.
            cleared = text if old is None else format.take(text, keys)
            after = format.put(cleared, keys, entry)
            expected = dict(entry)
        elif (expected := {**old, **entry}) == old:
            return text, ""
        elif format is TOML:
            after = format.put(text, keys, entry)
        else:
            after = text
            for key in entry:
                if key not in old or old[key] != entry[key]:
                    after = format.put(after, (*keys, key), entry[key])
        _check(file, after, _with(values, keys, expected))
        return after, "added" if old is None else "changed"

    return _edit(file.path, edit)


def take_entry(file: ConfigFile, keys: Sequence[str]) -> Change:
    """Remove the entry, and the object around it if that is empty then."""
    *outer, _ = keys

    def edit(text: str) -> tuple[str, str]:
        format, values = file.format, _parse(file, text)
        if _get(file.path, values, keys) is None:
            return text, ""
        after, expected = format.take(text, keys), _with(values, keys, None)
        # TOML needs no statement for the outer table.
        if format is not TOML and _get(file.path, expected, outer) == {}:
            after, expected = format.take(after, outer), _with(expected, outer, None)
        _check(file, after, expected)
        return after, "removed"

    return _edit(file.path, edit)


def entry_text(file: ConfigFile, keys: Sequence[str], entry: Mapping[str, Any]) -> str:
    """Return a file that contains the entry only, to paste into another."""
    return file.format.put("", keys, entry).rstrip("\n")


def write_skill(file: Path) -> Change:
    """Write the skill file; a different file in its place is backed up."""
    content = SKILL.read_bytes()
    try:
        before = _read(file)
        if before == content:
            return Change("", file)
        backup = replace_file(file, before, content)
    except (OSError, ChangedMeanwhile) as error:
        raise CannotEdit(f"Cannot write {file}: {error}", f"Copy {SKILL} there by hand") from None
    return Change("added" if before is None else "changed", file, backup)


def remove_skill(file: Path) -> Change:
    """Remove the skill file, unless the user changed it."""
    before = _read(file)
    if before is None:
        return Change("", file)
    if before != SKILL.read_bytes():
        raise CannotEdit(
            f"Did not remove {file}: it was edited after installation",
            "Delete it by hand if you no longer need it",
        )
    file.unlink()
    with suppress(OSError):  # the folder contains other files
        file.parent.rmdir()
    return Change("removed", file)


def replace_file(file: Path, before: bytes | None, after: bytes) -> Path | None:
    """Replace the content of a file atomically and return the backup of the old content."""
    # A configuration under version control is often a symbolic link, which must stay one.
    real = Path(os.path.realpath(file))
    real.parent.mkdir(parents=True, exist_ok=True)
    if before is None:
        _write(real, after, None, None)
        return None
    status = real.stat()
    if not stat.S_IMODE(status.st_mode) & 0o222:
        # It could be replaced all the same, but its owner made it read-only on purpose.
        raise PermissionError(None, "it is read-only", str(real))
    backup = real.with_name(real.name + BACKUP_SUFFIX)
    _write(backup, before, status, None)
    _write(real, after, status, before)
    return backup


def _write(real: Path, data: bytes, like: os.stat_result | None, before: bytes | None) -> None:
    temporary = real.with_name(f".{real.name}.{os.getpid()}.marklight")
    # Private until it has the permissions of the file it replaces: it may contain secrets.
    opened = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600 if like else 0o666)
    try:
        with open(opened, "wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        if like:
            _copy_permissions(temporary, like)
        if before is not None and _read(real) != before:
            raise ChangedMeanwhile
        os.replace(temporary, real)
    finally:
        with suppress(FileNotFoundError):
            temporary.unlink()


def _copy_permissions(file: Path, like: os.stat_result) -> None:
    if hasattr(os, "chown"):
        with suppress(PermissionError):  # only root may change the owner
            os.chown(file, like.st_uid, like.st_gid)
    file.chmod(stat.S_IMODE(like.st_mode))


def _read(file: Path) -> bytes | None:
    """Return the content of a file, or None if it does not exist."""
    try:
        return file.read_bytes()
    except FileNotFoundError:
        return None


def _edit(file: Path, edit: Callable[[str], tuple[str, str]]) -> Change:
    for _ in range(MAX_ATTEMPTS):
        try:
            before = _read(file)
            text = _decode(file, before or b"")
            mark = BOM if text.startswith(BOM) else ""
            after, done = edit(text.removeprefix(BOM))
            if not done:
                return Change("", file)
            return Change(done, file, replace_file(file, before, (mark + after).encode()))
        except ChangedMeanwhile:
            continue
        except OSError as error:
            raise CannotEdit(f"Cannot change {file}: {error.strerror or error}") from None
    raise CannotEdit(f"Cannot change {file}: another program keeps writing to it")


def _decode(file: Path, data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise CannotEdit(f"Cannot change {file}: it is not UTF-8") from None


def _parse(file: ConfigFile, text: str) -> dict[str, Any]:
    try:
        values = file.format.parse(text)
    except (ValueError, RecursionError) as error:
        comments = file.format is JSON and ("//" in text or "/*" in text)
        name = "TOML" if file.format is TOML else "JSON"
        reason = f"it {'contains comments or ' * comments}is not valid {name}"
        raise CannotEdit(f"Cannot change {file.path}: {reason} ({error})") from None
    if not isinstance(values, dict):
        raise CannotEdit(f"Cannot change {file.path}: it does not contain an object")
    return values


def _get(file: Path, values: dict[str, Any], keys: Sequence[str]) -> Any:
    *outer, last = keys
    for key in outer:
        if key not in values:
            return None
        values = values[key]
        if not isinstance(values, dict):
            raise CannotEdit(f"Cannot change {file}: {key} is not an object")
    return values.get(last)


def _with(values: dict[str, Any], keys: Sequence[str], entry: Any) -> dict[str, Any]:
    """Return the values with `entry` at a path of keys; without that path if it is None."""
    first, *rest = keys
    left = {key: value for key, value in values.items() if key != first or entry is not None}
    if rest:
        return {**values, first: _with(values.get(first, {}), rest, entry)}
    return left if entry is None else {**left, first: entry}


def _check(file: ConfigFile, after: str, expected: dict[str, Any]) -> None:
    """Raise unless the new text has the expected values."""
    try:
        right = file.format.same(file.format.parse(after), expected)
    except ValueError:
        right = False
    if not right:
        raise CannotEdit(
            f"Cannot change {file.path}: the entry cannot be edited automatically without risk to the rest of the file"
        )
