"""The key for a server: read from a variable or a command when it is first needed, and never shown."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from threading import Lock

from marklight.errors import ModelServerError, SettingsError

COMMAND_SECONDS = 30.0
"""Time for a command to print the key: some ask a person first."""

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_MAKERS = re.compile(r"(sk|pk|hf|gsk|jina|pa|voyage|xai|nvapi)[-_][\w-]{12}|AIza\w{12}", re.ASCII)
"""How the keys of common makers begin."""
_PRINTERS = ("echo", "printf")
"""Commands that print what they are given: of others a long word may be the name of an entry."""
_LONG = 20
"""Letters and digits in one run, both among them, from which on a word may be a key."""


def looks_like_key(text: str) -> bool:
    """Whether a word may be a key itself: wrongly yes is a line to read, wrongly no a key in a file."""
    return is_of_a_maker(text) or any(
        re.search(r"\d", run) and re.search(r"[A-Za-z]", run)
        for run in re.findall(rf"[A-Za-z0-9]{{{_LONG},}}", text)
    )


def is_of_a_maker(text: str) -> bool:
    """Whether a word begins as the keys of common makers do."""
    return len(text) >= _LONG and bool(_MAKERS.match(text))


class Key:
    """Where a key comes from; itself it stands in no message, no repr and no file."""

    def __init__(self, table: str, variable: str = "", command: str = "") -> None:
        self._table = table
        self._variable, self._command = variable, command
        self._guard = Lock()
        self._read: str | None = None
        if variable and command:
            raise SettingsError(
                f"{table}.key_variable and {table}.key_command are both given", "Keep one of them"
            )
        is_name = _VARIABLE.fullmatch(variable) and not looks_like_key(variable)
        if variable and not is_name and variable not in os.environ:
            raise _refused(table, "key_variable")
        try:
            self._words = shlex.split(command)
        except ValueError as error:
            raise SettingsError(f"{table}.key_command cannot be read: {error}") from None
        prints = bool(self._words) and os.path.basename(self._words[0]) in _PRINTERS
        if any(map(looks_like_key if prints else is_of_a_maker, self._words)):
            raise _refused(table, "key_command")

    def __repr__(self) -> str:
        return f"Key({self._variable or (self._words or ['none'])[0]!r})"

    def header(self) -> dict[str, str]:
        """What a request carries."""
        key = self.read()
        return {"Authorization": f"Bearer {key}"} if key else {}

    def read(self) -> str:
        """The key; empty where none is configured."""
        with self._guard:
            if self._read is None:
                self._read = self._fetch()
            return self._read

    def scrubbed(self, text: str) -> str:
        """A text from elsewhere without the key: servers like to say it back."""
        key = self._read
        return text.replace(key, "…") if key else text

    def _fetch(self) -> str:
        if self._variable:
            found = os.environ.get(self._variable, "").strip()
            where = f"the variable {self._variable} ({self._table}.key_variable)"
        elif self._words:
            found = self._run().strip()
            where = f"what {self._words[0]} prints ({self._table}.key_command)"
        else:
            return ""
        if not found:
            raise ModelServerError(f"{where} is empty", "It must hold the server's key")
        if not found.isascii() or not found.isprintable() or " " in found:
            raise ModelServerError(
                f"{where} is no key", "A key is one word of letters, digits and signs"
            )
        return found

    def _run(self) -> str:
        program = self._words[0]
        called = f"{program} ({self._table}.key_command)"
        try:
            done = subprocess.run(
                self._words,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                timeout=COMMAND_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired:
            # From None: the original holds what was printed so far, which may be the key.
            raise ModelServerError(
                f"{called} took more than {COMMAND_SECONDS:.0f} s", "Try it by hand"
            ) from None
        except OSError as error:
            raise ModelServerError(f"{called} cannot be run: {error.strerror}") from None
        if done.returncode:
            raise ModelServerError(
                f"{called} failed with status {done.returncode}", "Try it by hand"
            )
        return done.stdout.decode("utf-8", "replace")


def _refused(table: str, name: str) -> SettingsError:
    return SettingsError(
        f"{table}.{name} seems to hold the key itself, which is not shown here",
        f"Keys are not for settings: name a variable that holds it in {table}.key_variable, or "
        f"a command that prints it in {table}.key_command; and change a key that stood in a file",
    )
