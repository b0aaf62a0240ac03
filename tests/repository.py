"""Create git repositories for tests."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.making import write

needs_git = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")


class Repository:
    """A repository whose commits have known authors and dates, a day apart."""

    def __init__(self, folder: Path, *options: str) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.day = 0
        self.git("init", "--quiet", "--initial-branch=main", *options)

    def git(self, *arguments: str, given: bytes | None = None, **more: str) -> str:
        own = {
            "GIT_CONFIG_GLOBAL": os.devnull,
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_AUTHOR_NAME": "Ada Lovelace",
            "GIT_AUTHOR_EMAIL": "ada@example.org",
            "GIT_COMMITTER_NAME": "Charles",
            "GIT_COMMITTER_EMAIL": "charles@example.org",
        }
        done = subprocess.run(
            ["git", "-C", str(self.folder), *arguments],
            input=given,
            capture_output=True,
            check=True,
            env={**os.environ, **own, **more},
        )
        return done.stdout.decode("utf-8", "replace").strip()

    def commit(
        self,
        message: str | bytes,
        files: Mapping[str, str | bytes] | None = None,
        author: str = "Ada Lovelace <ada@example.org>",
        date: str = "",
    ) -> str:
        """Write these files, commit everything and return the hash."""
        self.day += 1
        write(self.folder, files or {})
        self.git("add", "--all")
        when = date or f"2026-01-{self.day:02}T12:00:00+00:00"
        name, _, email = author.rstrip(">").partition(" <")
        content = message if isinstance(message, bytes) else message.encode()
        self.git(
            *("commit", "--quiet", "--allow-empty", "--allow-empty-message", "--file=-"),
            given=content,
            GIT_AUTHOR_NAME=name,
            GIT_AUTHOR_EMAIL=email,
            GIT_AUTHOR_DATE=when,
            GIT_COMMITTER_DATE=when,
        )
        return self.git("rev-parse", "HEAD")
