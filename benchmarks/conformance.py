"""Run the MCP conformance suite and the MCP Inspector against our server; Node comes as a Python package."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

if __name__ == "__main__":
    os.environ["RUN_CONFORMANCE"] = "1"
    folder = Path(__file__).resolve().parents[1] / "tests" / "conformance"
    sys.exit(pytest.main(["-v", "-rP", "--tb=short", str(folder)]))
