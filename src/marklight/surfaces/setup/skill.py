"""The skill file that teaches an assistant when and how to ask: printed, put into its folder, taken out."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from marklight.surfaces.setup import files
from marklight.surfaces.setup.entry import ByHand, Change

SOURCE = Path(__file__).with_name("SKILL.md")
_COPY = f"Copy {SOURCE} there yourself"


def put_skill(file: Path) -> Change:
    """The skill in its place; another text there is kept beside it."""
    wanted = SOURCE.read_bytes()
    try:
        before = files.load(file)
        if before == wanted:
            return Change("", file)
        backup = files.replace(file, before, wanted)
    except (OSError, files.Changed) as error:
        raise ByHand(f"{file} cannot be written: {error}", _COPY) from None
    return Change("added" if before is None else "changed", file, backup)


def take_skill(file: Path) -> Change:
    """Without the skill, unless a person made it theirs."""
    before = files.load(file)
    if before is None:
        return Change("", file)
    if before != SOURCE.read_bytes():
        raise ByHand(f"{file} is not as we wrote it", "Delete it yourself if you no longer want it")
    file.unlink()
    with suppress(OSError):  # something else lies in it
        file.parent.rmdir()
    return Change("removed", file)
