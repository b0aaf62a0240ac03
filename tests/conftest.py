"""What many tests need: where the real documents are, and no haste."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from marklight.errors import ModelError
from marklight.models.record import GRANITE, package_folder
from tests.models.serving import Behaviour, serving

# How long one example takes tells about the machine, and whether numpy was loaded before.
settings.register_profile("unhurried", deadline=None)
settings.load_profile("unhurried")

# Where the tests run in the background interrupts are ignored, and all that they start would do so too.
signal.signal(signal.SIGINT, signal.default_int_handler)

# Children of tests that fork would print messages of gRPC, which a test of Qdrant in the same process has loaded.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
os.environ.setdefault("GRPC_VERBOSITY", "NONE")

# What this user keeps on this machine stays as it is: which indexes are theirs, and what they trust.
_DATA = tempfile.TemporaryDirectory(prefix="marklight-data-")
os.environ["MARKLIGHT_DATA_DIR"] = _DATA.name

try:
    package_folder(GRANITE)
except ModelError:  # this checkout was installed before the model changed
    _BACKEND = Path(__file__).parents[1] / "scripts" / "build_backend.py"
    subprocess.run([sys.executable, str(_BACKEND)], check=True)

_SHOWN_LINES, _SHOWN_WIDTH = 30, 200
"""What is printed of a failure at once."""

_DEFAULT = Path(__file__).resolve().parents[2] / "shared" / "eval"


@pytest.fixture(scope="session")
def eval_root() -> Path:
    """The folder of real documents and questions; tests that need it are skipped without it."""
    root = Path(os.environ.get("EVAL_ROOT", _DEFAULT))
    if not root.is_dir():
        pytest.skip(f"no real documents at {root}; set EVAL_ROOT to the folder that has them")
    return root


@pytest.fixture
def does() -> Behaviour:
    """How the server of models at `address` behaves; a test may change it."""
    return Behaviour()


@pytest.fixture
def address(does: Behaviour) -> Iterator[str]:
    """A server of models on this machine."""
    with serving(does) as address:
        yield address


SLOW_FOLDERS = (
    *("adapters", "conformance", "docs", "engines/server", "eval", "faults", "trust"),
    *("surfaces/daemon", "surfaces/http", "surfaces/web", "library/transfer"),
)
"""Folders whose tests start servers, browsers or many processes, or read large collections."""
SLOW_FILES = frozenset(
    "test_places test_robust test_live_search test_engine_agreement test_links test_properties test_eval_command"
    " test_completion test_boilerplate test_transports test_levels test_escaping test_watch test_visible_text".split()
)
SERVERS = ("postgres", "qdrant")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests that `scripts/test --fast` leaves out."""
    root = Path(__file__).parent
    for item in items:
        path = item.path.relative_to(root).as_posix()
        on_server = any(server in item.name for server in SERVERS)
        if path.startswith(SLOW_FOLDERS) or item.path.stem in SLOW_FILES or on_server:
            item.add_marker(pytest.mark.slow)


@pytest.hookimpl(trylast=True)
def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Print the end of a failure at once: a log that is cut off shows it, however long the example of a property test is."""
    if report.failed and "PYTEST_XDIST_WORKER" not in os.environ:
        lines = [line[:_SHOWN_WIDTH] for line in report.longreprtext.splitlines()]
        print("", report.nodeid, *lines[-_SHOWN_LINES:], "", sep="\n", file=sys.__stderr__)
