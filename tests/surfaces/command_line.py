"""Run commands in this process and return their output."""

from __future__ import annotations

import json
from typing import Any

import pytest

from marklight.surfaces.cli import run

PAGES = {
    "guide/auth.md": "# Auth\n\n## Token refresh\n\nTokens expire after an hour; refresh them with the refresh call.\n",
    "guide/deploy.md": "# Deploy\n\nRoll back a deployment with the undo command.\n\n```python\ngetUserById(1)\n```\n",
    "espresso.md": "---\ntags: [kitchen]\n---\n# Espresso\n\nGrind the beans finely.\n",
}


def run_cli(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = run(arguments)
    out, err = capsys.readouterr()
    return code, out, err


def run_json(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    code, out, err = run_cli(capsys, *arguments)
    assert code == 0, err
    return json.loads(out)
