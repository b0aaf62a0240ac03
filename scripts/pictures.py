"""Take the pictures of the README: the search page and a search in the terminal.

Run it as `.venv/bin/python scripts/pictures.py FOLDER QUERY`, for example with the Kubernetes documentation.
It needs the test dependencies and Chromium.
"""

from __future__ import annotations

import html
import os
import pty
import re
import shlex
import subprocess
import sys
import time
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

IMAGES = Path(__file__).resolve().parent.parent / "docs" / "images"
MARKLIGHT = Path(sys.executable).with_name("marklight")
CHROMIUM = ("/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome")
PORT = 7499
COLUMNS = 110
WAIT_MS = 60_000
"""Limit for a search and for opening a document, in milliseconds."""

TERMINAL = """
<meta charset="utf-8">
<body style="margin:0;background:#1d1f27">
<pre style="display:inline-block;margin:0;padding:22px 26px;color:#d7dae0;font:15px/1.45 'DejaVu Sans Mono',monospace;white-space:pre-wrap;width:{columns}ch">{text}</pre>
"""


def terminal_output(command: list[str]) -> str:
    """Run a command on a pseudo-terminal and return what it prints."""
    chunks: list[bytes] = []

    def read(descriptor: int) -> bytes:
        data = os.read(descriptor, 4096)
        chunks.append(data)
        return b""

    os.environ.update(TERM="xterm-256color")
    pty.spawn(["sh", "-c", f"stty cols {COLUMNS}; exec {shlex.join(command)}"], read)
    return b"".join(chunks).decode("utf-8", "replace")


def terminal_html(text: str) -> str:
    """Convert the escape sequences for bold and dim text to HTML; remove links and everything else."""
    text = re.sub(r"\x1b\]8;[^\x07\x1b]*(\x07|\x1b\\)", "", text.replace("\r\n", "\n"))
    shown = html.escape(text)
    shown = re.sub(r"\x1b\[1m", "<span><b>", shown)
    shown = re.sub(r"\x1b\[2m", '<span style="opacity:.6"><b style="font-weight:400">', shown)
    shown = re.sub(r"\x1b\[0m", "</b></span>", shown)
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown)


def photograph_terminal(page: Page, folder: str, query: str) -> None:
    """Save a picture of a search in the terminal."""
    command = [str(MARKLIGHT), "search", query, folder, "-n", "1"]
    prompt = f'<span style="color:#8fc379">$</span> marklight search "{html.escape(query)}" {folder} -n 1\n\n'
    page.set_viewport_size({"width": 1180, "height": 100})
    body = prompt + terminal_html(terminal_output(command)).strip("\n")
    page.set_content(TERMINAL.format(columns=COLUMNS, text=body))
    page.locator("pre").screenshot(path=IMAGES / "terminal.png")


def photograph_page(page: Page, folder: str, query: str) -> None:
    """Save a picture of the search page with a result opened."""
    server = subprocess.Popen([str(MARKLIGHT), "serve", folder, "--port", str(PORT)])
    try:
        for _ in range(100):
            try:
                page.goto(f"http://127.0.0.1:{PORT}/")
                break
            except Exception:  # not listening yet
                time.sleep(0.2)
        page.set_viewport_size({"width": 1280, "height": 800})
        page.get_by_role("searchbox").fill(query)
        page.keyboard.press("Enter")
        page.get_by_text("Search details").wait_for(timeout=WAIT_MS)  # below complete results only
        page.keyboard.press("ArrowDown")
        page.keyboard.press("Enter")
        page.locator("#view-text h2").first.wait_for(timeout=WAIT_MS)
        page.wait_for_timeout(1500)  # the scrolling is animated
        page.screenshot(path=IMAGES / "page.png")
    finally:
        server.terminate()
        server.wait()


def main() -> None:
    """Take both pictures."""
    folder, query = sys.argv[1:3]
    IMAGES.mkdir(exist_ok=True)
    subprocess.run([MARKLIGHT, "index", folder], check=True)
    with sync_playwright() as playwright:
        executable = next((path for path in CHROMIUM if Path(path).exists()), None)
        browser = playwright.chromium.launch(executable_path=executable, args=["--no-sandbox"])
        page = browser.new_page(device_scale_factor=2)
        photograph_terminal(page, folder, query)
        photograph_page(page, folder, query)
        browser.close()


if __name__ == "__main__":
    main()
