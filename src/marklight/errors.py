"""What can go wrong, each with what to do next."""

from __future__ import annotations


class MarklightError(Exception):
    """Root of all our errors: what happened, and a hint what to do."""

    exit_code = 3

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}. {self.hint}" if self.hint else self.message


class UsageError(MarklightError):
    """The call itself is wrong: a value out of range, an empty query, a missing folder."""

    exit_code = 2


class SettingsError(UsageError):
    """A setting is unknown or has a value of the wrong kind."""


class NotFound(MarklightError):
    """Nothing answers to this name."""

    exit_code = 1


class StoreError(MarklightError):
    """The index cannot be read or written; nothing was thrown away."""


class Busy(StoreError):
    """Another process is writing to this library."""


class HistoryError(MarklightError):
    """The history of a repository cannot be read."""


class RepositoryOutside(HistoryError):
    """A folder leads git to a repository elsewhere that does not name the folder; nothing of it is read or kept."""


class ModelError(MarklightError):
    """A model is missing, damaged or does not fit."""


class ModelServerError(ModelError):
    """A model's server gives no usable answer; what needs no model still works."""


class Refused(MarklightError):
    """One file cannot be indexed; the run goes on and `status` lists the reason."""


class Stopped(MarklightError):
    """Nobody waits for this any more; what was done so far is kept."""


class Overloaded(MarklightError):
    """Too many ask at once; later there is room again."""
