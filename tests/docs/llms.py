"""`llms.txt`, as llmstxt.org describes it: our documentation as a list that an assistant can choose from."""

from __future__ import annotations

import re
from pathlib import Path

from .examples import ROOT

LLMS = ROOT / "llms.txt"
DOCS = ROOT / "docs"
BESIDE = ("ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md")


def llms() -> str:
    """All of the file, from the pages' own titles and what the list of pages says about each."""
    told = dict(re.findall(r"^- \[.+?\]\((.+?)\): (.+)$", (DOCS / "README.md").read_text(), re.M))
    listed = [DOCS / name for name in told]
    others = sorted(set(DOCS.glob("*.md")) - {DOCS / "README.md", *listed})
    others += [ROOT / name for name in BESIDE]
    title, summary = _opening(ROOT / "README.md")
    parts = [f"# {title}", f"> {summary}", "## Docs"]
    parts.append("\n".join(_line(page, told[page.name]) for page in listed))
    parts += ["## Optional", "\n".join(_line(page, _opening(page)[1]) for page in others)]
    return "\n\n".join(parts) + "\n"


def _line(page: Path, said: str) -> str:
    link = f"- [{_opening(page)[0]}]({page.relative_to(ROOT).as_posix()})"
    sentence = re.split(r"(?<=[.!?]) ", said)[0].rstrip(".")
    return f"{link}: {sentence}" if said else link


def _opening(page: Path) -> tuple[str, str]:
    """A page's title and its first paragraph on one line; none where a section follows at once."""
    title, _, rest = page.read_text().partition("\n")
    first = rest.strip().partition("\n\n")[0]
    return title.removeprefix("# "), "" if first.startswith("#") else " ".join(first.split())
