"""Errors and messages: an error has a message (what happened), a hint (what to do) and an exit code."""

from __future__ import annotations


class Message(str):
    """A notice or hint for people that names a command or an option, or that programs have to recognise."""

    for_assistant: str
    """Text for a reader that cannot run commands; empty if only the user can do something about it."""
    kind: str
    """Subject of a notice: indexing, language or omitted."""
    refs: tuple[str, ...]
    """References of the omitted results."""

    def __new__(
        cls,
        text: str,
        for_assistant: str | None = None,
        *,
        kind: str = "",
        refs: tuple[str, ...] = (),
    ) -> Message:
        message = super().__new__(cls, text)
        message.for_assistant = text if for_assistant is None else for_assistant
        message.kind, message.refs = kind, refs
        return message


class MarklightError(Exception):
    """Base of all errors of this package."""

    exit_code = 3

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}. {self.hint}" if self.hint else self.message


class UsageError(MarklightError):
    """The call is invalid: a value out of range, an empty query, a missing folder."""

    exit_code = 2


class SettingsError(UsageError):
    """A setting is unknown or has an invalid value."""


class NotConfigured(SettingsError):
    """The feature is off until a setting names what it needs."""


class NotFound(MarklightError):
    """No document, section or passage has this name."""

    exit_code = 1


class StoreError(MarklightError):
    """The index cannot be read or written; nothing was deleted."""


class Busy(StoreError):
    """Another process is writing to this library."""


class ReadOnly(StoreError):
    """This user may search the index but not change it: a role without rights to write, or a replica."""


class ConnectionLost(StoreError):
    """The connection to a server ended during an operation; one that only reads can be repeated."""


class HistoryError(MarklightError):
    """The history of a repository cannot be read."""


class RepositoryOutside(HistoryError):
    """A folder refers git to a repository elsewhere that does not refer back; nothing of it is read or indexed."""


class ModelError(MarklightError):
    """A model is missing, damaged or unsuitable."""


class ModelServerError(ModelError):
    """A model server returns no usable response; keyword search still works."""


class Refused(MarklightError):
    """A file cannot be indexed; the run continues and `status` lists the reason."""


class Stopped(MarklightError):
    """The operation was cancelled; what was done so far is kept."""


class Overloaded(MarklightError):
    """Too many concurrent requests; a later one may succeed."""
