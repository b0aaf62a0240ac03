"""`python -m marklight` is the command `marklight`."""

from __future__ import annotations

from marklight.surfaces.cli import main

if __name__ == "__main__":
    main()
