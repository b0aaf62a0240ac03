"""Take the pictures of the README and the documentation: the start, a search and a note on the page.

Run it as `.venv/bin/python scripts/pictures.py FOLDER QUERY`, for example with the Kubernetes documentation.
It needs the test dependencies and Chromium.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import urlencode

from PIL import Image
from playwright.sync_api import Page, sync_playwright

IMAGES = Path(__file__).resolve().parent.parent / "docs" / "images"
MARKLIGHT = Path(sys.executable).with_name("marklight")
CHROMIUM = ("/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome")
PORT = 7499
WAIT_MS = 60_000
"""Limit for a search and for opening a document, in milliseconds."""


NOTE = """---
tags: [sailing, harbour]
author: Ada
---
# Tides

Boats wait in the harbour until the water is ==high enough==. The height follows $h(t) = h_0 + A\\cos(\\omega t)$.[^1]

> [!note] Twice a day
> High water comes every 12 hours and 25 minutes. See [[Spring tides]].

> [!warning]- With wind from the north
> Wait for the next tide.

![[Spring tides#At full moon]]

| tide | height | time |
|---|---:|---|
| high | 5.2 m | 04:10 |
| low | 0.8 m | 10:35 |

```python
def height(hours: float) -> float:
    return 3.0 + 2.2 * math.cos(hours / 12.4 * TAU)  # metres
```

- [x] mend the net
- [ ] paint the boat

[^1]: Harmonic analysis of tides goes back to Kelvin.
"""
OTHER = """# Spring tides

## At full moon

At new and full moon the [[Tides]] are highest; a boat with a deep keel can leave the harbour then.
"""


@contextmanager
def serving(folder: str) -> Iterator[str]:
    """Serve a folder until the context ends; return the address."""
    server = subprocess.Popen([str(MARKLIGHT), "serve", "--in", folder, "--port", str(PORT)])
    try:
        yield f"http://127.0.0.1:{PORT}"
    finally:
        server.terminate()
        server.wait()


def visit(page: Page, address: str) -> None:
    """Open a page once the server listens."""
    for _ in range(100):
        try:
            page.goto(address)
            return
        except Exception:  # not listening yet
            time.sleep(0.2)


def save(page: Page, name: str) -> None:
    """Save a picture of the page with 256 colours: a third of the bytes."""
    picture = Image.open(BytesIO(page.screenshot())).convert("RGB")
    picture.quantize(256, dither=Image.Dither.NONE).save(IMAGES / name, optimize=True)


def photograph_page(page: Page, folder: str, query: str) -> None:
    """Save pictures of the start, of a search with the best result opened, and of a note."""
    page.set_viewport_size({"width": 1280, "height": 800})
    with serving(folder) as address:
        visit(page, f"{address}/?{urlencode({'q': query})}")
        page.locator("#results .answers").wait_for(timeout=WAIT_MS)
        page.locator("#rail .links").first.wait_for(timeout=WAIT_MS)
        page.wait_for_timeout(500)  # the opacity is animated
        save(page, "page.png")
        visit(page, address)
        page.locator("#home section").first.wait_for(timeout=WAIT_MS)
        save(page, "start.png")
    with TemporaryDirectory() as scratch:
        (Path(scratch) / "Tides.md").write_text(NOTE)
        (Path(scratch) / "Spring tides.md").write_text(OTHER)
        subprocess.run([MARKLIGHT, "index", scratch], check=True)
        with serving(scratch) as address:
            visit(page, f"{address}/?open=Tides.md")
            page.locator("#rail .links").first.wait_for(timeout=WAIT_MS)
            page.wait_for_timeout(500)
            save(page, "reader.png")


def main() -> None:
    """Take all pictures."""
    folder, query = sys.argv[1:3]
    IMAGES.mkdir(exist_ok=True)
    subprocess.run([MARKLIGHT, "index", folder], check=True)
    with sync_playwright() as playwright:
        executable = next((path for path in CHROMIUM if Path(path).exists()), None)
        browser = playwright.chromium.launch(executable_path=executable, args=["--no-sandbox"])
        page = browser.new_page(device_scale_factor=2)
        photograph_page(page, folder, query)
        browser.close()


if __name__ == "__main__":
    main()
