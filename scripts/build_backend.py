"""PEP 517 build backend: hatchling, after one clear line for a Python that is too old.

Without this, pip resolves the dependencies first and reports one of those. Must run on old versions of Python.
"""

from __future__ import annotations

import sys

if sys.version_info < (3, 11):  # noqa: UP036 - pip runs this with any version
    version = ".".join(map(str, sys.version_info[:3]))
    sys.exit(f"Marklight needs Python 3.11 or later; this is Python {version}.")

HATCHLING = "hatchling>=1.27"


def get_requires_for_build_wheel(config_settings: object = None) -> list[str]:  # noqa: ARG001 - PEP 517
    """Return what builds a wheel; not in pyproject.toml, as an old Python could not install it."""
    return [HATCHLING]


get_requires_for_build_sdist = get_requires_for_build_wheel


def get_requires_for_build_editable(config_settings: object = None) -> list[str]:  # noqa: ARG001 - PEP 517
    """Return what builds an editable wheel."""
    return [HATCHLING, "editables>=0.3"]


def build_wheel(directory: str, config_settings: object = None, metadata: object = None) -> str:
    """Build a wheel and return its name."""
    from hatchling import build

    return str(build.build_wheel(directory, config_settings, metadata))


def build_editable(directory: str, config_settings: object = None, metadata: object = None) -> str:
    """Build an editable wheel and return its name."""
    from hatchling import build

    return str(build.build_editable(directory, config_settings, metadata))


def build_sdist(directory: str, config_settings: object = None) -> str:
    """Build a source distribution and return its name."""
    from hatchling import build

    return str(build.build_sdist(directory, config_settings))
