"""Which changed files tell nothing of a commit's meaning: others' code, lock files, what programs wrote."""

from __future__ import annotations

import re

from marklight.ingest.history import git

_FOLDERS = re.compile(
    r"(?:^|/)(?:node_modules|bower_components|jspm_packages|vendor|vendored|third[_-]?party|Pods"
    r"|site-packages|\.venv|__pycache__|\.yarn)/",
    re.IGNORECASE,
)
_FILES = re.compile(
    r"(?:^|/)(?:package-lock\.json|npm-shrinkwrap\.json|yarn\.lock|pnpm-lock\.ya?ml|bun\.lockb?|deno\.lock"
    r"|Cargo\.lock|poetry\.lock|uv\.lock|pdm\.lock|Pipfile\.lock|Gemfile\.lock|composer\.lock|go\.sum"
    r"|flake\.lock|mix\.lock|pubspec\.lock|Podfile\.lock|gradle\.lockfile|packages\.lock\.json)$"
    r"|\.min\.(?:js|css|mjs)$|\.(?:map|svg|ipynb)$|\.pb\.(?:go|cc|h)$|_pb2(?:_grpc)?\.pyi?$|\.bundle\.js$"
    r"|-min\.(?:js|css)$|\.snap$",
    re.IGNORECASE,
)
_ATTRIBUTES = ("linguist-generated", "linguist-vendored")
"""By which a repository says it itself, as on code hosts."""


def vendored(path: str) -> bool:
    """By its name alone."""
    return bool(_FOLDERS.search(path) or _FILES.search(path))


class Telling:
    """Which paths of a repository tell something, each found out once."""

    def __init__(self, place: git.Location) -> None:
        self._place = place
        self._known: dict[bytes, bool] = {}
        self._asked: git.Stream | None = None

    def __call__(self, path: bytes) -> bool:
        if path not in self._known:
            named = vendored(path.decode("utf-8", "replace"))
            self._known[path] = not named and not self._marked(path)
        return self._known[path]

    def _marked(self, path: bytes) -> bool:
        """Whether `.gitattributes` calls it generated or vendored; not where git cannot tell."""
        if self._asked is None:
            self._asked = git.Stream(self._place, "check-attr", "--stdin", "-z", *_ATTRIBUTES)
        self._asked.send(path + b"\0")
        said = b""
        while said.count(b"\0") < 3 * len(_ATTRIBUTES):
            more = self._asked.read()
            if not more:
                return False
            said += more
        return any(value in (b"set", b"true") for value in said.split(b"\0")[2::3])

    def close(self) -> None:
        """Let go of the git that was asked."""
        if self._asked:
            self._asked.close()
            self._asked = None
