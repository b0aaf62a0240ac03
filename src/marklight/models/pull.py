"""Download a model from the hub: resumable, with retries, and verified before use."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from hashlib import sha1
from http.client import HTTPException, HTTPResponse
from pathlib import Path, PurePosixPath
from typing import TypeVar
from urllib.error import HTTPError, URLError
from urllib.parse import quote
from urllib.request import Request, urlopen

import msgspec
from msgspec import Struct, field

from marklight.errors import ModelError
from marklight.lazy import dataclass
from marklight.models.record import KNOWN, ModelRecord
from marklight.models.store import (
    CONFIGURATION,
    MODEL_FILES,
    check_name,
    check_tokenizers,
    file_digest,
    finish,
    locked_place,
    stored_record,
)
from marklight.ports import Progress, no_progress

Result = TypeVar("Result")

_BLOCK_BYTES = 1 << 18
_NO_RETRY = {400, 401, 403, 404, 410, 416}


class LargeFile(Struct):
    """Entry of the hub for a file that is stored outside git (LFS)."""

    size: int | None = None
    sha256: str = ""


class HubFile(Struct):
    """A file on the hub; its digest is a SHA-256, or git's own for small files, or unknown."""

    path: str = field(name="rfilename")
    listed_size: int | None = field(name="size", default=None)
    blob: str | None = field(name="blobId", default=None)
    lfs: LargeFile | None = None

    @property
    def size(self) -> int | None:
        return self.lfs.size if self.lfs else self.listed_size


class Listing(Struct):
    """The files of a revision, and its commit."""

    sha: str = ""
    siblings: list[HubFile] = []


@dataclass(frozen=True, slots=True)
class Hub:
    """A model hub, with timeouts and retries."""

    endpoint: str = ""
    timeout_seconds: float = 30.0
    """An attempt ends after this many seconds without data, so nothing hangs."""
    attempts: int = 4
    pause_seconds: float = 2.0
    longest_pause_seconds: float = 60.0

    @property
    def address(self) -> str:
        address = self.endpoint or os.environ.get("HF_ENDPOINT") or "https://huggingface.co"
        return address.rstrip("/")

    @contextmanager
    def get(self, path: str, start: int = 0) -> Iterator[HTTPResponse]:
        """Send one request; with `start` for the rest of a file."""
        headers = {"User-Agent": "marklight", "Accept-Encoding": "identity"}
        if start:
            headers["Range"] = f"bytes={start}-"
        request = Request(f"{self.address}/{path}", headers=headers)
        with urlopen(request, timeout=self.timeout_seconds) as response:
            yield response


def pull(
    name: str,
    revision: str | None = None,
    progress: Progress = no_progress,
    *,
    cache_dir: Path | None = None,
    hub: Hub | None = None,
) -> ModelRecord:
    """Download a model by its name on the hub; parts that were downloaded before are reused."""
    hub, known = hub or Hub(), KNOWN.get(name)
    repository = known.source if known else name
    published = {file.path: file.sha256 for file in known.files} if known else {}
    check_name(name)
    check_tokenizers(name)
    with locked_place(name, cache_dir) as target:
        draft = target.with_name(f".{target.name}.part")
        draft.mkdir(exist_ok=True)
        commit, files = _listing(hub, repository, revision or "main")
        wanted = _wanted(repository, files)
        _delete_others(draft, wanted)
        digests = {}
        for number, file in enumerate(wanted):
            place = f"{quote(repository)}/resolve/{quote(commit, safe='')}/{quote(file.path)}"
            sha256 = published.get(file.path) or (file.lfs.sha256 if file.lfs else "")
            digests[file.path] = _fetch(hub, place, file, sha256, draft, progress)
            progress("files", number + 1, len(wanted))
        weights = {path: sha for path, sha in digests.items() if path not in CONFIGURATION}
        source = {"state": "pulled", "source": f"{hub.address}/{repository}", "revision": commit}
        finish(draft, target, name, weights, source)
    return stored_record(target)


def _listing(hub: Hub, repository: str, revision: str) -> tuple[str, dict[str, HubFile]]:
    """Return the commit of a revision and its files, so that later requests cannot mix two commits."""
    path = f"api/models/{quote(repository)}/revision/{quote(revision, safe='')}?blobs=true"

    def request() -> Listing:
        with hub.get(path) as response:
            return msgspec.json.decode(response.read(50_000_000), type=Listing)

    listing = _with_retries(hub, repository, request)
    return listing.sha or revision, {file.path: file for file in listing.siblings}


def _wanted(repository: str, files: dict[str, HubFile]) -> list[HubFile]:
    model = next((path for path in MODEL_FILES[:2] if path in files), None)
    if model is None or "tokenizer.json" not in files:
        raise ModelError(
            f"{repository} has no ONNX model with a tokenizer.json",
            "Export it with `optimum-cli export onnx`, then: marklight models import FOLDER",
        )
    beside = [path for path in files if path.startswith(model) and path.endswith("data")]
    configuration = [path for path in CONFIGURATION if path in files]
    wanted = (*configuration, "tokenizer.json", *beside, model)
    for path in wanted:
        steps = PurePosixPath(path)
        if steps.is_absolute() or ".." in steps.parts or "\\" in path or ":" in path:
            raise ModelError(
                f"{repository} lists a file outside of its folder: {path!r}",
                "Nothing was downloaded; do not trust this hub",
            )
    return [files[path] for path in wanted]


def _delete_others(draft: Path, wanted: list[HubFile]) -> None:
    """Delete files of an earlier attempt that this revision does not contain."""
    keep = {draft / file.path for file in wanted}
    keep |= {_part(path) for path in keep}
    for path in draft.rglob("*"):
        if path.is_file() and path not in keep:
            path.unlink()


def _part(path: Path) -> Path:
    return path.with_name(f"{path.name}.part")


def _fetch(
    hub: Hub, place: str, file: HubFile, digest: str, draft: Path, progress: Progress
) -> str:
    """Download a file into the draft, verify it, and return its SHA-256."""
    target = draft / file.path
    part = _part(target)
    target.parent.mkdir(parents=True, exist_ok=True)
    if target.is_file() and not _is_complete(target, file, digest):
        target.unlink()  # left over from another revision
    if not target.is_file():
        _with_retries(hub, file.path, lambda: _continue(hub, place, file, part, progress))
        if not _is_complete(part, file, digest):
            with suppress(OSError):
                part.unlink()
            raise ModelError(
                f"{file.path} was damaged in transit: its digest is not the one that the hub lists",
                "It was deleted; run the command again",
            )
        part.replace(target)
    return file_digest(target)


def _continue(hub: Hub, place: str, file: HubFile, part: Path, progress: Progress) -> None:
    """Download the missing rest of a file; a partial download is kept for the next attempt."""
    start = part.stat().st_size if part.exists() else 0
    if file.size is not None and start > file.size:
        part.unlink()
        start = 0
    if start and start == file.size:
        return
    try:
        with hub.get(place, start) as response:
            sent = str(response.headers.get("Content-Range", ""))
            whole = response.status != 206 or not sent.startswith(f"bytes {start}-")
            if whole:
                start = 0  # the server does not support ranges
            length = response.headers.get("Content-Length")
            total = start + int(length) if length else (file.size or 0)
            with part.open("wb" if whole else "ab") as out:
                done = start
                while block := response.read1(_BLOCK_BYTES):
                    out.write(block)
                    done += len(block)
                    progress(file.path, done, total)
    except HTTPError as error:
        if error.code != 416:
            raise
        error.close()
        with suppress(OSError):
            part.unlink()
        raise HTTPException("the partial download does not match and was deleted") from error
    if total and done < total:
        raise HTTPException(f"the connection ended after {done} of {total} bytes")


def _is_complete(path: Path, file: HubFile, digest: str) -> bool:
    """Return whether a file matches its SHA-256, else its git blob id, else its size."""
    if digest:
        return file_digest(path) == digest
    if file.blob:
        data = path.read_bytes()
        return sha1(b"blob %d\0" % len(data) + data).hexdigest() == file.blob
    return file.size is None or path.stat().st_size == file.size


def _with_retries(hub: Hub, what: str, attempt: Callable[[], Result]) -> Result:
    """Retry after failures that may be temporary; raise at once after a refusal."""
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
                    f"{what} could not be downloaded from {hub.address}: {reason}",
                    "Run the command again to resume. Without a network, "
                    "copy the model's folder here and use: marklight models import FOLDER",
                ) from error
        time.sleep(min(pause, hub.longest_pause_seconds))
    raise AssertionError("the last attempt returns or raises")


def _refused(hub: Hub, what: str, code: int) -> ModelError:
    if code in (401, 403):
        return ModelError(
            f"{hub.address} requires a login for {what} ({code})",
            "Download it in a browser, then: marklight models import FOLDER",
        )
    if code == 404:
        return ModelError(f"{hub.address} has no {what} (404)", "Check the name and the revision")
    if code == 429:
        return ModelError(f"{hub.address} received too many requests (429)", "Try again later")
    return ModelError(f"{hub.address} returned status {code} for {what}", "Try again later")
