"""Build a stage from settings, which checks their bounds; constructing its class directly does not."""

from __future__ import annotations

from typing import TypeVar

from marklight.library.configuration import SCHEMA, stage_name
from marklight.settings import Layer, combine

Stage = TypeVar("Stage")


def build_stage(stage: type[Stage], **values: object) -> Stage:
    """Return a stage with these settings; raise SettingsError for a value out of bounds."""
    table = f"search.{stage_name(stage)}"
    layer = Layer("test", {f"{table}.{name}": value for name, value in values.items()})
    return combine([layer], SCHEMA).build(stage, table)
