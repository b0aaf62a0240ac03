"""Generate llms.txt (llmstxt.org): an index of the documentation for assistants."""

from __future__ import annotations

import re
from pathlib import Path

from .examples import ROOT

LLMS = ROOT / "llms.txt"
DOCS = ROOT / "docs"
BESIDE = ("ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md")


def llms() -> str:
    """Return the file, from the titles of the pages and their descriptions in docs/README.md."""
    descriptions = dict(
        re.findall(r"^- \[.+?\]\((.+?)\): (.+)$", (DOCS / "README.md").read_text(), re.M)
    )
    listed = [DOCS / name for name in descriptions]
    others = sorted(set(DOCS.glob("*.md")) - {DOCS / "README.md", *listed})
    others += [ROOT / name for name in BESIDE]
    title, summary = _opening(ROOT / "README.md")
    parts = [f"# {title}", f"> {summary}", "## Docs"]
    parts.append("\n".join(_line(page, descriptions[page.name]) for page in listed))
    parts += ["## Optional", "\n".join(_line(page, _opening(page)[1]) for page in others)]
    return "\n\n".join(parts) + "\n"


def _line(page: Path, description: str) -> str:
    link = f"- [{_opening(page)[0]}]({page.relative_to(ROOT).as_posix()})"
    sentence = re.split(r"(?<=[.!?]) ", description)[0].rstrip(".")
    return f"{link}: {sentence}" if description else link


def _opening(page: Path) -> tuple[str, str]:
    """Return the title of a page and its first paragraph, which is empty if a section follows."""
    title, _, rest = page.read_text().partition("\n")
    first = rest.strip().partition("\n\n")[0]
    return title.removeprefix("# "), "" if first.startswith("#") else " ".join(first.split())
