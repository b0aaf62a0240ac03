"""The command line: text for people, JSON for programs."""

from marklight.surfaces.cli.app import main as main
