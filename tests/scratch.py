"""Folders for what tests write: in memory where there is enough of it, as no test is about the speed of a disk."""

from __future__ import annotations

import os
import shutil
from functools import cache
from pathlib import Path

_MEMORY = Path("/dev/shm")
_MIN_FREE_BYTES = 4_000_000_000
"""As in scripts/test. A container may have 64 MB, which a few database servers fill."""


@cache
def scratch_parent() -> str | None:
    """Return the folder in memory that every account may enter; None where it is missing or small.

    The environment variable TEST_SCRATCH names another one.
    """
    if given := os.environ.get("TEST_SCRATCH"):
        return given
    if not _MEMORY.is_dir() or not os.access(_MEMORY, os.W_OK):
        return None
    return str(_MEMORY) if shutil.disk_usage(_MEMORY).free > _MIN_FREE_BYTES else None
