"""Fetches a model from the hub when the user asks for it: resumable, and checked before it is used."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha1
from http.client import HTTPException, HTTPResponse
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple, TypeVar
from urllib.error import HTTPError, URLError
from urllib.parse import quote
from urllib.request import Request, urlopen

from marklight.errors import ModelError
from marklight.models.folder import CONFIGURATION, file_digest
from marklight.models.record import KNOWN, ModelRecord
from marklight.models.store import check_name, finish, keeping, stored_record
from marklight.ports import Progress, silent

Found = TypeVar("Found")

_BLOCK = 1 << 18
_MODELS = ("onnx/model.onnx", "model.onnx")
_NO_RETRY = {400, 401, 403, 404, 410, 416}


class Remote(NamedTuple):
    """A file on the hub; its digest is a SHA-256, or git's own for small files, or not told."""

    path: str
    size: int | None
    sha256: str
    blob: str


@dataclass(frozen=True, slots=True)
class Hub:
    """A model hub, and how patient we are with it."""

    endpoint: str = ""
    timeout_seconds: float = 30.0
    """Silence for so long ends an attempt: nothing ever hangs."""
    attempts: int = 4
    pause_seconds: float = 2.0
    longest_pause_seconds: float = 60.0

    @property
    def address(self) -> str:
        found = self.endpoint or os.environ.get("HF_ENDPOINT") or "https://huggingface.co"
        return found.rstrip("/")

    @contextmanager
    def get(self, path: str, start: int = 0) -> Iterator[HTTPResponse]:
        """One request; `start` asks for the rest of a file."""
        headers = {"User-Agent": "marklight", "Accept-Encoding": "identity"}
        if start:
            headers["Range"] = f"bytes={start}-"
        request = Request(f"{self.address}/{path}", headers=headers)
        with urlopen(request, timeout=self.timeout_seconds) as response:
            yield response


def pull(
    name: str,
    revision: str | None = None,
    progress: Progress = silent,
    *,
    cache_dir: Path | None = None,
    hub: Hub | None = None,
) -> ModelRecord:
    """Fetch a model by its name on the hub; what is already here is not fetched again."""
    hub, repository = hub or Hub(), KNOWN[name].source if name in KNOWN else name
    check_name(name)
    with keeping(name, cache_dir) as target:
        draft = target.with_name(f".{target.name}.part")
        draft.mkdir(exist_ok=True)
        commit, files = _listing(hub, repository, revision or "main")
        wanted = _wanted(repository, files)
        _drop_others(draft, wanted)
        digests = {}
        for number, file in enumerate(wanted):
            place = f"{quote(repository)}/resolve/{quote(commit, safe='')}/{quote(file.path)}"
            known = _known_digest(name, file)
            digests[file.path] = _fetch(hub, place, file, known, draft, progress)
            progress("files", number + 1, len(wanted))
        weights = {path: sha for path, sha in digests.items() if path not in CONFIGURATION}
        source = {
            "state": "pulled",
            "source": f"{hub.address}/{repository}",
            "revision": commit,
        }
        finish(draft, target, name, weights, source)
    return stored_record(target)


def _known_digest(name: str, file: Remote) -> str:
    record = KNOWN.get(name)
    found = {known.path: known.sha256 for known in record.files} if record else {}
    return found.get(file.path, "") or file.sha256


def _listing(hub: Hub, repository: str, revision: str) -> tuple[str, dict[str, Remote]]:
    """The commit that a revision stands for, and its files: later requests cannot mix two commits."""
    path = f"api/models/{quote(repository)}/revision/{quote(revision, safe='')}?blobs=true"

    def ask() -> dict[str, Any]:
        with hub.get(path) as response:
            found = json.loads(response.read(50_000_000))
        if not isinstance(found, dict):
            raise ValueError("not a mapping")
        return found

    answer = _patiently(hub, repository, ask)
    files = {}
    for entry in answer.get("siblings", []):
        lfs = entry.get("lfs") or {}
        size = lfs.get("size", entry.get("size"))
        files[entry["rfilename"]] = Remote(
            entry["rfilename"], size, str(lfs.get("sha256", "")), str(entry.get("blobId") or "")
        )
    return str(answer.get("sha") or revision), files


def _wanted(repository: str, files: dict[str, Remote]) -> list[Remote]:
    model = next((path for path in _MODELS if path in files), None)
    if model is None or "tokenizer.json" not in files:
        raise ModelError(
            f"{repository} has no ONNX model with a tokenizer.json",
            "Export it with `optimum-cli export onnx`, then: marklight models import FOLDER",
        )
    beside = [path for path in files if path.startswith(model) and path.endswith("data")]
    configuration = [path for path in CONFIGURATION if path in files]
    wanted = (*configuration, "tokenizer.json", *beside, model)
    for path in wanted:
        if not _is_below(path):
            raise ModelError(
                f"{repository} names a file outside of its folder: {path!r}",
                "Nothing was fetched: do not trust this hub",
            )
    return [files[path] for path in wanted]


def _is_below(path: str) -> bool:
    steps = PurePosixPath(path)
    return not (steps.is_absolute() or ".." in steps.parts or "\\" in path or ":" in path)


def _drop_others(draft: Path, wanted: list[Remote]) -> None:
    """What an earlier attempt fetched of another revision, and this one does not have."""
    keep = {draft / file.path for file in wanted}
    keep |= {_part(path) for path in keep}
    for path in draft.rglob("*"):
        if path.is_file() and path not in keep:
            path.unlink()


def _part(path: Path) -> Path:
    return path.with_name(f"{path.name}.part")


def _fetch(hub: Hub, place: str, file: Remote, digest: str, draft: Path, progress: Progress) -> str:
    """The SHA-256 of a file that now lies complete in the draft."""
    target = draft / file.path
    part = _part(target)
    target.parent.mkdir(parents=True, exist_ok=True)
    if target.is_file() and not _is_right(target, file, digest):
        target.unlink()  # Left over from another revision.
    if not target.is_file():
        _patiently(hub, file.path, lambda: _continue(hub, place, file, part, progress))
        if not _is_right(part, file, digest):
            part.unlink()
            raise ModelError(
                f"{file.path} arrived damaged: its digest is not the one that the hub names",
                "Nothing was kept of it; run the command again",
            )
        part.replace(target)
    return file_digest(target)


def _continue(hub: Hub, place: str, file: Remote, part: Path, progress: Progress) -> None:
    """Fetch what is missing of a file; whatever arrives is kept for the next attempt."""
    start = part.stat().st_size if part.exists() else 0
    if file.size is not None and start > file.size:
        part.unlink()
        start = 0
    if start and start == file.size:
        return
    try:
        _receive(hub, place, file, part, start, progress)
    except HTTPError as error:
        if error.code != 416:
            raise
        error.close()
        part.unlink(missing_ok=True)
        raise HTTPException("the part that was kept does not fit; it was dropped") from error


def _receive(
    hub: Hub, place: str, file: Remote, part: Path, start: int, progress: Progress
) -> None:
    with hub.get(place, start) as response:
        whole = response.status != 206 or not str(
            response.headers.get("Content-Range", "")
        ).startswith(f"bytes {start}-")
        if whole:
            start = 0  # The server does not resume.
        length = response.headers.get("Content-Length")
        total = start + int(length) if length else (file.size or 0)
        with part.open("wb" if whole else "ab") as out:
            done = start
            while block := response.read1(_BLOCK):
                out.write(block)
                done += len(block)
                progress(file.path, done, total)
    if total and done < total:
        raise HTTPException(f"the connection ended after {done} of {total} bytes")


def _is_right(path: Path, file: Remote, digest: str) -> bool:
    """Whether a file is the hub's, by the best that the hub tells about it."""
    if digest:
        return file_digest(path) == digest
    if file.blob:
        data = path.read_bytes()
        return sha1(b"blob %d\0" % len(data) + data).hexdigest() == file.blob
    return file.size is None or path.stat().st_size == file.size


def _patiently(hub: Hub, what: str, attempt: Callable[[], Found]) -> Found:
    """Try again after failures that may pass; a refusal is told at once."""
    for left in reversed(range(hub.attempts)):
        pause = hub.pause_seconds * (hub.attempts - left)
        try:
            return attempt()
        except HTTPError as error:
            error.close()
            if error.code in _NO_RETRY or not left:
                raise _refused(hub, what, error.code) from error
            after = error.headers.get("Retry-After") or ""
            pause = float(after) if after.isdecimal() else pause
        except (URLError, HTTPException, TimeoutError, ConnectionError, ValueError) as error:
            if not left:
                reason = getattr(error, "reason", None) or error
                raise ModelError(
                    f"{what} could not be fetched from {hub.address}: {reason}",
                    "What arrived is kept: run the command again to go on. Without a network, "
                    "copy the model's folder here and use: marklight models import FOLDER",
                ) from error
        time.sleep(min(pause, hub.longest_pause_seconds))
    raise AssertionError("the last attempt returns or raises")


def _refused(hub: Hub, what: str, code: int) -> ModelError:
    if code in (401, 403):
        return ModelError(
            f"{hub.address} does not give {what} to everyone ({code})",
            "Download it in a browser, then: marklight models import FOLDER",
        )
    if code == 404:
        return ModelError(f"{hub.address} knows no {what} (404)", "Check the name and the revision")
    if code == 429:
        return ModelError(f"{hub.address} has had too many requests (429)", "Try again later")
    return ModelError(f"{hub.address} answered {code} for {what}", "Try again later")
