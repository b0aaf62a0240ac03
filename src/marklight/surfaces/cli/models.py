"""Commands about embedding models: list, pull, verify, import."""

from __future__ import annotations

from pathlib import Path

import click

from marklight.surfaces import render
from marklight.surfaces.cli.options import AS_JSON
from marklight.surfaces.cli.progress import Bar


@click.group()
def models() -> None:
    """List, pull, verify and import embedding models."""
