"""A sample of the cases of `scripts/bench faults`: each system call fails once, and the power is lost after each change."""

from __future__ import annotations

import shutil
import sys

import pytest

from tests.faults.every_call import start

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="LD_PRELOAD and fork are those of Linux"),
    pytest.mark.skipif(
        not shutil.which("cc"), reason="no C compiler builds the library that lets calls fail"
    ),
]
EVERY = 71


@pytest.mark.parametrize(
    "commands", [("index", "update"), ("search", "import"), ("export", "doctor", "clean")]
)
def test_a_failing_call_or_a_loss_of_power_leaves_a_sound_index(commands: tuple[str, ...]) -> None:
    finished = start(len(commands[0]), EVERY, commands)
    assert finished.returncode == 0, finished.stdout
    assert '"problems": 0' in finished.stdout
