"""Add and remove an entry in a client's configuration file, or the skill file, by atomic replacement with a backup.

Entries are edited in JSON, JSONC and TOML text; all other text stays byte for byte the same.
JSON: no library keeps indentation, number formats and escapes as they are written.
TOML: tomlkit 0.15 was tried and not used: removing a table deletes the comment above the next one, new lines in a
CRLF file end with LF, and tables that are out of order are moved.
"""

from __future__ import annotations

import json
import os
import re
import stat
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from marklight import platforms
from marklight.errors import MarklightError
from marklight.serialization import unique_keys

_DECODER = json.JSONDecoder()


class JsonFormat:
    """JSON, edited as text; comments and trailing commas (JSONC) are allowed, as many clients do."""

    def parse(self, text: str) -> Any:
        """Return the values; blank text is an empty object."""
        plain = _without_comments(text).plain
        return json.loads(plain, object_pairs_hook=unique_keys) if plain.strip() else {}

    def same(self, first: Any, second: Any) -> bool:
        """Return whether two files have the same values; NaN, which Python parses, equals itself."""
        return json.dumps(first, sort_keys=True) == json.dumps(second, sort_keys=True)

    def put(self, text: str, keys: Sequence[str], value: Any) -> str:
        """Set a value, in the indentation of the file; a new member is the first of its object."""
        if not _without_comments(text).plain.strip():
            above = text.rstrip()
            text = f"{above}\n{{}}\n" if above else "{}\n"
        layout = _JsonLayout(text)
        plain = _without_comments(text).plain
        start = _skip_blanks(plain, 0)
        for depth, key in enumerate(keys, 1):
            members, end = _members(plain, start)
            member = next((member for member in members if member.key == key), None)
            if member is None:
                for outer in reversed(keys[depth:]):
                    value = {outer: value}
                new = f"{layout.line(depth)}{json.dumps(key)}: {layout.dump(value, depth)}"
                rest = text[start + 1 : end]
                if members:
                    new += ","
                elif not rest.strip():
                    rest = layout.line(depth - 1)
                return text[: start + 1] + new + rest + text[end:]
            if depth == len(keys):
                return text[: member.value_start] + layout.dump(value, depth) + text[member.end :]
            start = member.value_start
        raise AssertionError("a path has at least one key")

    def take(self, text: str, keys: Sequence[str]) -> str:
        """Remove a member that exists, with its line and one comma; comments around it stay."""
        without = _without_comments(text)
        start = _skip_blanks(without.plain, 0)
        for key in keys[:-1]:
            inner = _members(without.plain, start)[0]
            start = next(member.value_start for member in inner if member.key == key)
        members, end = _members(without.plain, start)
        number = next(number for number, member in enumerate(members) if member.key == keys[-1])
        member = members[number]
        before = members[number - 1].end if number else start + 1
        after = members[number + 1].start if number + 1 < len(members) else end
        begin = member.start
        while begin > before and text[begin - 1] in " \t":
            begin -= 1
        comma = without.uncommented.find(",", member.end, after)
        # The line break stays if something else follows on the line: it may end a comment.
        alone = not text[max(comma + 1, member.end) :].lstrip(" \t")[:1].strip("\r\n")
        if alone and begin > before and text[begin - 1] == "\n":
            begin -= 2 if text[begin - 2 : begin] == "\r\n" else 1
        if comma >= 0:
            return text[:begin] + text[member.end : comma] + text[comma + 1 :]
        comma = without.uncommented.find(",", before, member.start)
        if comma >= 0:
            return text[:comma] + text[comma + 1 : begin] + text[member.end :]
        rest = text[start + 1 : begin] + text[member.end : end]
        return text[: start + 1] + (rest if rest.strip() else "") + text[end:]


class _Blanked(NamedTuple):
    """A text in which spaces replace what JSON does not allow, so that all offsets stay the same."""

    uncommented: str
    """Without comments."""
    plain: str
    """Without comments and trailing commas."""


_STRING = r'"(?:[^"\\]|\\.)*"'
_COMMENT = re.compile(rf"{_STRING}|//[^\r\n]*|/\*[\s\S]*?\*/")
_TRAILING_COMMA = re.compile(rf"{_STRING}|,(?=\s*[}}\]])")


def _without_comments(text: str) -> _Blanked:
    uncommented = _COMMENT.sub(_blank, text)
    return _Blanked(uncommented, _TRAILING_COMMA.sub(_blank, uncommented))


def _blank(match: re.Match[str]) -> str:
    return match[0] if match[0].startswith('"') else re.sub(r"[^\r\n]", " ", match[0])


class _Member(NamedTuple):
    """Offsets of a member of an object: start of the key, start and end of the value."""

    key: str
    start: int
    value_start: int
    end: int


class _JsonLayout:
    """Line breaks and indentation of a JSON file; both are empty if it is written on one line."""

    def __init__(self, text: str) -> None:
        one_line = "\n" not in text.strip() and len(text.strip()) > len("{}")
        self._newline = "" if one_line else "\r\n" if "\r\n" in text else "\n"
        indented = re.search(r'\n([ \t]+)"', text)
        self._indent = "" if one_line else indented[1] if indented else "  "

    def line(self, depth: int) -> str:
        return self._newline + self._indent * depth

    def dump(self, value: Any, depth: int) -> str:
        text = json.dumps(value, ensure_ascii=False, indent=self._indent or None)
        return text.replace("\n", self.line(depth))


def _members(text: str, start: int) -> tuple[list[_Member], int]:
    """Return the members of the object at `start` and its end; the text is valid JSON."""
    members: list[_Member] = []
    position = _skip_blanks(text, start + 1)
    while text[position] != "}":
        key, end = _DECODER.raw_decode(text, position)
        value_start = _skip_blanks(text, _skip_blanks(text, end) + 1)
        _, end = _DECODER.raw_decode(text, value_start)
        members.append(_Member(key, position, value_start, end))
        position = _skip_blanks(text, end)
        if text[position] == ",":
            position = _skip_blanks(text, position + 1)
    return members, position


def _skip_blanks(text: str, position: int) -> int:
    while text[position : position + 1] in (" ", "\t", "\n", "\r"):
        position += 1
    return position


class TomlFormat:
    """TOML, edited by lines: an entry is a table of its own."""

    def parse(self, text: str) -> Any:
        """Return the values."""
        return tomllib.loads(text)

    def same(self, first: Any, second: Any) -> bool:
        """Return whether two files have the same values; an empty table need not be written."""
        return bool(_without_empty_tables(first) == _without_empty_tables(second))

    def put(self, text: str, keys: Sequence[str], value: Mapping[str, Any]) -> str:
        """Set values in a table: replace its lines for these keys, or append the table."""
        parts = list(_statements(text))
        newline = "\r\n" if "\r\n" in text else "\n"
        # Strings and lists of strings are the same in TOML and JSON, except for DEL.
        pairs = "".join(
            f"{name} = {json.dumps(item, ensure_ascii=False)}{newline}"
            for name, item in value.items()
        )
        lines = pairs.replace("\x7f", "\\u007f")
        tables = (number for number, part in enumerate(parts) if part.table == tuple(keys))
        start = next(tables, None)
        if start is None:
            ended = text if not text or text.endswith("\n") else text + newline
            gap = newline if ended else ""
            return f"{ended}{gap}[{'.'.join(keys)}]{newline}{lines}"
        end = _table_end(parts, start)
        head = parts[start].text
        head = head if head.endswith("\n") else head + newline
        kept = [part for part in parts[start + 1 : end] if not part.values.keys() & value.keys()]
        return _join(parts[:start]) + head + lines + _join(kept) + _join(parts[end:])

    def take(self, text: str, keys: Sequence[str]) -> str:
        """Remove a table and the tables below it."""
        parts = list(_statements(text))
        kept: list[_Statement] = []
        position = 0
        while position < len(parts):
            if parts[position].table[: len(keys)] == tuple(keys):
                # Comments above the next table belong to it: only assignments are removed.
                end = _table_end(parts, position)
                position = 1 + max(n for n in range(position, end) if parts[n].values)
                if kept and not kept[-1].text.strip():
                    kept.pop()
            else:
                kept.append(parts[position])
                position += 1
        return _join(kept)


class _Statement(NamedTuple):
    """The fewest lines that are valid TOML by themselves."""

    text: str
    values: Mapping[str, Any]

    @property
    def opens_table(self) -> bool:
        """Return whether this is the header of a table."""
        return self.text.lstrip().startswith("[")

    @property
    def table(self) -> tuple[str, ...]:
        """Return the keys of the header of a table; empty for other statements."""
        names: list[str] = []
        inner: Any = self.values
        while isinstance(inner, Mapping) and inner:
            names.append(next(iter(inner)))
            inner = inner[names[-1]]
        return tuple(names) if inner == {} and self.opens_table else ()


def _without_empty_tables(value: Any) -> Any:
    if not isinstance(value, Mapping):
        return value
    tables = {key: _without_empty_tables(inner) for key, inner in value.items()}
    return {key: inner for key, inner in tables.items() if inner != {}}


def _statements(text: str) -> Iterator[_Statement]:
    """Split into statements: a multi-line string may contain what looks like a table."""
    lines = re.findall(r"[^\n]*\n|[^\n]+", text)
    begin = 0
    for end in range(1, len(lines) + 1):
        piece = "".join(lines[begin:end])
        try:
            values = tomllib.loads(piece)
        except tomllib.TOMLDecodeError:
            continue
        yield _Statement(piece, values)
        begin = end


def _table_end(parts: Sequence[_Statement], start: int) -> int:
    following = range(start + 1, len(parts))
    return next((number for number in following if parts[number].opens_table), len(parts))


def _join(parts: Sequence[_Statement]) -> str:
    return "".join(part.text for part in parts)


JSON, TOML = JsonFormat(), TomlFormat()


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


class FileChange(NamedTuple):
    """The change made to a file, and its backup."""

    done: str
    """added, changed or removed; empty if nothing had to be done."""
    file: Path
    backup: Path | None = None


def format_of(file: Path) -> JsonFormat | TomlFormat:
    """Return the syntax of a configuration file."""
    return TOML if file.suffix == ".toml" else JSON


def read_values(file: Path) -> dict[str, Any]:
    """Return the values of a configuration file; a file that does not exist has none."""
    try:
        return _parse(file, _decode(file, _read(file) or b"").removeprefix(BOM))
    except OSError as error:
        raise CannotEdit(f"Cannot read {file}: {error.strerror or error}") from None


def put_entry(file: Path, keys: Sequence[str], entry: Mapping[str, Any]) -> FileChange:
    """Add or update the entry; keys that the user added to it, such as `env`, are kept."""

    def edit(text: str) -> tuple[str, str]:
        format, values = format_of(file), _parse(file, text)
        old = _get(file, values, keys)
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

    return _edit(file, edit)


def take_entry(file: Path, keys: Sequence[str]) -> FileChange:
    """Remove the entry, and the object around it if that is empty then."""
    *outer, _ = keys

    def edit(text: str) -> tuple[str, str]:
        format, values = format_of(file), _parse(file, text)
        if _get(file, values, keys) is None:
            return text, ""
        after, expected = format.take(text, keys), _with(values, keys, None)
        # TOML needs no statement for the outer table.
        if format is not TOML and _get(file, expected, outer) == {}:
            after, expected = format.take(after, outer), _with(expected, outer, None)
        _check(file, after, expected)
        return after, "removed"

    return _edit(file, edit)


def entry_text(file: Path, keys: Sequence[str], entry: Mapping[str, Any]) -> str:
    """Return a file that contains the entry only, to paste into another."""
    return format_of(file).put("", keys, entry).rstrip("\n")


def write_skill(file: Path) -> FileChange:
    """Write the skill file; a different file in its place is backed up."""
    content = SKILL.read_bytes()
    try:
        before = _read(file)
        if before == content:
            return FileChange("", file)
        backup = replace_file(file, before, content)
    except (OSError, ChangedMeanwhile) as error:
        raise CannotEdit(f"Cannot write {file}: {error}", f"Copy {SKILL} there by hand") from None
    return FileChange("added" if before is None else "changed", file, backup)


def remove_skill(file: Path) -> FileChange:
    """Remove the skill file, unless the user changed it."""
    before = _read(file)
    if before is None:
        return FileChange("", file)
    if before != SKILL.read_bytes():
        raise CannotEdit(
            f"Did not remove {file}: it was edited after installation",
            "Delete it by hand if you no longer need it",
        )
    file.unlink()
    with suppress(OSError):  # the folder contains other files
        file.parent.rmdir()
    return FileChange("removed", file)


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
        platforms.replace_file(temporary, real)
    finally:
        with suppress(OSError):
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


def _edit(file: Path, edit: Callable[[str], tuple[str, str]]) -> FileChange:
    for _ in range(MAX_ATTEMPTS):
        try:
            before = _read(file)
            text = _decode(file, before or b"")
            mark = BOM if text.startswith(BOM) else ""
            after, done = edit(text.removeprefix(BOM))
            if not done:
                return FileChange("", file)
            return FileChange(done, file, replace_file(file, before, (mark + after).encode()))
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


def _parse(file: Path, text: str) -> dict[str, Any]:
    try:
        values = format_of(file).parse(text)
    except (ValueError, RecursionError) as error:
        name = "TOML" if format_of(file) is TOML else "JSON"
        raise CannotEdit(f"Cannot change {file}: it is not valid {name} ({error})") from None
    if not isinstance(values, dict):
        raise CannotEdit(f"Cannot change {file}: it does not contain an object")
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


def _check(file: Path, after: str, expected: dict[str, Any]) -> None:
    """Raise unless the new text has the expected values."""
    try:
        right = format_of(file).same(format_of(file).parse(after), expected)
    except ValueError:
        right = False
    if not right:
        raise CannotEdit(
            f"Cannot change {file}: the entry cannot be edited automatically without risk to the rest of the file"
        )
